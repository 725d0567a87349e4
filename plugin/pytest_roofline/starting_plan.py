"""What becomes of each file that `roofline init` would write: nobody's work is overwritten, and nothing is half done.

A manifest beside the files holds the hash of each as it was written. So a later version knows which of them the user
has changed since, and which can be renewed.
"""

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from .core.errors import BadInput, CannotStore
from .core.records import SCHEMA

MANIFEST = ".roofline-init.json"


class State(StrEnum):
    """How a file stands to the one that ships."""

    NEW = "new"
    SAME = "same"
    OUTDATED = "outdated"
    CHANGED = "changed"
    REMOVED = "removed"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files that were written into a folder: their hashes, and the version that wrote them."""

    version: str
    files: dict[str, str] = field(default_factory=dict)
    schema: int = SCHEMA


def hash_of(data: bytes) -> str:
    """The hash by which a file is known again."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def read_manifest(folder: Path) -> Manifest | None:
    """What an earlier `roofline init` left in a folder; None where none was there.

    Raises:
        BadFile: the manifest is damaged, or of another schema.
    """
    from .judging.storage import check_schema, decode_json, read_bytes, to_record

    path = folder / MANIFEST
    if not path.exists():
        return None
    where = f"manifest {path}"
    raw = decode_json(read_bytes(path, "manifest"), where)
    check_schema(raw, where)
    return to_record(raw, Manifest, where)


def states(folder: Path, files: Mapping[str, bytes], known: Manifest | None) -> dict[str, State]:
    """How each file of a folder stands to the one that ships.

    Raises:
        BadInput: where a folder would have to be lies something else, or the other way round.
    """
    hashes = known.files if known else {}
    return {name: _state(folder, name, data, hashes.get(name)) for name, data in files.items()}


def _state(folder: Path, name: str, data: bytes, written: str | None) -> State:
    path = folder / name
    _check_kinds(folder, path)
    if not path.exists():
        return State.NEW if written is None else State.REMOVED
    found = path.read_bytes()
    if found == data:
        return State.SAME
    if written is None:
        return State.FOREIGN
    return State.OUTDATED if hash_of(found) == written else State.CHANGED


def check_folder(folder: Path) -> None:
    """Refuse what is no folder and cannot become one.

    Raises:
        BadInput: it, or what it would lie in, is something else.
    """
    for path in (*reversed(folder.parents), folder):
        _check_kind(path, path.is_dir(), "folder")


def _check_kinds(folder: Path, path: Path) -> None:
    for parent in reversed(path.relative_to(folder).parents[:-1]):
        _check_kind(folder / parent, (folder / parent).is_dir(), "folder")
    _check_kind(path, path.is_file(), "file")


def _check_kind(path: Path, fits: bool, kind: str) -> None:
    if fits or not (path.exists() or path.is_symlink()):
        return
    what = f"no {kind}" if path.exists() else "a link that leads nowhere"
    raise BadInput(
        f"{path} is {what}; expected a {kind}, or nothing: name another folder for the suite, or move it away"
    )


def _check_links(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise BadInput(
                f"{folder / name} is {path} by a link, which is not in {folder}; expected what is written to stay "
                "there, nothing was written: put a folder or a file in place of the link"
            )


def chosen(found: Mapping[str, State], *, update: bool, force: bool) -> list[str]:
    """The files that are to be written.

    Raises:
        BadInput: some would overwrite what is not ours, each by name.
    """
    foreign = [name for name, state in found.items() if state is State.FOREIGN]
    if foreign and not force:
        raise BadInput(
            f"{', '.join(foreign)} {'is' if len(foreign) == 1 else 'are'} there already and not what would be written; "
            "nothing was written. Name another folder, move them away, or overwrite them with --force"
        )
    wanted = {State.NEW} | ({State.OUTDATED} if update else set())
    return [name for name, state in found.items() if state in wanted or (force and state is not State.SAME)]


def next_manifest(
    known: Manifest | None,
    files: Mapping[str, bytes],
    found: Mapping[str, State],
    written: Iterable[str],
    dropped: Iterable[str],
    version: str,
) -> Manifest:
    """The manifest after `written` are in place; what was left keeps the hash that it was written with."""
    current = set(written) | {name for name, state in found.items() if state is State.SAME}
    hashes = dict(known.files) if known else {}
    hashes |= {name: hash_of(files[name]) for name in current}
    hashes = {name: value for name, value in sorted(hashes.items()) if name not in set(dropped)}
    behind = [name for name, state in found.items() if state is State.OUTDATED and name not in current]
    return Manifest(known.version if known and behind else version, hashes)


def manifest_text(manifest: Manifest) -> bytes:
    """A manifest as its file holds it."""
    from .judging.storage import to_plain

    return (json.dumps(to_plain(manifest), indent=2, sort_keys=True) + "\n").encode()


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a folder; the first takes its place when all of them are on the disk.

    Links are followed as long as they stay in the folder.

    Raises:
        BadInput: a link leads out of the folder.
        CannotStore: the folder cannot be made or written, or is full.
    """
    _check_links(folder, files)
    made = not folder.exists()
    placed = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".roofline-init-", dir=folder) as name:
            staged = {Path(name, str(index)): target for index, target in enumerate(files)}
            for path, target in staged.items():
                path.write_bytes(files[target])
            for path, target in staged.items():
                into = (folder / target).resolve()
                into.parent.mkdir(parents=True, exist_ok=True)
                path.replace(into)
                placed += 1
    except OSError as error:
        if made and not placed:
            with contextlib.suppress(OSError):
                folder.rmdir()
        done = f"{placed} of {len(files)} files are in place, run it again for the others" if placed else ""
        told = error.strerror or error
        raise CannotStore(f"{folder} cannot be written: {told}; {done or 'nothing was written'}") from None

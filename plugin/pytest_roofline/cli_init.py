"""`roofline init`: the benchmark suite, the baselines and a file for CI, written from what is installed."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from .cli_options import json_option, print_json
from .core.units import printable
from .starting import CI, PYTEST_INI, configured_by, shipped
from .starting_notes import pin_notes, root_notes
from .starting_plan import (
    MANIFEST,
    Manifest,
    State,
    check_folder,
    chosen,
    manifest_text,
    next_manifest,
    read_manifest,
    states,
    write,
)
from .version import __version__

# Where nothing else is said, and nothing was written before.
DEFAULT_CI = "github"
# By what is found in a folder, what is said of the files that are left as they are.
LEFT = {
    State.OUTDATED: "a newer one ships, and you have not changed it",
    State.CHANGED: "you have changed it",
    State.REMOVED: "you have removed it",
}


@dataclass(frozen=True, slots=True)
class _Done:
    """What an `init` did: the states it found, what it wrote, and what it says of the rest."""

    folder: Path
    known: Manifest | None
    found: dict[str, State]
    written: list[str]
    gone: list[str]
    notes: list[str]

    def left(self, state: State) -> list[str]:
        """The files of a state that were left as they are."""
        return [name for name, one in self.found.items() if one is state and name not in self.written]


def _named(_context: click.Context, _parameter: click.Parameter, value: str) -> Path:
    if not value.strip():
        raise click.BadParameter("it is empty; expected a folder, such as . for this one")
    return Path(value)


@click.command(short_help="Write the suite, the baselines and a CI file into a folder.")
@click.argument("folder", metavar="DIR", callback=_named)
@click.option(
    "--ci", multiple=True, type=click.Choice([*CI, "none"]),
    help=f"Whose CI a file is written for (repeatable); {DEFAULT_CI}, or what was written before, without.",
)  # fmt: skip
@click.option("--update", is_flag=True, help="Renew the files that you have not changed since they were written.")
@click.option("--force", is_flag=True, help="Overwrite whatever is different, also what you have changed.")
@json_option
def init(folder: Path, ci: tuple[str, ...], update: bool, force: bool, as_json: bool) -> None:
    """Write the benchmark suite, the baselines and a file for CI into DIR, a new folder or one of yours.

    Nothing of yours is overwritten. Called again, it writes what is missing and says what is not as it ships; --update
    renews what you have not touched.

    Example: roofline init checks --ci gitlab

    Exit status: 0 done, 2 something is in the way or cannot be written.
    """
    done = _init(folder, ci, update=update, force=force)
    if as_json:
        print_json(_as_json(done))
    else:
        for line in _lines(done):
            click.echo(printable(line))


def _init(folder: Path, ci: tuple[str, ...], *, update: bool, force: bool) -> _Done:
    check_folder(folder)
    every, known = shipped(), read_manifest(folder)
    files, notes = _selected(every, folder, known, ci)
    found = states(folder, files, known)
    names = chosen(found, update=update, force=force)
    old = [name for name in (known.files if known else {}) if name not in every]
    gone = [name for name in old if (folder / name).exists()]
    manifest = next_manifest(known, files, found, names, set(old) - set(gone), __version__)
    contents = {name: files[name] for name in names}
    if manifest != known:
        contents[MANIFEST] = manifest_text(manifest)
    if contents:
        write(folder, contents)
    changed = [name for name, state in found.items() if state is State.CHANGED and name not in names]
    return _Done(folder, known, found, names, gone, [*notes, *pin_notes(folder, changed, __version__)])


def _selected(
    every: Mapping[str, bytes], folder: Path, known: Manifest | None, ci: tuple[str, ...]
) -> tuple[dict[str, bytes], list[str]]:
    """The files that this folder is to have, and what is to be said of those that it is not."""
    before = [name for name, (_, target) in CI.items() if known and target in known.files]
    asked = set(ci or (before if known else [DEFAULT_CI])) - {"none"}
    if "none" in ci and asked:
        raise click.UsageError(
            f"--ci=none stands beside --ci={', --ci='.join(sorted(asked))}; expected one or the other"
        )
    left_out = {target for name, (_, target) in CI.items() if name not in asked}
    notes = root_notes(folder, asked)
    other = configured_by(folder) if folder.is_dir() and not (known and PYTEST_INI in known.files) else ""
    if other:
        left_out.add(PYTEST_INI)
        notes.append(f"no {PYTEST_INI} is written, since {other} configures pytest here; the suite needs nothing of it")
    return {name: data for name, data in every.items() if name not in left_out}, notes


def _as_json(done: _Done) -> dict[str, Any]:
    kinds = {state.value: done.left(state) for state in (State.SAME, *LEFT)}
    return {
        "folder": str(done.folder),
        "version": __version__,
        "version_before": done.known.version if done.known else None,
        "written": done.written,
        **kinds,
        "no_longer_shipped": done.gone,
        "notes": done.notes,
    }


def _lines(done: _Done) -> Iterable[str]:
    if done.written:
        yield f"{_counted(done.written)} written into {done.folder}: {_by_folder(done.written)}"
    else:
        same = _counted(done.left(State.SAME))
        yield f"nothing to write in {done.folder}: {same} as pytest-roofline {__version__} ships"
    for state, why in LEFT.items():
        for name in done.left(state):
            yield f"left: {name}: {why}"
    for name in done.gone:
        yield f"left: {name}: it no longer ships; remove it where nothing of yours needs it"
    for note in done.notes:
        yield f"note: {note}"
    yield from _advice(done)


def _advice(done: _Done) -> Iterable[str]:
    again = f"roofline init {shlex.quote(str(done.folder))}"
    outdated = done.left(State.OUTDATED)
    if outdated:
        yield (
            f"{_counted(outdated)} {'is' if len(outdated) == 1 else 'are'} as an earlier version wrote "
            f"{'it' if len(outdated) == 1 else 'them'}; `{again} --update` renews to {__version__}"
        )
    if done.left(State.CHANGED) or done.left(State.REMOVED):
        ci = [f"--ci={name}" for name, (_, target) in CI.items() if target in done.found] or ["--ci=none"]
        yield (
            f"to see what ships: `roofline init other {' '.join(ci)}` and `diff -r other "
            f"{shlex.quote(str(done.folder))}`; `{again} --force` overwrites yours with it"
        )
    if done.known is None:
        folder = str(done.folder)
        go = "" if done.folder.resolve() == Path.cwd() else f"cd {shlex.quote(folder)} && "
        yield f"next: {go}pytest perf_tests -k memcpy"


def _counted(names: "list[str]") -> str:
    return f"{len(names)} file{'' if len(names) == 1 else 's'}"


def _by_folder(names: Iterable[str]) -> str:
    """`baselines/ 26, perf_tests/ 12, pytest.ini`: folders with how many, then single files."""
    names = list(names)
    counts = Counter(name.split("/")[0] for name in names)
    folders = [f"{folder}/ {count}" for folder, count in counts.items() if count > 1]
    return ", ".join([*folders, *(name for name in names if counts[name.split("/")[0]] == 1)])

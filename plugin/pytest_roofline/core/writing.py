"""Writing of files, whole or not at all. Nothing that must stay is overwritten."""

import contextlib
import json
import os
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from .errors import BadFile, BadInput, CannotStore
from .storage import check_schema, decode_json, read_bytes
from .units import steers, without_commands

# mkstemp makes private files; a baseline is shared like any other file of the checkout.
SHARED = 0o644
# Seconds to wait for another process's lock, which merges a file in less, and seconds between two tries.
PATIENCE_S, POLL_S = 60.0, 0.01
# A lock is empty for a moment between its making and the name of its process; after so long a crash left it so.
EMPTY_S = 3.0


def make_ignored_folder(folder: Path) -> None:
    """Make a folder whose whole content git ignores. A folder that exists stays as it is."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def write_json(path: Path, plain: Mapping[str, object]) -> None:
    """Write plain data with reviewable diffs. Keys are sorted, with two spaces and a final newline."""
    write_atomically(path, json_text(plain, sort_keys=True))


def json_text(
    plain: object,
    *,
    ensure_ascii: bool = False,
    indent: int | None = 2,
    sort_keys: bool = False,
) -> str:
    """Return plain data as harmless JSON.

    Whatever its texts hold, it steers neither a terminal nor what reads a log.
    """
    text = (
        json.dumps(
            plain, ensure_ascii=ensure_ascii, allow_nan=False, indent=indent, sort_keys=sort_keys
        )
        + "\n"
    )
    # Outside of strings the only such characters are the ends of lines. Lone surrogates cannot be written in JSON.
    chars = {
        char for char in set(text) - {"\n"} if steers(char) and not "\ud800" <= char <= "\udfff"
    }
    # `json.dumps` gives the escape of a character between quotes, but leaves DEL as it is.
    escapes = {ord(char): json.dumps(char)[1:-1] if char != "\x7f" else r"\u007f" for char in chars}
    return without_commands(text.translate(escapes), r"\u0023")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file whole. A reader sees the old content or the new, never half."""
    try:
        mode = _mode(path)
        # Of a link the file behind it is replaced. Only within one folder is a replacement a single step.
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
            temporary.chmod(mode)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, UnicodeEncodeError) as error:
        raise _cannot(path, error) from None


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Lock a file against the project's other processes.

    The lock lasts from reading the file to writing it back.
    """
    target = Path(os.path.realpath(path))
    lock = target.parent / f".{target.name}.lock"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        release = _acquire(lock)
    except TimeoutError:
        raise CannotStore(
            f"{path} is being changed by another process, which has locked {lock} for {PATIENCE_S:g} s; wait until "
            "that process ends and repeat the command, or remove the lock file if no such process exists"
        ) from None
    except OSError as error:
        raise _cannot(path, error) from None
    try:
        yield
    finally:
        release()


def _acquire(lock: Path) -> Callable[[], None]:
    """Acquire a lock file; return the function that releases it.

    A file that stays empty between two tries was left by a crash, and is removed.

    Raises:
        TimeoutError: another process holds the lock.
    """
    from filelock import SoftFileLock, Timeout

    deadline_s = time.monotonic() + PATIENCE_S
    file_lock = SoftFileLock(lock)
    empty_before = _empty_file(lock)
    while (remaining_s := deadline_s - time.monotonic()) > 0:
        with contextlib.suppress(Timeout):
            file_lock.acquire(timeout=min(EMPTY_S, remaining_s), poll_interval=POLL_S)
            if not lock.stat().st_size:
                # Older versions of filelock leave the file empty, which another process would take for a crash.
                lock.write_text(f"{os.getpid()}\n{socket.gethostname()}\n", encoding="utf-8")
            return file_lock.release
        empty_now = _empty_file(lock)
        if empty_now is not None and empty_now == empty_before:
            _remove_empty(lock, empty_now)
        empty_before = empty_now
    raise TimeoutError


def _empty_file(lock: Path) -> tuple[int, int] | None:
    """Return the inode and the change time of an empty lock file.

    None if the file names the process that made it, or is not there.
    """
    with contextlib.suppress(OSError):
        status = lock.lstat()
        if stat.S_ISREG(status.st_mode) and not status.st_size:
            return status.st_ino, status.st_ctime_ns
    return None


def _remove_empty(lock: Path, empty: tuple[int, int]) -> None:
    """Remove an empty lock file, unless another process has replaced it.

    The process that made it ended before it wrote its number. `empty` is what `_empty_file` returned.
    """
    import fcntl

    with contextlib.suppress(OSError), lock.open("rb") as file:
        # The file lock lets only one process remove it, and the comparison keeps a newer lock.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(file.fileno())
        if (status.st_ino, status.st_ctime_ns) == empty == _empty_file(lock):
            lock.unlink()


def check_writable(folder: Path, subject: str) -> None:
    """Refuse a folder that cannot be written or made. `subject` names it in the sentence.

    Raises:
        BadInput: it, or what it would be made in, is no directory, or refuses a file.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise BadInput(
            f"{subject}: {existing} is not a directory; expected a directory, or a new name"
        )
    try:
        # Its mode is not enough to know: a mount may be read-only, and no file can be made below /proc.
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".roofline-"):
            pass
    except OSError as error:
        raise BadInput(
            f"{subject}: nothing can be written into {existing} ({error.strerror or error}); "
            "expected a writable directory"
        ) from None


def write_new(path: Path, text: str) -> None:
    """Write a new file, whole or not at all."""
    try:
        content = text.encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            try:
                file.write(content)
                file.flush()
            except BaseException:
                path.unlink(missing_ok=True)
                raise
    except (OSError, UnicodeEncodeError) as error:
        if isinstance(error, FileExistsError) and os.path.lexists(path):
            raise CannotStore(
                f"{path} exists already; choose another name or remove that file"
            ) from None
        raise _cannot(path, error) from None


def refuse_overwriting(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse a path whose overwriting would cost a run or a baseline.

    The files that the command itself reads are refused, too.
    """
    if any(path.exists() and source.exists() and path.samefile(source) for source in inputs):
        raise BadInput(f"{path} is a file that this command reads; expected another name")
    if os.path.realpath(path).endswith(".jsonl"):
        raise BadInput(
            f"{path} has the name of a run file, which ends in .jsonl; expected another name"
        )
    try:
        check_schema(decode_json(read_bytes(path, "file"), "it"), "it")
    except BadFile:
        # The file does not exist, or holds no data of this package.
        return
    raise BadInput(
        f"{path} is a baseline, or another input of pytest-roofline; expected another name"
    )


def _cannot(path: Path, error: OSError | UnicodeEncodeError) -> CannotStore:
    """Return the error that a file cannot be written, with the system's reason."""
    return CannotStore(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}")


def _mode(path: Path) -> int:
    """Return the permissions of a file; `SHARED` for a new one."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return SHARED
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise CannotStore(
            f"{path} cannot be written: it is a pipe or a device; expected a file, or a new name"
        )
    return stat.S_IMODE(mode)

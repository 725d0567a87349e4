"""The identity of a program and of the machine that it runs on, found without torch."""

import functools
import hashlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from ..core.facts import DeviceFacts, Environment
from ..core.units import printable
from ..engine.checkout import code_of
from ..engine.devices import amd, nvidia
from ..engine.host import host_facts, processor_facts
from ..engine.identity import variables
from .sides import CACHES, PreparedSide

# Larger files are data, and reading them would take the time of a process.
MOST_BYTES = 64 * 2**20
# Of a line that holds a version.
MOST_COLUMNS = 120
_VERSION = re.compile(
    r"^(?:.*\bversion\b.*\d.*|[a-z][\w-]* v?\d+\.\d+[\w.-]*(?: \(.*\))?)$",
    re.IGNORECASE | re.MULTILINE,
)


def environment_of(side: PreparedSide, words: Sequence[str], printed: str) -> Environment:
    """Return the environment of a process of a program.

    Args:
        side: whose process it was.
        words: the command that ran.
        printed: the text in which it may have stated its version.
    """
    return Environment(
        device=_device(),
        host=host_facts(asks_torch=False),
        software=_files(words, side) | _version(printed),
        code=code_of(Path(side.folder or side.cwd)),
        variables={
            name: text for name, text in variables(side.environ).items() if name not in CACHES
        },
    )


@functools.cache
def _device() -> DeviceFacts:
    """Return the first GPU that a driver tells of, or the CPU."""
    # AMD's library is asked only where NVIDIA's knows no GPU.
    gpus = nvidia.gpus() or amd.gpus() or []
    if not gpus:
        return processor_facts(host_facts(asks_torch=False))
    gpu = gpus[0]
    return DeviceFacts(
        # Torch calls the GPUs of both vendors so.
        type="cuda",
        product=gpu.product,
        index=gpu.index,
        uuid=gpu.uuid,
        memory_bytes=gpu.memory_bytes,
        partition=gpu.partition,
        driver=gpu.driver,
        power_limit_w=gpu.power_limit_w,
    )


def _files(words: Sequence[str], side: PreparedSide) -> dict[str, str]:
    """Return the hash of the program, and of each file that its command names."""
    paths = []
    if words:
        # A name with a folder is of the side's own.
        name = str(side.cwd / words[0]) if "/" in words[0] else words[0]
        program = shutil.which(name, path=side.environ.get("PATH"))
        paths = [Path(program)] if program else []
    paths += [side.cwd / word for word in words[1:] if _is_file(side.cwd / word)]
    return {f"file {printable(path.name)}": _hash(path, _state(path)) for path in paths}


def _is_file(path: Path) -> bool:
    # A word may be no name of a file at all, or longer than one can be.
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _state(path: Path) -> tuple[int, int]:
    """Return what changes with a file's content: its size and its time."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@functools.cache
def _hash(path: Path, state: tuple[int, int]) -> str:
    """Return the hash of a file, or its size where it is large; read once as long as its state stays."""
    size_bytes, _ = state
    if size_bytes > MOST_BYTES:
        return f"{size_bytes} bytes"
    try:
        content = path.read_bytes()
    except OSError as error:
        return f"unreadable: {error.strerror}"
    # The first line of a script may name the temporary folder of a side's own environment.
    content = content.partition(b"\n")[2] if content.startswith(b"#!") else content
    return hashlib.sha256(content).hexdigest()[:16]


def _version(printed: str) -> dict[str, str]:
    """Return the first line that states a version."""
    match = _VERSION.search(printed)
    return {"version": printable(match[0].strip()[:MOST_COLUMNS])} if match else {}

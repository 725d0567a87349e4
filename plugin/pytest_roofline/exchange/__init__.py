"""Files of other tools, read into runs: each format is a module that tells its own from others, and reads it."""

from collections.abc import Callable
from dataclasses import dataclass

from ..core.errors import LARGEST, SMALLEST, BadFile, BadInput
from . import babelstream, nccl_json, nccl_tests, nvbandwidth, pytest_benchmark
from .records import Given, Imported
from .scanning import decode, lines, refuse


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """One format.

    Args:
        name: for `--format`.
        title: what a person calls it.
        sniff: whether a text looks like it.
        read: what a text holds; given the name of the file, and what the user tells.
    """

    name: str
    title: str
    sniff: Callable[[str], bool]
    read: Callable[[str, str, Given], tuple[Imported, ...]]


# A further format is a module with these two functions, and a line here.
FORMATS = (
    ImportFormat("nccl-tests", "log of nccl-tests or rccl-tests", nccl_tests.sniff, nccl_tests.read),
    ImportFormat("nccl-tests-json", "JSON of nccl-tests (-J)", nccl_json.sniff, nccl_json.read),
    ImportFormat("rccl-tests-json", "JSON of rccl-tests", nccl_json.sniff_rccl, nccl_json.read_rccl),
    ImportFormat("nvbandwidth", "JSON of nvbandwidth (-j)", nvbandwidth.sniff, nvbandwidth.read),
    ImportFormat("babelstream", "CSV of BabelStream (--csv)", babelstream.sniff, babelstream.read),
    ImportFormat("pytest-benchmark", "JSON of pytest-benchmark", pytest_benchmark.sniff, pytest_benchmark.read),
)
NAMES = tuple(one.name for one in FORMATS)


def read(data: bytes, source: str, given: Given, name: str | None = None) -> tuple[Imported, ...]:
    """What a file holds: one entry for each process of the tool.

    Args:
        data: the content of the file.
        source: what to call the file in a refusal.
        given: what the user tells because the file does not.
        name: of the format; the only one that recognises the file by default.

    Raises:
        BadInput: no format of that name.
        BadFile: no format understands the file, or one refuses a line of it.
    """
    if name is not None and name not in NAMES:
        raise BadInput(f"--format is {name!r}; expected one of {', '.join(NAMES)}")
    text = decode(data, source)
    chosen = next((one for one in FORMATS if one.name == name or (name is None and one.sniff(text))), None)
    if chosen is None:
        number, line = next((number, line) for number, line in lines(text) if line.strip())
        tried = ", ".join(one.title for one in FORMATS)
        refuse(source, number, line, f"no format understands this file (tried: {tried}); --format tells what it is")
    found = chosen.read(text, source, given)
    if not any(imported.readings or imported.failed for imported in found):
        raise BadFile(f"{source}: {chosen.title} without a number that could be taken")
    _refuse_idle(source, found, given)
    _refuse_impossible(source, found)
    return found


def _refuse_impossible(source: str, found: tuple[Imported, ...]) -> None:
    """Refuse times that no run file can hold."""
    for reading in (reading for imported in found for reading in imported.readings):
        if not all(SMALLEST <= seconds <= LARGEST for seconds in reading.seconds):
            took = f"{min(reading.seconds):g} to {max(reading.seconds):g} s"
            raise BadFile(f"{source}, {reading.where}: {took} a call; expected {SMALLEST:g} to {LARGEST:g}")


def _refuse_idle(source: str, found: tuple[Imported, ...], given: Given) -> None:
    """Refuse what the user tells where it is said of something else."""
    counts = {reading.devices for imported in found for reading in imported.readings}
    if given.devices is not None and counts and given.devices not in counts:
        told = " or ".join(map(str, sorted(counts)))
        raise BadFile(f"{source} has readings of {told} devices, but --devices={given.devices}; expected the same")
    if given.operation is not None and not all("ccl-tests" in imported.tool for imported in found):
        raise BadFile(f"{source} is of {found[0].tool}, which knows no collectives; expected no --operation")

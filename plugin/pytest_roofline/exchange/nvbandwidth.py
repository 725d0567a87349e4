"""Text and JSON (`-j`) of nvbandwidth. Versions 0.5 on are read: `json_output.cpp` of nvbandwidth."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from ..core.errors import BadFile
from ..core.keys import Scalar
from ..core.units import MIB, count
from ..core.work import Work
from .logs import has_line_with, read_runs
from .nvbandwidth_text import RULES, Texts
from .records import (
    BadLine,
    ImportedLog,
    MachineFacts,
    Reading,
    Tool,
    UserFacts,
    amount,
    as_record,
    from_json,
    key_of_reading,
    looks_like_json,
)

TOOL = Tool(
    "nvbandwidth",
    "the payload that arrives, counted once, also for copies within a device; for bidirectional copies only the "
    "measured direction; GB is 1e9 bytes; the median of the samples, or the mean under -m, which the file does not "
    "say; seconds are the time of 1 GB, since the file has only rates",
)
# The bytes that a reading of a rate moves, since the file does not say: 1 GB.
PAYLOAD_BYTES = 10**9
_DEVICE = re.compile(
    r"(?:Device )?\d+: (?P<name>\S.*?)(?: \([0-9a-fA-F]+(?::[0-9a-fA-F]+)*\))?(?:: \((?P<host>[^()]*)\))?"
)
_RATE = re.compile(
    r"(?P<how>(?:memcpy|multicast|local \w+) (?:CE|SM|TMA)|memcpy local)(?: local)? "
    r"(?:(?P<row>CPU|GPU)\(row\) (?P<arrow>->|<-|<->) )?(?:All G[Pp][Uu]s (?:->|<-) )?(?:GPU\(column\)|All)"
    r"(?: (?:->|<-) All G[Pp][Uu]s)?(?: (?P<part>Read1|Read2|Write1|Write2|Total))?(?: total)? bandwidth \(GB/s\)"
)
_MARKED = has_line_with(r"nvbandwidth Version: |Running (?:benchmark )?\w+_(?:ce|sm|copy)\.")
_DOCUMENT = re.compile(r'^[ \t]*\{\s*"nvbandwidth"', re.MULTILINE)
# A line that may be the last of the JSON. Lines of a job begin with a letter.
_LAST = re.compile(r"\s*(?:[^\sA-Za-z].*)?\}\s*")
_LATENCY = re.compile(
    r"(?P<how>(?:memory latency|Device to Device Latency) (?:SM|TMA)) (?P<row>CPU|GPU)\(row\) (?P<arrow><->) "
    r"GPU\(column\) \(ns\)"
)
# Test cases in which a column is one device that copies with all others; a row is no device.
_ONE_WITH_ALL = ("all_to_one", "one_to_all", "multinode_all", "multinode_broadcast")


class _Settings(Struct, kw_only=True):
    buffer_size: Annotated[int, Meta(ge=1)] | None = field(name="bufferSize", default=None)
    test_samples: Any = field(name="testSamples", default=None)
    use_mean: bool | None = field(name="useMean", default=None)


class _Case(_Settings, kw_only=True):
    name: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,99}$")]
    status: str
    bandwidth_description: str = ""
    bandwidth_matrix: tuple[tuple[str, ...], ...] | None = None
    error: str | None = None


class _Run(_Settings, kw_only=True):
    testcases: tuple[_Case, ...]
    driver: str | None = field(name="Driver Version", default=None)
    devices: tuple[str, ...] | None = field(name="GPU Device list", default=None)
    hostname: str | None = field(name="Hostname", default=None)
    version: str | None = None
    git_version: str | None = None
    runtime: Any = field(name="CUDA Runtime Version", default=None)
    error: str | None = None
    warning: str | None = None


class _NvbandwidthFile(Struct):
    nvbandwidth: _Run


@dataclass(frozen=True, slots=True)
class _Matrix:
    """The meaning of a matrix, by its description.

    `row` is CPU or GPU, None where a column is one device, alone or with all others. `part` is None where each copy has
    one row, and `Total` where it has three: both directions and their sum.
    """

    engine: str
    row: str | None
    arrow: str
    part: str | None
    latency: bool

    def ends(self, case: str, row: int, column: int) -> dict[str, Scalar]:
        """Return the ends of a copy by parameter: source and target.

        Where a column is one device, it is the only end. GPUs are numbers, the host is `cpu0`.
        """
        if self.row is None:
            if "all_to_one" in case:
                return {"target": column}
            return {"source" if "one_to_all" in case else "gpu": column}
        first = row if self.row == "GPU" else f"cpu{row}"
        backwards = self.arrow == "<-" or (
            self.arrow == "<->" and case.startswith("device_to_host")
        )
        source, target = (column, first) if backwards else (first, column)
        return {"source": source, "target": target}


def sniff(text: str) -> bool:
    """Return True if a text looks like text or JSON of nvbandwidth."""
    return (
        _MARKED(text)
        or _DOCUMENT.search(text) is not None
        or (looks_like_json(text) and '"nvbandwidth"' in text)
    )


def read(text: str, source: str, user_facts: UserFacts) -> tuple[ImportedLog, ...]:
    """Return the one run in a JSON, or the runs in a log."""
    if (looks_like_json(text) or _DOCUMENT.search(text)) and not _MARKED(text):
        document, skipped_count = _document(text)
        log = _imported(
            from_json(document, source, _NvbandwidthFile).nvbandwidth, source, user_facts
        )
        if skipped_count:
            note = f"skipped {count(skipped_count, 'line')} around the JSON"
            log = replace(log, notes=(*log.notes, note))
        return (log,)
    return read_runs(text, source, RULES, Texts, lambda texts: _of_texts(texts, source, user_facts))


def _document(text: str) -> tuple[str, int]:
    """Return the JSON in a log of a job.

    The number of lines around it follows. The lines before it become empty, so that errors name the right line.
    """
    lines = text.split("\n")
    places = range(len(lines))
    first = next((place for place in places if lines[place].lstrip().startswith("{")), 0)
    last = next((place for place in places[::-1] if _LAST.fullmatch(lines[place])), first)
    skipped_count = sum(bool(line.strip()) for line in lines[:first] + lines[last + 1 :])
    return "\n" * first + "\n".join(lines[first : last + 1]), skipped_count


def _of_texts(texts: Texts, source: str, user_facts: UserFacts) -> list[ImportedLog]:
    """Return runs that were printed as text.

    A test case without its whole matrix becomes a failed one.
    """
    texts.close()
    for document in texts:
        for case in document["testcases"]:
            if case["status"] == "Running":
                case |= {
                    "status": "Error",
                    "error": "a test case ended before its matrix was complete",
                }
    logs = [_imported(as_record(document, source, _Run), source, user_facts) for document in texts]
    if logs and texts.unnamed_count:
        remark = f"{count(texts.unnamed_count, 'test case')} waived by nvbandwidth; the text does not name them"
        logs[0] = replace(logs[0], left_out=(*logs[0].left_out, remark))
    return logs


def _imported(run: _Run, source: str, user_facts: UserFacts) -> ImportedLog:
    """Return the log of one run, with its failed and left-out test cases."""
    if run.error is not None:
        raise BadFile(f"{source}: the run ended with {run.error!r}; expected a complete run")
    products, hosts = _devices(run, source)
    readings: list[Reading] = []
    left_out: list[str] = []
    failures: list[tuple[str, str]] = []
    for case in run.testcases:
        # A test case that nvbandwidth could not run on this machine is waived.
        if case.status == "Passed":
            matrix = _matrix(case.name, case.bandwidth_description)
            if matrix is None:
                left_out.append(f"{case.name}: unknown description {case.bandwidth_description!r}")
                continue
            readings_of_case = list(
                _readings(case, matrix, run, source, user_facts.devices or len(products))
            )
            left_out += [] if readings_of_case else [f"{case.name}: every cell is N/A"]
            readings += readings_of_case
        elif case.status.upper() == "ERROR":
            failures.append((f"nvbandwidth.{case.name}", case.error or "the test case failed"))
        elif case.status == "Waived":
            left_out.append(f"{case.name}: waived by nvbandwidth, so it was not measured")
        else:
            raise BadFile(
                f"{source}: {case.name} has status {case.status!r}; expected Passed, Waived or Error"
            )
    return ImportedLog(
        source=source,
        tool=TOOL,
        readings=tuple(readings),
        machine=MachineFacts(
            product=products[0] if products else None,
            host=hosts[0] if hosts else None,
            hosts=tuple(hosts) if len(set(hosts)) > 1 else (),
            driver=run.driver,
            software=_software(run),
        ),
        left_out=tuple(left_out),
        failed=tuple(failures),
        notes=tuple(_notes(run)),
    )


def _notes(run: _Run) -> Iterator[str]:
    """Yield the warning of nvbandwidth, and a note on an unknown buffer size."""
    if run.warning is not None:
        yield run.warning
    if run.buffer_size is None and any(case.buffer_size is None for case in run.testcases):
        yield "the buffer size (-b) is not in this file, so the key lacks the size; compare only runs of equal size"


def _devices(run: _Run, source: str) -> tuple[list[str], list[str]]:
    """Return the product and the host of every device.

    The list of devices is null in some versions. Without hosts in it, the one host of the run is returned. Raise
    BadFile for several products.
    """
    matches = [_DEVICE.fullmatch(text) for text in run.devices or ()]
    products = [match["name"] for match in matches if match is not None]
    if len(products) < len(matches) or len(set(products)) > 1:
        raise BadFile(
            f"{source}: its devices are {', '.join(run.devices or ())}; expected one product"
        )
    hosts = [match["host"] for match in matches if match is not None and match["host"]]
    return products, hosts or ([run.hostname] if run.hostname is not None else [])


def _software(run: _Run) -> dict[str, str]:
    """Return versions and settings by name, without unknown ones."""
    values = {
        "nvbandwidth": run.version,
        "CUDA runtime": run.runtime,
        "nvbandwidth commit": run.git_version,
        "bufferSize": run.buffer_size,
        "testSamples": run.test_samples,
        "useMean": run.use_mean,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def _readings(
    case: _Case, matrix: _Matrix, run: _Run, source: str, devices: int
) -> Iterator[Reading]:
    """Yield a reading for each number in a test case's matrix.

    `matrix` is the meaning of its rows and columns. Raise BadFile if its rows do not fit its description.
    """
    rows = case.bandwidth_matrix or ()
    if not rows or len({len(row) for row in rows}) != 1 or not rows[0]:
        raise BadFile(f"{source}: the matrix of {case.name} has rows of several lengths, or none")
    # With parts the matrix has three blocks of rows: each direction, and their sum.
    parts = ("",) if matrix.part is None else ("1", "2", "sum")
    if (matrix.part is not None and matrix.part != "Total") or len(rows) % len(parts):
        raise BadFile(
            f"{source}: the matrix of {case.name} does not have the three rows of its description"
        )
    part_row_count = len(rows) // len(parts)
    for index, row in enumerate(rows):
        for column, text in enumerate(row):
            if value := _value(text, case, source):
                where = f"{case.name}[{index}][{column}]"
                yield _reading(
                    case,
                    run,
                    matrix,
                    part=parts[index // part_row_count],
                    cell=(index % part_row_count, column),
                    value=value,
                    where=where,
                    devices=devices,
                )


def _matrix(name: str, text: str) -> _Matrix | None:
    """Return the meaning of a matrix; None for an unknown description.

    `name` is that of the test case, `text` its description.
    """
    # Version 0.5 has a blank at the end.
    text = text.strip()
    match = _RATE.fullmatch(text) or _LATENCY.fullmatch(text)
    if match is None:
        return None
    groups, latency = match.groupdict(), match.re is _LATENCY
    how = groups["how"]
    # Without such a name, copy engines move the bytes.
    engine = "ce"
    if "SM" in how:
        engine = "sm"
    elif "TMA" in how:
        engine = "tma"
    row = None if name.startswith(_ONE_WITH_ALL) else groups["row"]
    return _Matrix(engine, row, groups["arrow"] or "", groups.get("part"), latency)


def _value(text: str, case: _Case, source: str) -> float:
    """Return the number in a cell.

    It is 0 for N/A, as between a device and itself.
    """
    try:
        return 0.0 if text == "N/A" else amount(text)
    except BadLine as error:
        raise BadFile(f"{source}: {error} in the matrix of {case.name}") from None


def _reading(
    case: _Case,
    run: _Run,
    matrix: _Matrix,
    part: str,
    cell: tuple[int, int],
    value: float,
    where: str,
    devices: int,
) -> Reading:
    """Return one cell of a matrix as a reading.

    `part` is the direction of a two-way copy, `cell` its row and column, `value` in GB/s or ns; `devices` is the number
    of all devices.
    """
    parameters = matrix.ends(case.name, *cell)
    if buffer := case.buffer_size or run.buffer_size:
        parameters["size_bytes"] = buffer * MIB
    if part:
        parameters["direction"] = part
    statistic = "median_or_mean"
    uses_mean = run.use_mean if case.use_mean is None else case.use_mean
    if uses_mean is not None:
        statistic = "mean" if uses_mean else "median"
    counting = "bidir_per_dir_" if "bidirectional" in case.name else ""
    if part == "sum":
        counting = "bidir_sum_"
    # A copy within one device uses no link, so no bytes go over the wire.
    is_host_row, is_local = matrix.row == "CPU", "local" in case.name
    if matrix.row == "GPU":
        # Such a row is one GPU, and a column another.
        devices = 2
    elif is_host_row or is_local:
        devices = 1
    work = Work(payload_bytes=PAYLOAD_BYTES, wire_bytes=0 if is_local else PAYLOAD_BYTES)
    return Reading(
        key=key_of_reading(
            f"nvbandwidth.{case.name}",
            parameters,
            "time_s" if matrix.latency else f"{counting}{matrix.engine}_payload_GBps",
            statistic,
            "device",
        ),
        work=Work(calls=1) if matrix.latency else work,
        seconds=(value * 1e-9 if matrix.latency else 1 / value,),
        where=where,
        mode="events",
        devices=devices or 1,
    )

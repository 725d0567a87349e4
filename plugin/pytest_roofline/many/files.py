"""One file among thousands: the few fields of a run file, or of another tool's log, that are judged.

A run file is decoded straight into these fields; unknown ones are skipped. Where that fails, the careful reader of
`baselines.runs` says why.
"""

import functools
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Union

import msgspec

from ..baselines.fitness import Fitness, drill_of, not_passed_of, spoiled_reasons_of
from ..baselines.picking import IMPORT
from ..baselines.run_files import SUFFIX
from ..baselines.runs import LINE_TYPES, encode_line, read_run
from ..baselines.test_texts import MeasuredRow, RunFile, environment_of, hosts_text, text_of_test
from ..core.errors import BadFile
from ..core.features import require
from ..core.keys import Key
from ..core.records import SCHEMA, Outcome
from ..core.samples import CANARY, Mode, achieved_of
from ..core.work import Work
from ..figures.plan import RECOGNISED, ReadPlan


@dataclass(frozen=True, slots=True)
class Test:
    """A test: all measurements of it may be compared with each other.

    Args:
        achieved: the mode in which it was timed.
        placed: whether its measurements name the device that they are of.
    """

    key: Key
    work: Work
    achieved: tuple[str, ...]
    label: str
    placed: bool = False

    @property
    def hardware(self) -> str:
        """The hardware, as one device."""
        return str(self.key.hardware.alone)

    @property
    def several(self) -> bool:
        """True if it used more than one device."""
        return (self.key.hardware.devices or 1) > 1


class _NarrowHeader(msgspec.Struct, tag="header", gc=False):
    run_id: str
    started: str
    command: tuple[str, ...]
    tool: str
    environment: msgspec.Raw
    schema: Literal[SCHEMA]  # type: ignore[valid-type]


class _NarrowSamples(msgspec.Struct, gc=False):
    labels: tuple[str, ...] = ()
    mode: Mode = "host"


class _NarrowRanks(msgspec.Struct, gc=False):
    hosts: tuple[str, ...] = ()


class _NarrowRates(msgspec.Struct, gc=False):
    median_s: Annotated[float, msgspec.Meta(gt=0)]


class _NarrowMeasurement(msgspec.Struct, tag="measurement", gc=False):
    key: msgspec.Raw
    test_id: str
    process: str
    work: msgspec.Raw
    samples: _NarrowSamples
    derived: _NarrowRates
    invalid: str = ""
    ranks: _NarrowRanks | None = None
    device: str = ""
    siblings_busy: str = ""


class _NarrowOutcome(msgspec.Struct, tag="outcome", gc=False):
    test_id: str
    outcome: Literal["passed", "failed", "skipped"]
    verdicts: tuple[str, ...] = ()
    reason: str = ""
    by_verdict: bool = False


# Lines of other kinds have no field that is read here.
_SKIPPED = tuple(
    msgspec.defstruct(f"_Skipped_{name}", [], tag=name)
    for name in LINE_TYPES
    if name not in ("header", "measurement", "outcome")
)
_DECODER = msgspec.json.Decoder(
    Union[(_NarrowHeader, _NarrowMeasurement, _NarrowOutcome, *_SKIPPED)]
)


def read_files(paths: Sequence[str], host: str = "", plan: ReadPlan = RECOGNISED) -> list[RunFile]:
    """Return the runs in files: run files, and logs of other tools.

    Args:
        host: the node of logs that name none, or a pattern of their paths: `{node}/*.log`.
        plan: how the figures in logs are read; without a reader their form is recognised.

    Raises:
        BadInput: there are logs, and the feature that reads them was taken out.
    """
    return [file for path in paths for file in _read_usable(path, host, plan)]


def _read_usable(path: str, host: str, plan: ReadPlan) -> Iterator[RunFile]:
    """Yield the runs in a file. One that cannot be used is `broken`."""
    try:
        if path.endswith(SUFFIX):
            yield read_run_file(path)
        else:
            yield from _read_log(path, host, plan)
    except BadFile as error:
        yield RunFile(path, str(error))


def _read_log(path: str, host: str, plan: ReadPlan) -> Iterator[RunFile]:
    """Yield the runs in a log of another tool.

    There is one for each of its nodes.
    """
    require("exchange")
    from ..exchange.log_rows import read_log_rows

    for run in read_log_rows(path, host, plan):
        if isinstance(run, RunFile):
            yield run
        else:
            yield parse_run("".join(map(encode_line, run)).encode(), path)


def read_run_file(path: str) -> RunFile:
    """Return the contents of a run file. Raise BadFile if it cannot be used."""
    # A missing file or a pipe has no content here; the careful reader below refuses it with the reason.
    content = b""
    try:
        if os.path.isfile(path):  # noqa: PTH113
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123
                content = file.read()
        return parse_run(content, path)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # `read_run`, the careful reader, refuses the file, or finds that its last line was cut.
        cut = read_run(Path(path)).cut
    whole = content[: content.rfind(b"\n") + 1] if cut else content
    try:
        return replace(parse_run(whole, path), cut=cut)
    except msgspec.MsgspecError as error:
        raise BadFile(f"run file {path}: {error}") from None


def parse_run(content: bytes, path: str) -> RunFile:
    """Return the contents of a run file from its bytes. `path` only names it.

    Measurements count even if their test failed because it is slower: that is what is searched for.

    Raises:
        MsgspecError: it is no run file of this version, or its last line was cut.
    """
    header, *lines = _DECODER.decode_lines(content) or [None]
    measurements, outcomes = [], []
    for line in lines:
        if isinstance(line, _NarrowMeasurement):
            measurements.append(line)
        elif isinstance(line, _NarrowOutcome):
            outcomes.append(line)
        elif isinstance(line, _NarrowHeader):
            header = None
    if not isinstance(header, _NarrowHeader):
        raise msgspec.ValidationError("expected a header, in the first line alone")
    not_passed = not_passed_of(
        [
            Outcome(line.test_id, line.outcome, line.verdicts, line.reason, line.by_verdict)
            for line in outcomes
            if line.outcome != "passed"
        ]
    )
    ended = {line.test_id for line in outcomes}
    environment = bytes(header.environment).decode()
    # An environment that cannot be read makes the file unusable.
    environment_of(environment)
    return RunFile(
        path,
        run_id=header.run_id,
        started=header.started,
        tool=header.tool,
        environment=environment,
        imported=header.command[:2] == IMPORT,
        rows=_rows(measurements, Fitness(drill_of(header.command), ended, not_passed)),
        unmeasured=_missing_reason(measurements, not_passed),
    )


def _rows(measurements: Sequence[_NarrowMeasurement], fitness: Fitness) -> list[MeasuredRow]:
    """Return the rows of a run's measurements, without canaries.

    A measurement is also unfit if others of its test were spoiled, for the reason of these.
    """
    # By the key of the test.
    spoiled_reasons = {}
    if any(line.invalid for line in measurements):
        spoiled_reasons = spoiled_reasons_of(
            [(str(bytes(line.key)), line.process, line.invalid) for line in measurements]
        )
    rows = []
    for line in measurements:
        # A canary measures the machine and is of no test.
        labels = line.samples.labels
        if CANARY in labels:
            continue
        key = bytes(line.key)
        spoiled_reason = spoiled_reasons.get(str(key), "") if spoiled_reasons else ""
        test = _decoded_test(key, bytes(line.work), labels, line.samples.mode, bool(line.device))
        unfit_reason = fitness.unfit(
            line.test_id,
            labels,
            invalid=line.invalid or spoiled_reason,
            siblings_busy=line.siblings_busy,
            accept_slower=True,
        )
        hosts = hosts_text(line.ranks.hosts) if line.ranks is not None else ""
        rows.append((test, unfit_reason, hosts, line.device, line.derived.median_s))
    return rows


def _missing_reason(
    measurements: Sequence[_NarrowMeasurement], not_passed: dict[str, Outcome]
) -> str:
    """Return why the first failed test left no measurement; empty where each has one."""
    measured_ids = {line.test_id for line in measurements} if not_passed else set()
    reasons = (
        outcome.reason for test_id, outcome in not_passed.items() if test_id not in measured_ids
    )
    return next((reason for reason in reasons if reason), "")


@functools.lru_cache(maxsize=2**16)
def _decoded_test(
    key: bytes, work: bytes, labels: tuple[str, ...], mode: Mode, placed: bool
) -> str:
    """Return the test of a measurement, as a text.

    Its key and work are given as JSON. `placed` is true if the measurement names its device.
    """
    return text_of_test(
        msgspec.json.decode(key, type=Key),
        msgspec.json.decode(work, type=Work),
        achieved_of(labels, mode),
        placed,
    )


@functools.lru_cache(maxsize=2**16)
def parse_test(text: str) -> Test:
    """Return a test from its JSON, which `text_of_test` wrote."""
    return msgspec.json.decode(text, type=Test)


@functools.lru_cache(maxsize=2**12)
def is_over_several(hosts: str) -> bool:
    """Return True for ranks on several hosts, from the JSON of these."""
    return bool(hosts) and len(json.loads(hosts)) > 1

"""One run file among thousands: the few of its fields that are judged.

A run file is decoded straight into these fields; unknown ones are skipped. Where that fails, the careful reader of
`baselines.runs` says why.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Union

import msgspec

from ..baselines.fitness import Fitness, drill_of, not_passed_of, spoiled_reasons_of
from ..baselines.picking import IMPORT
from ..baselines.runs import LINE_TYPES, read_run
from ..core.errors import BadFile
from ..core.facts import Environment
from ..core.keys import Key
from ..core.records import SCHEMA, Outcome
from ..core.samples import CANARY, Mode, achieved_of
from ..core.work import Work

# `test` (JSON), `unfit`, `hosts` (JSON), `device` and seconds per call: the median of a process.
MeasuredRow = tuple[str, str, str, str, float]


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


@dataclass(frozen=True, slots=True)
class RunFile:
    """The contents of one run: a row for each measurement.

    Args:
        broken: why the file cannot be used; then the other fields are empty.
        environment: the JSON of its environment.
        cut: whether the file ends in the middle of a line.
        rows: a `MeasuredRow` for each measurement.
        unmeasured: why a test left no measurement, the first of them; empty where each has one.
    """

    path: str
    broken: str = ""
    run_id: str = ""
    started: str = ""
    tool: str = ""
    environment: str = ""
    cut: bool = False
    imported: bool = False
    rows: Sequence[MeasuredRow] = ()
    unmeasured: str = ""


class _Header(msgspec.Struct, tag="header"):
    run_id: str
    started: str
    command: tuple[str, ...]
    tool: str
    environment: msgspec.Raw
    schema: Literal[SCHEMA]  # type: ignore[valid-type]


class _Samples(msgspec.Struct):
    labels: tuple[str, ...] = ()
    mode: Mode = "host"


class _Ranks(msgspec.Struct):
    hosts: tuple[str, ...] = ()


class _Derived(msgspec.Struct):
    median_s: Annotated[float, msgspec.Meta(gt=0)]


class _Measurement(msgspec.Struct, tag="measurement"):
    key: msgspec.Raw
    test_id: str
    process: str
    work: msgspec.Raw
    samples: _Samples
    derived: _Derived
    invalid: str = ""
    ranks: _Ranks | None = None
    device: str = ""
    siblings_busy: str = ""


class _Outcome(msgspec.Struct, tag="outcome"):
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
_DECODER = msgspec.json.Decoder(Union[(_Header, _Measurement, _Outcome, *_SKIPPED)])


def read_files(paths: Sequence[str]) -> list[RunFile]:
    """Return the contents of run files. One that cannot be used is `broken`."""
    return list(map(_read_usable, paths))


def _read_usable(path: str) -> RunFile:
    """Return the contents of a run file, `broken` if it cannot be used."""
    try:
        return read_run_file(path)
    except BadFile as error:
        return RunFile(path, str(error))


def read_run_file(path: str) -> RunFile:
    """Return the contents of a run file. Raise BadFile if it cannot be used."""
    content = Path(path).read_bytes() if Path(path).is_file() else b""
    try:
        return parse_run(content, path)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # The careful reader refuses the file, or finds that its last line was cut.
        cut = read_run(Path(path)).cut
    whole = content[: content.rfind(b"\n") + 1] if cut else content
    try:
        return replace(parse_run(whole, path), cut=cut)
    except msgspec.MsgspecError as error:
        raise BadFile(f"run file {path}: {error}") from None


def parse_run(content: bytes, path: str) -> RunFile:
    """Return the contents of a run file from its bytes.

    Measurements count even if their test failed because it is slower: that is what is searched for.

    Raises:
        MsgspecError: it is no run file of this version, or its last line was cut.
    """
    header, *lines = _DECODER.decode_lines(content) or [None]
    if not isinstance(header, _Header) or any(isinstance(line, _Header) for line in lines):
        raise msgspec.ValidationError("expected a header, in the first line alone")
    measurements = [line for line in lines if isinstance(line, _Measurement)]
    outcomes = [line for line in lines if isinstance(line, _Outcome)]
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


def _rows(measurements: Sequence[_Measurement], fitness: Fitness) -> list[MeasuredRow]:
    """Return the rows of a run's measurements, without canaries."""
    spoiled_reasons = {}
    if any(line.invalid for line in measurements):
        spoiled_reasons = spoiled_reasons_of(
            [(str(bytes(line.key)), line.process, line.invalid) for line in measurements]
        )
    rows = []
    for line in measurements:
        labels = line.samples.labels
        if CANARY in labels:
            continue
        key = bytes(line.key)
        spoiled = spoiled_reasons.get(str(key), "") if spoiled_reasons else ""
        rows.append(
            (
                _decoded_test(key, bytes(line.work), labels, line.samples.mode, bool(line.device)),
                fitness.unfit(
                    line.test_id,
                    labels,
                    invalid=line.invalid or spoiled,
                    siblings_busy=line.siblings_busy,
                    accept_slower=True,
                ),
                hosts_text(line.ranks.hosts) if line.ranks is not None else "",
                line.device,
                line.derived.median_s,
            )
        )
    return rows


def _missing_reason(measurements: Sequence[_Measurement], not_passed: dict[str, Outcome]) -> str:
    """Return why a failed test left no measurement; empty where each has one."""
    measured_ids = {line.test_id for line in measurements} if not_passed else set()
    reasons = (
        outcome.reason for test_id, outcome in not_passed.items() if test_id not in measured_ids
    )
    return next((reason for reason in reasons if reason), "")


@functools.lru_cache(maxsize=2**16)
def _decoded_test(
    key: bytes, work: bytes, labels: tuple[str, ...], mode: Mode, placed: bool
) -> str:
    """Return the test of a measurement from the JSON of its key and work."""
    return text_of_test(
        msgspec.json.decode(key, type=Key),
        msgspec.json.decode(work, type=Work),
        achieved_of(labels, mode),
        placed,
    )


def text_of_test(key: Key, work: Work, achieved: tuple[str, ...], placed: bool) -> str:
    """Return a test as JSON, which `parse_test` reads. Equal tests have equal texts."""
    parts = {
        "key": key.identity,
        # The identity has its parameters sorted, but a label shows them in the order of the test's id.
        "label": json.dumps(key.label),
        "work": msgspec.json.encode(work).decode(),
        "achieved": json.dumps(achieved),
        "placed": json.dumps(placed),
    }
    return "{" + ",".join(f'"{name}":{text}' for name, text in parts.items()) + "}"


@functools.lru_cache(maxsize=2**16)
def parse_test(text: str) -> Test:
    """Return a test from its JSON, which `text_of_test` wrote."""
    return msgspec.json.decode(text, type=Test)


@functools.lru_cache(maxsize=2**12)
def environment_of(text: str) -> Environment:
    """Return an environment from its JSON. Unknown facts are skipped."""
    return msgspec.json.decode(text, type=Environment)


def hosts_text(hosts: Sequence[str]) -> str:
    """Return the hosts of ranks as JSON, which `is_over_several` reads."""
    return json.dumps(sorted(set(hosts)))


@functools.lru_cache(maxsize=2**12)
def is_over_several(hosts: str) -> bool:
    """Return True for ranks on several hosts, from the JSON of these."""
    return bool(hosts) and len(json.loads(hosts)) > 1

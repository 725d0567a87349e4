"""The entries of a baseline, recorded or published."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from .amounts import Amount, Count, KernelFigures, Magnitude, ProcessMedians, Tolerance
from .directions import is_own_figure
from .errors import BadInput, refuse_wide, require_positive
from .facts import HardwareKey
from .keys import JOB_METRIC, Cache, Key, Scalar, Timing, canonical, is_canary, label_of
from .records import SCHEMA
from .resources import ResourceKey
from .work import RATE_UNITS, Work, rate_suffix

Kind = Literal["measured", "threshold", "floor", "reference"]
# How a published figure sums up repeated calls; "best" is the fastest call. This package itself takes the median.
Statistic = Literal["median", "mean", "best"]
OUT_OF_MEMORY = "out of memory"
# The unit of a floor: a share of the peak in the datasheet of the measured device.
SHARE = "share"
# The most memory that one call holds, in bytes.
PEAK_METRIC = "peak_bytes"
# By kind the fields that an entry needs, and those that only entries of other kinds have.
_PUBLISHED = ("value", "unit", "convention", "source", "confidence")
_NEEDED: dict[Kind, tuple[str, ...]] = {
    "measured": ("cache", "timing", "work", "sessions"),
    "threshold": _PUBLISHED,
    "reference": _PUBLISHED,
    "floor": ("value", "source"),
}
_OF_MEASURED = ("sessions", "anchor", "renewals", "peak_bytes")
_OF_FLOORS = ("figures", "from_amount")
_FOREIGN: dict[Kind, tuple[str, ...]] = {
    "measured": ("value", "statistic", "note", "implausible", *_OF_FLOORS),
    "threshold": (*_OF_MEASURED, *_OF_FLOORS),
    "reference": (*_OF_MEASURED, *_OF_FLOORS),
    "floor": _OF_MEASURED,
}
_UNITS = {"time_s": "s", JOB_METRIC: "s", PEAK_METRIC: "B", "TFLOPS": "TFLOP/s"}


@dataclass(frozen=True, slots=True)
class Session:
    """One recorded run as a baseline holds it.

    `process_medians` holds the median of every process, in seconds per call. `achieved` names what
    was measured in place of the request (`host_bound`): see `Samples.achieved`. `clock_hz` is the
    device's clock while it was measured, in cycles per second; None where no probe ran.
    """

    run_id: str
    started: str
    process_medians: ProcessMedians
    device_uuid: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    achieved: tuple[str, ...] = ()
    clock_hz: Magnitude | None = None


@dataclass(frozen=True, slots=True)
class Renewal:
    """One approval that renewed an entry by new sessions.

    Args:
        sessions: the number of new sessions.
        change: by how much they differ from the entry's earlier sessions, as a share of time.
        drift: by how much they differ from the entry's anchor, as a share of time.
        accepted_slower: whether a drift beyond the tolerance was accepted, so that they are the new anchor.
        reason: why a slower time, or one with more memory, was accepted in a recording.
    """

    approved: str
    sessions: int
    change: float
    drift: float
    accepted_slower: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CollectedTest:
    """The test that recorded an entry last. All fields are empty if no test of pytest did.

    Args:
        id: its node id.
        tier: `quick`, `nightly` or `full`.
        marks: the keyword arguments of its markers by their name.
    """

    id: str = ""
    tier: str = ""
    marks: dict[str, tuple[dict[str, Scalar], ...]] = field(default_factory=dict)


NO_TEST = CollectedTest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a baseline: one measurement on one hardware.

    A `measured` entry has sessions, in seconds. A `threshold` or `reference` entry has a value in the unit of its
    metric, with its source. A `floor` has the least share of the datasheet's peak that a healthy device reaches. If an
    entry is not `measured`, an omitted part of its key means any.

    Args:
        statistic: of a published figure, how it sums up repeated calls; None where its source does not say.
        note: of a published figure, what a reader must know beside it, such as why a limit does not gate here.
        implausible: why a published figure cannot be what it is said to be; it is shown, and never as a target.
        figures: of a floor, how many independent sources of measured figures it rests on.
        from_amount: of a floor, how much of what its metric counts (bytes, FLOP) a call must do for it to apply.
        reason: why this site lowers or drops a floor (value 0), or allows a wide tolerance.
        anchor: of a measured entry, the sessions that its renewals are held against; empty where they are its oldest.
        renewals: of a measured entry, the newest of them, oldest first: see `baselines.renewal`.
        peak_bytes: of a measured entry, the most memory that one call holds; None where it was not measured.
        called: of a measured entry, its test's own name; empty if benchmark and parameters make the same name.
        test: of a measured entry, the test that measured it last.
    """

    benchmark: str
    metric: str
    kind: Kind
    hardware: HardwareKey = field(default_factory=HardwareKey)
    name: str = ""
    parameters: dict[str, Scalar] = field(default_factory=dict)
    cache: Cache | None = None
    timing: Timing | None = None
    work: Work | None = None
    tolerance: Tolerance | None = None
    provenance: dict[str, str] = field(default_factory=dict)
    sessions: tuple[Session, ...] = ()
    value: float | tuple[float, float] | Literal["out of memory"] | None = None
    unit: str | None = None
    convention: str | None = None
    source: str | None = None
    confidence: Literal["high", "medium", "low", "recalled"] | None = None
    statistic: Statistic | None = None
    note: str = ""
    implausible: str = ""
    figures: int | None = None
    from_amount: Count | None = None
    reason: str = ""
    anchor: tuple[Session, ...] = ()
    renewals: tuple[Renewal, ...] = ()
    peak_bytes: Amount | None = None
    called: str = ""
    test: CollectedTest = NO_TEST

    def __post_init__(self) -> None:
        """Raise BadInput for a wide tolerance without a reason, or fields of another kind of entry."""
        refuse_wide(
            self.tolerance,
            is_deliberate=bool(self.reason.strip()),
            remedy="give the reason in the entry's `reason`",
        )
        missing = [name for name in _NEEDED[self.kind] if getattr(self, name) in (None, ())]
        if missing:
            raise BadInput(f"a {self.kind} entry lacks {', '.join(missing)}")
        foreign = [
            name for name in _FOREIGN[self.kind] if getattr(self, name) not in (None, (), "")
        ]
        if foreign:
            raise BadInput(
                f"a {self.kind} entry has {', '.join(foreign)}; only entries of another kind may have these fields"
            )
        if self.kind == "floor":
            self._check_floor()
        elif self.kind != "measured":
            self._check_published()
        elif not self.hardware.complete:
            raise BadInput(
                f"a measured entry names only a part of its hardware ({self.hardware}); expected every field"
            )

    @property
    def newest_session(self) -> Session:
        """The session of a measured entry that began last."""
        return max(self.sessions, key=lambda session: session.started)

    def _check_published(self) -> None:
        """Raise BadInput unless a published value fits its unit.

        A range has the smaller number first, and the unit is that of the metric. A threshold must also be a rate or a
        time, since only these can gate.
        """
        if isinstance(self.value, tuple):
            smaller, larger = self.value
            # The smaller number of a range may be 0, as of "less than 100 GB/s".
            require_positive((larger,) if smaller == 0 else self.value, "value")
            if smaller > larger:
                raise BadInput(
                    f"value is the range {self.value}; expected the smaller number first"
                )
        elif isinstance(self.value, float | int):
            require_positive((self.value,), "value")
        self._check_unit()
        if (
            self.kind == "threshold"
            and rate_suffix(self.metric) is None
            and self.metric != "time_s"
        ):
            raise BadInput(
                f"metric of a threshold is {self.metric!r}; expected a rate ({', '.join(RATE_UNITS)}) or time_s"
            )

    def _check_floor(self) -> None:
        """Raise BadInput unless a floor is a share of a peak.

        It needs measured figures behind it, or a reason. `figures` is the number of published figures on which the
        floor rests.
        """
        if (
            self.unit != SHARE
            or not isinstance(self.value, float | int)
            or not 0 <= self.value <= 1
        ):
            raise BadInput(
                f"a floor is {self.value!r} {self.unit}; expected a share of the peak from 0 to 1, unit {SHARE!r}"
            )
        if rate_suffix(self.metric) is None:
            raise BadInput(
                f"metric of a floor is {self.metric!r}; expected a rate ({', '.join(RATE_UNITS)})"
            )
        if not self.reason and (self.value == 0 or self.figures is None or self.figures < 1):
            raise BadInput(
                f"a floor of {self.value!r} rests on {self.figures or 0} published figures; expected at least one, "
                "or the reason why this site lowers or removes the floor"
            )

    def _check_unit(self) -> None:
        """Raise BadInput if the unit is not the metric's. A limit of 3 ms must not gate at 3 s."""
        suffix = self.metric if self.metric in _UNITS else rate_suffix(self.metric)
        # Every rate that `_UNITS` does not list is in GB/s. A metric without a known unit may have any.
        expected = None if suffix is None else _UNITS.get(suffix, "GB/s")
        if expected is not None and self.unit != expected:
            raise BadInput(
                f"unit is {self.unit!r} with the metric {self.metric!r}; expected {expected!r}"
            )

    @property
    def is_canary(self) -> bool:
        """True for a measurement of the machine, not of a test."""
        return is_canary(self.benchmark, self.name)

    @property
    def gates(self) -> bool:
        """True if a lower result may fail a test.

        A floor gates unless it is 0; a threshold gates if it is a number from a trusted source.
        """
        if self.kind == "floor":
            return bool(self.value)
        is_trusted = self.confidence in ("high", "medium") and not self.implausible
        return self.kind == "threshold" and isinstance(self.value, float | int) and is_trusted

    @property
    def identity(self) -> str:
        """The entry's key as one string, which only duplicates share.

        Published figures from different sources are different entries.
        """
        key = (
            self.benchmark,
            self.name,
            self.parameters,
            self.metric,
            self.kind,
            asdict(self.hardware),
        )
        # A floor of this site takes the place of the same floor from elsewhere, so its source is no part of the key.
        parts: list[object] = [
            *key,
            self.cache,
            self.timing,
            None if self.kind in ("measured", "floor") else self.source,
        ]
        # A source may state two figures under one key, whose conditions are only in their notes.
        if self.kind != "floor":
            parts += [part for part in (self.statistic, self.note) if part]
        return json.dumps(parts, sort_keys=True, separators=(",", ":"))

    def matches(self, key: Key) -> bool:
        """Return True if this entry is about the measurement with `key`.

        A measured entry must have the same key. A published one may leave open parts of its key.
        """
        if (self.benchmark, self.name) != (key.benchmark, key.name) or not self.hardware.covers(
            key.hardware
        ):
            return False
        if self.kind == "measured":
            own_key = (canonical(self.parameters), self.metric, self.cache, self.timing)
            return own_key == (canonical(key.parameters), key.metric, key.cache, key.timing)
        return (
            self._counts_metric(key)
            and self.agrees_with(key.parameters)
            and self.cache in (None, key.cache)
            and self.timing in (None, key.timing)
        )

    def _counts_metric(self, key: Key) -> bool:
        """Return True if a published entry counts a measurement's metric.

        The name of a metric may begin with a type: an entry of `TFLOPS` counts `bf16_TFLOPS`. Entries on time or memory
        count for every metric of a call, but not for the time of a whole program, or a figure of its own.
        """
        # `JOB_METRIC` is the time of a whole program, not of a call.
        if key.metric == JOB_METRIC or is_own_figure(key.metric):
            return self.metric == key.metric
        return self.metric in (key.metric, rate_suffix(key.metric), "time_s", PEAK_METRIC)

    def agrees_with(self, parameters: Mapping[str, object]) -> bool:
        """Return True if each of this entry's parameters has the same value in `parameters`.

        Parameters that the entry omits may have any value. 64 and 64.0 are equal, 1 and True are not.
        """
        return all(
            name in parameters
            and parameters[name] == value
            and isinstance(parameters[name], bool) == isinstance(value, bool)
            for name, value in self.parameters.items()
        )

    @property
    def label(self) -> str:
        """The entry as people call it: `memcpy_d2d[64MiB]`."""
        return self.called or label_of(self.benchmark, self.parameters, self.name)

    @property
    def medians(self) -> tuple[float, ...]:
        """Every process's median, in seconds per call, over all sessions."""
        return tuple(value for session in self.sessions for value in session.process_medians)


@dataclass(frozen=True, slots=True)
class ExactEntry:
    """The resources that one compiled kernel must use exactly.

    See `core.resources.Resources` for the fields.

    `test` is the test that compiled it last.
    """

    benchmark: str
    target: str
    figures: KernelFigures
    name: str = ""
    parameters: dict[str, Scalar] = field(default_factory=dict)
    options: dict[str, Scalar] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    compiler: dict[str, str] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)
    called: str = ""
    test: CollectedTest = NO_TEST

    @property
    def key(self) -> ResourceKey:
        """The key of its compiled kernel."""
        return ResourceKey(self.benchmark, self.parameters, self.target, self.name)

    @property
    def identity(self) -> str:
        """The key as one string, which only duplicates share."""
        return self.key.identity

    @property
    def label(self) -> str:
        """The entry as people call it: `flash_forward[sm_90-64]`."""
        return self.called or self.key.label


# The family, and so the file, of all exact entries.
RESOURCES = "resources"


@dataclass(frozen=True, slots=True)
class Baseline:
    """One baseline file.

    It holds the entries of one hardware family, or the exact entries of all targets.
    """

    family: str
    entries: tuple[Entry, ...]
    schema: int = SCHEMA
    exact: tuple[ExactEntry, ...] = ()

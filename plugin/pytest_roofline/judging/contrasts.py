"""One run's tests in pairs that differ in one parameter: what a precision, a back end or a compiler makes of each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ..core.errors import BadInput
from ..core.facts import HardwareKey
from ..core.keys import Scalar, canonical
from ..core.records import Measurement
from .hardware import key_of
from .runs import Run

# Why a side has a time, or none; an unsound one says more.
MEASURED, NOT_THERE, OUT_OF_MEMORY, UNSOUND = "measured", "not there", "out of memory", "not sound"


@dataclass(frozen=True, slots=True)
class Side:
    """What the runs know of one test of a pair.

    Args:
        seconds: the median over its sound processes; None where there is none.
        words: `MEASURED`, or why there is no time.
    """

    seconds: float | None
    words: str

    @property
    def unsound(self) -> bool:
        """Whether there are times, and none may be trusted."""
        return self.words.startswith(UNSOUND)


@dataclass(frozen=True, slots=True)
class Contrast:
    """One test on both sides.

    Args:
        benchmark: of both.
        parameters: all but the one that differs.
        name: of the measurement within its test.
        base: the side to compare with.
        other: the side that is compared.
        hardware: of both.
        cache: policy of both; empty where both ran out of memory, as the timing is.
        timing: of both.
    """

    benchmark: str
    parameters: dict[str, Scalar]
    name: str
    base: Side
    other: Side
    hardware: HardwareKey
    cache: str = ""
    timing: str = ""

    @property
    def difference_s(self) -> float | None:
        """Seconds that the other side takes more; negative where it is faster."""
        if self.base.seconds is None or self.other.seconds is None:
            return None
        return self.other.seconds - self.base.seconds

    @property
    def change(self) -> float | None:
        """The difference as a share of the base's time."""
        difference_s = self.difference_s
        return None if difference_s is None or self.base.seconds is None else difference_s / self.base.seconds


def contrasts(runs: Sequence[Run], parameter: str, base: str, other: str) -> list[Contrast]:
    """Every test of the runs that has a twin which differs in `parameter` alone, in the order of the runs.

    Those where both sides ran out of memory stand last.

    Times that must not be trusted do not count. The rate's name may differ, since it may carry the parameter
    (`bf16_TFLOPS`); hardware, cache policy and timing may not.

    Args:
        runs: one or several.
        parameter: the one that differs.
        base: its value on the side to compare with, as it stands in ids.
        other: its value on the side that is compared.

    Raises:
        BadInput: the values are one, no test has the parameter, or none has one of the two values.
    """
    if base == other:
        raise BadInput(f"both sides are {parameter}={base}; expected two values that differ")
    _check(runs, parameter, (base, other))
    twins: dict[tuple[str, ...], list[_Found]] = {}
    for found in _all_found(runs, parameter):
        if found.value in (base, other):
            twins.setdefault(_common(found, parameter), []).append(found)
    losses = [lost for lost in _losses(runs, parameter) if lost.value in (base, other)]
    pairs = [_pair(found, losses, parameter, base, other) for found in twins.values()]
    whole = [pair for pair in pairs if NOT_THERE not in (pair.base.words, pair.other.words)]
    return whole + _lost_on_both_sides(losses, pairs)


@dataclass(frozen=True, slots=True)
class _Found:
    """A measurement, the parameter's value in it, and why it does not count."""

    measurement: Measurement
    value: str
    unfit: str


@dataclass(frozen=True, slots=True)
class _Lost:
    """A test that ran out of memory; `name` is None where that was outside of a measurement."""

    benchmark: str
    rest: dict[str, Scalar]
    name: str | None
    hardware: HardwareKey
    value: str

    @property
    def test(self) -> tuple[str, str, HardwareKey]:
        return self.benchmark, canonical(self.rest), self.hardware


def _losses(runs: Iterable[Run], parameter: str) -> Iterator[_Lost]:
    for run in runs:
        hardware = key_of(run.header.environment)
        for one in run.out_of_memory:
            if parameter in one.parameters:
                rest = _without(one.parameters, parameter)
                yield _Lost(one.benchmark, rest, one.name, hardware, str(one.parameters[parameter]))


def _all_found(runs: Iterable[Run], parameter: str) -> Iterator[_Found]:
    for run in runs:
        for measurement in run.tested:
            if parameter in measurement.key.parameters:
                value = str(measurement.key.parameters[parameter])
                yield _Found(measurement, value, run.unfit(measurement, accept_slower=True))


def _check(runs: Sequence[Run], parameter: str, wanted: Sequence[str]) -> None:
    sets: list[Mapping[str, Scalar]] = [one.key.parameters for run in runs for one in run.tested]
    sets += [one.parameters for run in runs for one in run.out_of_memory]
    values = {str(parameters[parameter]) for parameters in sets if parameter in parameters}
    if not values:
        known = sorted({name for parameters in sets for name in parameters})
        raise BadInput(f"no test has the parameter {parameter!r}; expected one of {', '.join(known) or 'none at all'}")
    missing = [value for value in wanted if value not in values]
    if missing:
        raise BadInput(f"no test has {parameter}={missing[0]}; expected one of {', '.join(sorted(values))}")


def _without(parameters: Mapping[str, Scalar], parameter: str) -> dict[str, Scalar]:
    return {name: value for name, value in parameters.items() if name != parameter}


def _common(found: _Found, parameter: str) -> tuple[str, ...]:
    """What both sides of a pair agree in."""
    key = found.measurement.key
    return (
        key.benchmark,
        canonical(_without(key.parameters, parameter)),
        key.name,
        str(key.hardware),
        key.cache,
        key.timing,
    )


def _pair(found: Sequence[_Found], losses: Sequence[_Lost], parameter: str, base: str, other: str) -> Contrast:
    key = found[0].measurement.key
    rest = _without(key.parameters, parameter)
    test = key.benchmark, canonical(rest), key.hardware.alone
    ran_out = {lost.value for lost in losses if lost.test == test}
    first, second = (_side([one for one in found if one.value == value], value in ran_out) for value in (base, other))
    return Contrast(key.benchmark, rest, key.name, first, second, key.hardware, key.cache, key.timing)


def _lost_on_both_sides(losses: Sequence[_Lost], pairs: Sequence[Contrast]) -> list[Contrast]:
    """Tests of which neither side has a time, since both ran out of memory; how they would be timed is not known."""
    timed = {(pair.benchmark, canonical(pair.parameters), pair.hardware.alone, pair.name) for pair in pairs}
    timed |= {(*rest, None) for *rest, _ in timed}  # type: ignore[misc]
    found: dict[tuple[object, ...], Contrast] = {}
    for lost in losses:
        both = len({one.value for one in losses if one.test == lost.test}) > 1
        if both and (*lost.test, lost.name) not in timed:
            side = Side(None, OUT_OF_MEMORY)
            name = lost.name or ""
            found[*lost.test, name] = Contrast(lost.benchmark, lost.rest, name, side, side, lost.hardware)
    return list(found.values())


def _side(found: Sequence[_Found], ran_out: bool) -> Side:
    sound = [one.measurement.median_s for one in found if not one.unfit]
    if sound:
        return Side(median(sound), MEASURED)
    if ran_out:
        return Side(None, OUT_OF_MEMORY)
    return Side(None, f"{UNSOUND}: {found[0].unfit}" if found else NOT_THERE)

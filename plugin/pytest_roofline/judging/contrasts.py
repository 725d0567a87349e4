"""One run's tests in pairs that differ in one parameter: what a precision, a back end or a compiler makes of each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ..core.errors import BadInput
from ..core.keys import Scalar, canonical
from ..core.records import Measurement
from .runs import Run

# Why a side has a time, or none; an unsound one says more.
MEASURED, NOT_THERE, OUT_OF_MEMORY = "measured", "not there", "out of memory"


@dataclass(frozen=True, slots=True)
class Side:
    """What the runs know of one test of a pair.

    Args:
        seconds: the median over its sound processes; None where there is none.
        words: `MEASURED`, or why there is no time.
    """

    seconds: float | None
    words: str


@dataclass(frozen=True, slots=True)
class Contrast:
    """One test on both sides.

    Args:
        benchmark: of both.
        parameters: all but the one that differs.
        name: of the measurement within its test.
        base: the side to compare with.
        other: the side that is compared.
    """

    benchmark: str
    parameters: Mapping[str, Scalar]
    name: str
    base: Side
    other: Side

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
    pairs = (_pair(runs, found, parameter, base, other) for found in twins.values())
    return [pair for pair in pairs if NOT_THERE not in (pair.base.words, pair.other.words)]


@dataclass(frozen=True, slots=True)
class _Found:
    """A measurement, the parameter's value in it, and why it does not count."""

    measurement: Measurement
    value: str
    unfit: str


def _all_found(runs: Iterable[Run], parameter: str) -> Iterator[_Found]:
    for run in runs:
        for measurement in run.measurements:
            if parameter in measurement.key.parameters:
                value = str(measurement.key.parameters[parameter])
                yield _Found(measurement, value, run.unfit(measurement, accept_slower=True))


def _check(runs: Sequence[Run], parameter: str, wanted: Sequence[str]) -> None:
    sets: list[Mapping[str, Scalar]] = [one.key.parameters for run in runs for one in run.measurements]
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


def _pair(runs: Iterable[Run], found: Sequence[_Found], parameter: str, base: str, other: str) -> Contrast:
    key = found[0].measurement.key
    rest = _without(key.parameters, parameter)
    ran_out = {
        str(one.parameters[parameter])
        for run in runs
        for one in run.out_of_memory
        if one.benchmark == key.benchmark
        and parameter in one.parameters
        and canonical(_without(one.parameters, parameter)) == canonical(rest)
    }
    sides = (_side([one for one in found if one.value == value], value in ran_out) for value in (base, other))
    return Contrast(key.benchmark, rest, key.name, *sides)


def _side(found: Sequence[_Found], ran_out: bool) -> Side:
    sound = [one.measurement.median_s for one in found if not one.unfit]
    if sound:
        return Side(median(sound), MEASURED)
    if ran_out:
        return Side(None, OUT_OF_MEMORY)
    return Side(None, f"not sound: {found[0].unfit}" if found else NOT_THERE)

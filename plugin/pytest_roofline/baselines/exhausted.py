"""Earlier times of tests that ran out of memory."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from ..core.facts import HardwareKey
from ..core.groups import group_by
from ..core.keys import Key, canonical, label_of
from ..core.memory import OutOfMemory
from ..core.rows import Row
from ..core.units import format_seconds
from ..core.verdicts import Kind, Reference
from ..core.work import Work
from ..hardware import key_of
from .comparators import Comparator, find_reference
from .exact import KernelRecords
from .rows import memory_row


def lost_times(
    comparator: Comparator,
    benchmark: str,
    parameters: Mapping[str, object],
    hardware: HardwareKey,
    measured: Collection[str] = (),
    ran_out: tuple[Key, Work] | None = None,
) -> dict[str, float]:
    """Return the baseline's medians of a test that have no new time, by name.

    Medians are in seconds.

    Args:
        measured: the names of measurements that have a new time.
        ran_out: the measurement that ran out of memory, where it is known. It comes first in the result.
    """
    # `alone` leaves out the number of devices, which differs between measurements of one test.
    test = (benchmark, canonical(parameters), hardware.alone)
    # By the name of a measurement in the test, its reference.
    lost: dict[str, Reference | None] = {}
    if ran_out is not None:
        # Messages name the first one.
        key, work = ran_out
        lost[key.name], _ = find_reference(comparator, key, work)
    for key in comparator.keys():  # noqa: SIM118
        is_of_test = (key.benchmark, canonical(key.parameters), key.hardware.alone) == test
        if is_of_test and key.name not in measured and key.name not in lost:
            lost[key.name] = comparator.reference(key)
    return {name: reference.median_s for name, reference in lost.items() if reference is not None}


def _lost_row(label: str, old_s: float | None, record: OutOfMemory) -> Row:
    """Return the row of a measurement lost because its test ran out of memory.

    `old_s` is its time on the old side; None for a compiled kernel.
    """
    sizes = f" ({record.allocation.sizes})" if record.allocation.sizes else ""
    earlier_result = "was compiled" if old_s is None else f"took {format_seconds(old_s)}"
    row = memory_row(
        record,
        verdict=Kind.REGRESSED.value,
        reason=f"ran out of memory{sizes}, but {earlier_result} before",
    )
    return replace(row, label=label, unit="s", baseline_value=old_s, baseline_time_s=old_s)


def lost_since(
    before: Comparator, after: Comparator, kernels_before: KernelRecords, compiled: Collection[str]
) -> list[Row]:
    """Return a row for each time or compiled kernel that only the old side has.

    The new side lacks it because its test ran out of memory. Each label has one row.

    Args:
        before: the old side; `after` is the new one.
        kernels_before: the compiled kernels of the old side.
        compiled: the identities of kernels that the new side has.
    """
    measured = group_by(after.keys(), lambda key: (key.benchmark, canonical(key.parameters)))
    times: dict[str, Row] = {}
    kernels: dict[str, Row] = {}
    for run in after.runs:
        hardware = key_of(run.header.environment)
        for record in run.out_of_memory:
            benchmark, parameters = record.benchmark, record.parameters
            measured_names = {
                key.name for key in measured.get((benchmark, canonical(parameters)), [])
            }
            old_times = lost_times(before, benchmark, parameters, hardware, measured_names)
            for name, seconds in old_times.items():
                label = label_of(benchmark, parameters, name)
                times.setdefault(label, _lost_row(label, seconds, record))
            for kernel in kernels_before.of(benchmark, parameters):
                if kernel.identity not in compiled:
                    kernels.setdefault(kernel.label, _lost_row(kernel.label, None, record))
    return [*times.values(), *kernels.values()]

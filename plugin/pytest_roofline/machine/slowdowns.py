"""Whether a device was slowed down for most of a run: by heat, to protect itself, or by a signal from outside."""

from collections import Counter
from collections.abc import Sequence

from ..core.machine import BRAKE, HARDWARE, THERMAL, Finding
from ..core.records import Measurement
from ..core.samples import MOST_EXCLUDED

# As many as the engine wants before it knows a median: fewer, all slowed, may be one hiccup.
FEWEST_BLOCKS = 5
# So many measurements, each slowed for most of its time, are no accident, however many others were not.
FEWEST_MEASUREMENTS = 3
_CAUSES = {
    THERMAL: (
        "clocks fall while it works, and numbers taken then do not count",
        "look at airflow, inlet temperature and the cooler's seat: nvidia-smi -q -d TEMPERATURE,PERFORMANCE, "
        "amd-smi metric --temperature",
    ),
    HARDWARE: (
        "it halves its clocks or more to protect itself, and numbers taken then do not count",
        "look at temperature, power cables and power supply: nvidia-smi -q -d PERFORMANCE",
    ),
    BRAKE: (
        "a signal from outside holds its power down, and numbers taken then do not count",
        "look at the power supplies and the chassis's power budget, in the log of the board's controller",
    ),
}


def persistent_slowdown(label: str, measurements: Sequence[Measurement], active: Sequence[str] = ()) -> Finding | None:
    """The slowdown that spoiled more than half of a run's blocks, or of those of three measurements; None without one.

    Args:
        label: of the device.
        measurements: all that the run took on it.
        active: what slows it after the last of them.
    """
    taken = [Counter(block.excluded for block in each.samples.blocks) for each in measurements]
    slowed = [sum(counts[cause] for cause in _CAUSES) for counts in taken]
    total = sum(counts.total() for counts in taken)
    mostly = sum(blocks > MOST_EXCLUDED * counts.total() for blocks, counts in zip(slowed, taken, strict=True))
    throughout = total >= FEWEST_BLOCKS and sum(slowed) > MOST_EXCLUDED * total
    if not throughout and mostly < FEWEST_MEASUREMENTS:
        return None
    by_cause = Counter({cause: sum(counts[cause] for counts in taken) for cause in _CAUSES})
    causes = [(cause, blocks) for cause, blocks in by_cause.most_common() if blocks]
    shares = ", ".join(f"{cause} in {blocks} of {total} blocks ({blocks / total:.0%})" for cause, blocks in causes)
    where = f", most of those of {mostly} of {len(taken)} measurements"
    still = "; still active after the last test" if causes[0][0] in active else ""
    effect, remedy = _CAUSES[causes[0][0]]
    return Finding("degraded", label, f"{shares}{where}{still}", effect, remedy)

"""What a pattern of sick and fine rungs points to, and where to look: a short table, honest about what it cannot tell.

It says where the cause lies, never what it is: the same pattern may have others than those that are named.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .ladder import Ladder, State, Step
from .rungs import Rung

_CLOCK, _ENGINE, _UNITS, _HOST, _PEER, _PRODUCT, _LAUNCH = Rung
_COPIES = frozenset({_ENGINE, _UNITS})
# What runs on the multiprocessors' clock, all or in part.
_CLOCKED = frozenset({_ENGINE, _UNITS, _PRODUCT, _LAUNCH})
_MEMORY = (
    "ECC errors and row remapping (nvidia-smi -q -d ECC,ROW_REMAPPER, amd-smi bad-pages) and the memory's clock "
    "(nvidia-smi -q -d CLOCK, amd-smi metric --clock)"
)
_PCIE = (
    "the link's generation and width under load (nvidia-smi -q, lspci -vv), the IOMMU, and whether the process runs on "
    "the socket of the device (nvidia-smi topo -m)"
)
_BETWEEN = (
    "the links that are up (nvidia-smi nvlink --status, amd-smi xgmi), the fabric manager, and access control on PCIe "
    "bridges"
)
_LIMITS = (
    "power limit, temperature and locked clocks (nvidia-smi -q -d POWER,TEMPERATURE,PERFORMANCE,CLOCK, amd-smi metric)"
)
_SUBMITTING = "how the driver submits work, the host's clock and governor, and the kernel's mitigations"
_SHARED = "other processes on the device, its power limit and its partition"


@dataclass(frozen=True, slots=True)
class Cause:
    """A row of the table: it fits where all of `sick` are, none beyond `may` is, and all of `fine` were shown to be.

    Args:
        what: the first half of a sentence: what is slower.
        look: at what to look, after "look at".
    """

    sick: frozenset[Rung]
    what: str
    look: str
    fine: frozenset[Rung] = frozenset()
    may: frozenset[Rung] = frozenset()

    def fits(self, sick: frozenset[Rung], fine: frozenset[Rung]) -> bool:
        """Whether the row speaks of these rungs."""
        return self.sick <= sick <= self.sick | self.may and self.fine <= fine


def _only(*rungs: Rung) -> frozenset[Rung]:
    return frozenset(rungs)


# The first row that fits is told. Of the clock, which may explain other parts, see `cause_of`.
CAUSES: tuple[Cause, ...] = (
    Cause(
        _COPIES | {_HOST},
        "nearly everything is slower, within the device and on its link alike",
        f"what all share: the driver, {_SHARED}, the host's processor",
        may=frozenset(Rung),
    ),
    Cause(
        _COPIES | {_PRODUCT},
        "the whole device is slower, memory and arithmetic alike",
        f"{_SHARED}, then its clocks",
        may=_only(_LAUNCH),
    ),
    Cause(
        _COPIES,
        "memory is slower, for copy engine and multiprocessors alike",
        _MEMORY,
        may=_only(_LAUNCH),
    ),
    Cause(
        _only(_ENGINE, _HOST),
        "copy engines are slower, within the device and on the host's link, and the memory is not",
        f"the driver's notes on copy engines, the partition (MIG has fewer of them), and {_PCIE}",
        fine=_only(_UNITS),
    ),
    Cause(
        _only(_ENGINE),
        "copies by the engine that the driver chooses are slower, and the memory is not",
        "what the driver chooses for copies within a device, and at the partition (MIG has fewer copy engines)",
        fine=_only(_UNITS),
        may=_only(_LAUNCH),
    ),
    Cause(
        _only(_UNITS),
        "kernels that copy are slower, and the memory is not",
        "the compiler of these kernels (Triton, torch), and at other processes on the multiprocessors",
        fine=_only(_ENGINE),
        may=_only(_LAUNCH),
    ),
    Cause(_only(_UNITS, _PRODUCT), "kernels are slower, copies by the copy engine are not",
          "the clock under load, the compiler and libraries of these kernels, and other processes",
          fine=_only(_ENGINE), may=_only(_LAUNCH)),
    Cause(
        _only(_ENGINE),
        "copies within the device are slower; whether memory or copy engine, nothing here tells",
        f"memcpy_d2d_triton or stream in the same way, which tell the two apart; then at {_MEMORY}",
        may=_only(_LAUNCH),
    ),
    Cause(
        _only(_UNITS),
        "kernels that copy are slower; whether memory or kernels, nothing here tells",
        f"memcpy_d2d in the same way, which tells the two apart; then at {_MEMORY}",
        may=_only(_LAUNCH),
    ),
    Cause(_only(_HOST), "the link to the host is slower", _PCIE, may=_only(_LAUNCH)),
    Cause(_only(_PEER), "the links between devices are slower", _BETWEEN, may=_only(_LAUNCH)),
    Cause(_only(_HOST, _PEER), "links are slower, to the host and between devices", f"{_PCIE}; then at {_BETWEEN}",
          may=_only(_LAUNCH)),
    Cause(
        _only(_PRODUCT),
        "arithmetic is slower, and not by its clock",
        "the library that multiplies and the kernel that it chooses (versions of torch, cuBLAS, Triton; TF32)",
        fine=_only(_CLOCK),
        may=_only(_LAUNCH),
    ),
    Cause(
        _only(_PRODUCT),
        "arithmetic is slower; whether clock or library, nothing here tells",
        f"the clock under load and {_LIMITS}; then at the versions of torch, cuBLAS and Triton",
        may=_only(_LAUNCH),
    ),
    *(Cause(_only(_LAUNCH), "launching is slower, bandwidth is not", _SUBMITTING, fine=_only(rung))
      for rung in (_ENGINE, _UNITS, _HOST)),
    Cause(_only(_LAUNCH), "launching is slower, bandwidth is not known to be", _SUBMITTING),
)  # fmt: skip
NONE_SICK = Cause(
    frozenset(),
    "no part that was looked at by itself is slower",
    "the regressed tests themselves: their kernels, their libraries, the host between their launches",
)
NOTHING_KNOWN = Cause(
    frozenset(),
    "nothing in this run looks at one part by itself",
    "one part at a time: pytest perf_tests -k 'memcpy or stream', before and after what changed",
)
SEVERAL = Cause(
    frozenset(), "several parts are slower, in no pattern of a single known cause", "what changed with all of them"
)


CLOCK_DOWN = Cause(_only(_CLOCK), "the clock is down, and what runs on it is slower", _LIMITS)
CLOCK_BESIDE = Cause(_only(_CLOCK), "the clock is down, which does not explain this", _LIMITS)
SLOWED = Cause(_only(_CLOCK), "the device slowed itself down", _LIMITS)


def cause_of(ladder: Ladder) -> Cause:
    """The first row of the table that fits a ladder; of a sick clock what it is, and a row for what it leaves open."""
    clock, parts = ladder.step(_CLOCK), [step for step in ladder.of(State.SICK) if step.rung is not _CLOCK]
    fine = frozenset(step.rung for step in ladder.of(State.FINE))
    if clock.state is not State.SICK:
        return _row(parts, fine)
    if clock.change is None:
        return _beside(SLOWED, _row(parts, fine))
    left = [step for step in parts if not (step.clocked and step.rung in _CLOCKED)]
    if len(left) < len(parts) or (not parts and clock.clocked):
        # What is not its clock's fault is some other part's.
        return _beside(CLOCK_DOWN, _row(left, fine | {_CLOCK})) if left else CLOCK_DOWN
    return _beside(CLOCK_BESIDE, _row(parts, fine | {_CLOCK}), turned=True)


def _row(parts: Sequence[Step], fine: frozenset[Rung]) -> Cause:
    if not parts:
        return NONE_SICK if fine - {_CLOCK} else NOTHING_KNOWN
    sick = frozenset(step.rung for step in parts)
    return next((cause for cause in CAUSES if cause.fits(sick, fine)), SEVERAL)


def _beside(clock: Cause, other: Cause, turned: bool = False) -> Cause:
    """Two causes as one sentence; `turned` where the second is the first to look at."""
    first, then = (other.look, clock.look) if turned else (clock.look, other.look)
    return Cause(clock.sick | other.sick, f"{clock.what}; beside that, {other.what}", f"{first}; then at {then}")

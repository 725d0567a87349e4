"""A compiled kernel's demands on its target: registers, memory, spills, instructions. They are read in its binary."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from .amounts import Amount, Count
from .errors import BadInput
from .keys import Scalar, label_of

Better = Literal["lower", "higher"]

# The figures that are judged, with the side that is better, in the order in which they are shown. Bytes are those of a
# block (shared) or of a thread (stack, scratch), columns of tensor memory those of a block; registers are those of a
# thread, spills and instructions those that stand in the binary, however often a loop goes through them. The last three
# count what stands in loops; the first two of them are there where matrix instructions are those of a warpgroup.
# docs/reference/kernels.md says where each is read.
JUDGED_FIGURES: dict[str, Better] = {
    "registers": "lower",
    "vgprs": "lower",
    "agprs": "lower",
    "shared_bytes": "lower",
    "tmem_columns": "lower",
    "stack_bytes": "lower",
    "scratch_bytes": "lower",
    "spill_stores": "lower",
    "spill_loads": "lower",
    "vgpr_spills": "lower",
    "sgpr_spills": "lower",
    "occupancy_waves": "higher",
    "matrix_instructions": "higher",
    "serialized_wgmma": "lower",
    "exposed_exponentials": "lower",
    "narrow_lds": "lower",
}
# Figures that are recorded, and shown if they changed, but never judged. All others are counts of one instruction.
REPORTED_FIGURES = ("sgprs", "instructions")
# Instructions that are counted beside matrix instructions, by the start of their names in disassemblies.
NVIDIA_INSTRUCTIONS = (
    "FFMA",
    "FFMA2",
    "HFMA2",
    "MUFU.EX2",
    "LDGSTS",
    "LDSM",
    "STSM",
    "UTMALDG",
    "UTMASTG",
)
AMD_INSTRUCTIONS = ("v_exp", "v_fma", "buffer_load", "global_load")
_SPILLS = ("spill_stores", "spill_loads", "vgpr_spills", "sgpr_spills")

# Kinds of matrix instructions by generation: those of a warp or wave, of a warpgroup (Hopper), of tensor memory
# (Blackwell). NVIDIA's names end in MMA; AMD's begin with v_ and name their operation.
_MATRIX = re.compile(
    r"(?P<tensor_memory>UTC[A-Z]*MMA)|(?P<warpgroup>[A-Z]GMMA)|[A-Z]MMA|v_mfma|v_smfmac|v_wmma|v_swmmac"
)


def matrix_generation(figure: str) -> int:
    """Return the generation of the matrix instruction that a figure counts.

    1 is of a warp or wave, 2 of a warpgroup, 3 of tensor memory; 0 means no matrix instruction.
    """
    match = _MATRIX.fullmatch(figure)
    if match is None:
        return 0
    # The pattern has a named group for each later generation, and none for the first.
    generation_of_group = {"tensor_memory": 3, "warpgroup": 2}
    return generation_of_group.get(match.lastgroup or "", 1)


def is_count(figure: str) -> bool:
    """Return whether a figure counts one instruction. A missing one is 0 then."""
    return figure not in JUDGED_FIGURES and figure not in REPORTED_FIGURES


@dataclass(frozen=True, slots=True)
class ResourceKey:
    """The key of a compiled kernel.

    It is the test with its parameters, the target, and the name within the test.
    """

    benchmark: str
    parameters: dict[str, Scalar]
    target: str
    name: str = ""

    @property
    def identity(self) -> str:
        """The key as one canonical string."""
        return json.dumps(["resources", asdict(self)], sort_keys=True, separators=(",", ":"))

    @property
    def label(self) -> str:
        """The label for people: `flash_forward[sm_90-64]`. It ends in the target unless a parameter names that."""
        return with_target(label_of(self.benchmark, self.parameters, self.name), self.target)


def with_target(label: str, target: str) -> str:
    """Return a label that names the target: `flash_forward[64]@sm_90`."""
    names_target = re.search(rf"(?<![0-9A-Za-z_]){re.escape(target)}(?![0-9A-Za-z])", label)
    return label if names_target else f"{label}@{target}"


@dataclass(frozen=True, slots=True)
class Resources:
    """The demands of a kernel, compiled for a target, on that target.

    Args:
        figures: by name: those of `JUDGED_FIGURES` and `REPORTED_FIGURES` that the target has, and the number of each
            instruction that the binary holds at all (`HGMMA`, `v_mfma`).
        options: the compiler's, as they took effect.
        arguments: the type or value of each parameter that the kernel was compiled for, in Triton's words.
        compiler: versions of what compiled it: `triton`, `ptxas` or `llvm`.
        slack: by figure, how much worse than its baseline it may be without a failure.
        shared_limit_bytes: the shared memory that the target can give to a block; None if unknown.
        warning: the assembler's message on `serialized_wgmma`; empty if there is none.
        unread: the parts of the binary that could not be read, with the reason; empty if there are none.
        invalid: why this can never be a baseline; empty where it can.
        tier, marks: of its test, with the keyword arguments of the markers by their name: see `Measurement`.
    """

    key: ResourceKey
    test_id: str
    label: str
    process: str
    figures: dict[str, Amount]
    options: dict[str, Scalar] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    compiler: dict[str, str] = field(default_factory=dict)
    slack: dict[str, Amount] = field(default_factory=dict)
    shared_limit_bytes: Count | None = None
    warning: str = ""
    unread: str = ""
    invalid: str = ""
    tier: str = ""
    marks: dict[str, tuple[dict[str, Scalar], ...]] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """The target that it was compiled for: `sm_90`."""
        return self.key.target

    @property
    def registers(self) -> int:
        """Vector registers of a thread: `vgprs` on an AMD target."""
        registers = registers_of(self.figures)
        return self.figure("registers") if registers is None else registers

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory (LDS) of a block, static and dynamic together."""
        return self.figure("shared_bytes")

    @property
    def spills(self) -> int:
        """Spilled registers (AMD), or their loads and stores of local memory (NVIDIA)."""
        spills = spills_of(self.figures)
        return self.figure("spills") if spills is None else spills

    @property
    def matrix_instructions(self) -> int:
        """Instructions of all kinds that multiply matrices."""
        return self.figure("matrix_instructions")

    @property
    def occupancy_waves(self) -> int:
        """Waves that a SIMD of an AMD target holds at once, by registers alone."""
        return self.figure("occupancy_waves")

    def count(self, instruction: str) -> int:
        """Return the number of instructions of one kind in the binary: `count("HGMMA")`.

        Raises:
            BadInput: instructions were not read, or those of this name are not counted, on any target.
        """
        names = (*NVIDIA_INSTRUCTIONS, *AMD_INSTRUCTIONS)
        if instruction not in names and not matrix_generation(instruction):
            raise BadInput(
                f"instruction is {instruction!r}, which is not counted; expected a matrix instruction "
                f"(HMMA, HGMMA, UTCHMMA, v_mfma, v_wmma, …) or one of {', '.join(names)}"
            )
        if "instructions" not in self.figures:
            # No instructions were read. `figure` raises the error with the reason.
            self.figure(instruction)
        return self.figures.get(instruction, 0)

    def figure(self, name: str) -> int:
        """Return a figure by its name.

        Raises:
            BadInput: it was not read, with the reason or the names of those that were.
        """
        if name not in self.figures:
            reason = self.unread or f"this target has {', '.join(self.figures)}"
            raise BadInput(f"{self.label} has no figure {name!r}: {reason}")
        return self.figures[name]


def registers_of(figures: Mapping[str, int]) -> int | None:
    """Return the vector registers of a thread; None if they were not read."""
    return figures.get("vgprs", figures.get("registers"))


def spills_of(figures: Mapping[str, int]) -> int | None:
    """Return the sum of all spills; None if they were not read."""
    numbers = [figures[name] for name in _SPILLS if name in figures]
    return sum(numbers) if numbers else None

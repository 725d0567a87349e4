"""What ran on which hardware: one short table on the first page of the documentation, made from the facts committed."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from parts import with_part
from rank_figures.page import table

from pytest_roofline.core.errors import BadFile

from . import page
from .facts import Facts

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/results/hardware"
PAGE = ROOT / "docs/index.md"
PROGRAM = "benchmarks/on_hardware.py --table"
STAND_IN = "by stand-in"
# What nobody has run here, by vendor, with what stands in for it; a product leaves when its facts are committed.
FAMILIES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("NVIDIA", ("H100", "H200", "B200", "A100", "L4", "L40S", "4090"),
     "a scripted fake, stand-ins for torch and NVML; kernels compiled"),
    ("NVIDIA", ("V100", "T4"), "the same, without attention kernels, which refuse them"),
    ("AMD", ("MI300X", "MI250X", "MI210"), "the same, with stand-ins for HIP and amdsmi"),
    ("Intel, Apple", ("XPU", "MPS"), "a scripted fake, stand-ins for torch's modules"),
)  # fmt: skip
# Of what no stand-in says anything.
UNTRIED = ("NCCL, RCCL", "not tried", "ranks run over Gloo and Open MPI, on CPUs")
CPU = ("CPU (x86)", "**proven**", "the tests of the project, in CI")
SENTENCE = "What has run on the hardware itself, and what only on something that stands in for it:"


def of_hardware(facts: Facts) -> bool:
    """Whether facts were found on a device of this world, and not only to try the program."""
    return facts.header["device"] != "fake" and not facts.header["quick"]


def committed() -> Iterator[tuple[str, Facts]]:
    """The facts of every product that stand among the results, by the name of their page.

    Raises:
        BadFile: those of a fake are among them.
    """
    for path in sorted(RESULTS.glob("*.jsonl")):
        facts = Facts(path)
        facts.reload()
        if not of_hardware(facts):
            raise BadFile(
                f"{path} is of the fake, or made with --quick; only facts of hardware stand there"
            )
        yield path.stem, facts


def lines() -> list[tuple[str, str, str]]:
    """Device, state, and what that rests on."""
    found = list(committed())
    products = [facts.header["product"] for _, facts in found]
    proven = [
        (
            facts.header["product"],
            "**ran**",
            f"[{page.counts(page.rows(facts))[:-1]}](LINK{name}.md)",
        )
        for name, facts in found
    ]
    types = [page.device_type(facts).upper() for _, facts in found]
    others = [
        (f"{vendor} {', '.join(left)}", STAND_IN, rests)
        for vendor, names, rests in FAMILIES
        if (left := [name for name in names if not _named(name, [*products, *types])])
    ]
    return [CPU, *proven, *others, UNTRIED]


def _named(name: str, products: Sequence[str]) -> bool:
    """Whether one of them is of this name, as a word: L4 is no L40S."""
    return any(re.search(rf"\b{name}\b", product) for product in products)


def part() -> str:
    """Return the sentence and the table that stand between the two comments of the page."""
    cells = [
        [device, state, rests.replace("LINK", "results/hardware/")]
        for device, state, rests in lines()
    ]
    return f"{SENTENCE}\n\n{table(('device', 'state', 'by what'), cells)}"


def write() -> None:
    """Write the table into the first page of the documentation.

    Raises:
        BadFile: the page lacks the comments around the table.
    """
    text = with_part(PAGE.read_text(encoding="utf-8"), PROGRAM, part())
    PAGE.write_text(text, encoding="utf-8")

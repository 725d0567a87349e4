"""What every FlashAttention kernel asks of each architecture, as a page: from the exact baseline, nothing is compiled.

    python benchmarks/flash_resources.py -o docs/results/flash-resources.md

The figures are those of `baselines/resources.json`, which `perf_tests/test_flash_resources.py` is held against. Renew
the page whenever that file changes.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from parts import comments, keep_parts
from rank_figures.page import filled, table

from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.core.entries import ExactEntry
from pytest_roofline.core.errors import BadFile, RooflineError
from pytest_roofline.core.resources import matrix_generation, registers_of, spills_of
from pytest_roofline.kernel_gate.targets import shared_limits

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "baselines/resources.json"
BENCHMARK = "flash_resources"
# Two bytes, at most so many columns, whole tiles, a key head for each query head: here nothing may spill, and matrix
# instructions must be there. Elsewhere the figures are held as they are.
CLEAN_HEAD_DIM = 128
# Whole tiles, aligned rows, a key head for each query head.
CLEAN_VARIANTS = ("causal", "full")
# In the order in which people read them; what is none of these comes last.
ORDERS = {
    "architecture": ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950"),
    "kernel": ("forward", "gluon", "d_keys", "d_queries"),
    "dtype": ("bf16", "fp16", "fp32"),
    "variant": ("causal", "full", "general"),
}
CASE = ("kernel", "dtype", "head_dim", "variant")
COLUMNS = ("kernel", "type", "head dim", "variant", "tile", "warps", "stages", "with", "shared bytes", "registers",
           "spills", "matrix instructions", "in loops")  # fmt: skip
# Figures of loops, in the words of the page.
IN_LOOPS = {
    "serialized_wgmma": "serialized",
    "exposed_exponentials": "exposed",
    "narrow_lds": "narrow",
}
OUTSTANDING = (
    "architecture",
    "kernel",
    "type",
    "head dim",
    "variant",
    "spills",
    "stack bytes",
    "allowed",
)
UNREAD = "not read"
# The programs whose parts stand at the end of the page.
PARTS = ("benchmarks/flash_variants.py", "benchmarks/attention_model.py")

HEAD = """# What the FlashAttention kernels ask for

{conclusion}

Made by `python benchmarks/flash_resources.py -o docs/results/flash-resources.md` from `baselines/resources.json`:
{kernels} kernels for {architectures} architectures, each in the configuration that it is shipped with, compiled
without a GPU by {compilers}. `pytest perf_tests -k flash_resources --roofline-tier=full` compiles them anew and is red
where one asks for more ([compile gate](../compile-gate.md)).

A tile is queries × keys. Shared bytes are those of a program, with their share of what the architecture gives to one.
Registers are those of a thread, on AMD vector registers of a lane. Spills are instructions that store to and load from
local memory (NVIDIA), or registers that did not fit (AMD). Matrix instructions are counted as they stand in the binary.
In loops: matrix instructions that run one by one (`serialized`) and exponentials under none (`exposed`), both of sm_90
alone, and accesses of shared memory by 8 or 16 bits (`narrow`).
`general` has tails in both sequences and four query heads for each key head, `unaligned` also rows that are no multiple
of 16 bytes, `sum` a gradient that comes from a sum; the others have whole tiles. `gluon` is the forward pass in Gluon,
which is offered beside the shipped one; its exponentials outside of a matrix instruction are those of a block's first
tile.
"""

TAIL = """## What may not be concluded

No time. Nothing here was launched, and a binary does not say how long it takes: more registers may be faster, a spill
outside of the loop costs nothing, and fewer matrix instructions may stand in a loop that is unrolled less. Neither do
the tables rank architectures, whose instructions do work of different sizes; nor do they say that a configuration is
the best one, which `benchmarks/flash_tuning.py` finds out on a GPU. The compiler is the one named above; another makes
other binaries.
"""


def page(entries: Sequence[ExactEntry]) -> str:
    """All of it; `entries` are not empty."""
    ordered = sorted(
        entries, key=lambda entry: [_place(entry, name) for name in ("architecture", *CASE)]
    )
    parts = [_head(ordered), _outstanding(ordered)]
    for architecture, own in groupby(ordered, key=lambda entry: entry.target):
        # What spills comes first; the sort keeps the order of the rest.
        rows = sorted(own, key=lambda entry: not spills_of(entry.figures))
        parts.append(f"## {architecture}\n\n{table(COLUMNS, list(map(_row, rows)))}")
    places = [line for program in PARTS for line in comments(program)]
    return filled("\n\n".join([*parts, TAIL, *places])) + "\n"


def _place(entry: ExactEntry, name: str) -> tuple[int, str]:
    value = entry.parameters[name]
    order = ORDERS.get(name, ())
    if isinstance(value, int):
        return value, ""
    return order.index(str(value)) if value in order else len(order), str(value)


def _head(entries: Sequence[ExactEntry]) -> str:
    versions: dict[str, set[str]] = {}
    for entry in entries:
        for tool, version in entry.compiler.items():
            versions.setdefault(tool, set()).add(version)
    named = ", ".join(
        f"{tool} {' and '.join(sorted(found))}" for tool, found in sorted(versions.items())
    )
    targets = {entry.target for entry in entries}
    return HEAD.format(
        conclusion=conclusion(entries),
        kernels=len(entries),
        architectures=len(targets),
        compilers=named,
    )


def conclusion(entries: Sequence[ExactEntry]) -> str:
    """Return the sentence that the page begins with."""
    spilling = sum(bool(spills_of(entry.figures)) for entry in entries)
    breaches = sum(bool(breach(entry)) for entry in entries)
    return f"Of {len(entries)} kernels {spilling} spill, and {breaches or 'none'} against the rule of the project."


def _outstanding(entries: Sequence[ExactEntry]) -> str:
    """Those that break the rule, then those that spill where they may."""
    rule = f"16-bit types, head dimensions to {CLEAN_HEAD_DIM}, whole tiles, aligned rows and single groups"
    found = [entry for entry in entries if spills_of(entry.figures) or breach(entry)]
    unread = sum(spills_of(entry.figures) is None for entry in entries)
    beside = f" Of {unread} that is not known: no disassembler could read them." if unread else ""
    if not found:
        return f"No kernel spills, and all that must use matrix instructions ({rule}) do.{beside}"
    rows = [
        (
            entry.target, *_case(entry), _spills(entry),
            _figure(entry.figures.get("stack_bytes", entry.figures.get("scratch_bytes"))),
            f"**no: {breach(entry)}**" if breach(entry) else "yes",
        )
        for entry in sorted(found, key=lambda entry: not breach(entry))
    ]  # fmt: skip
    broken = sum(bool(breach(entry)) for entry in found)
    told = f"**against the rule: {broken}**" if broken else "none is against the rule"
    text = f"Kernels of {rule} must not spill and must use matrix instructions. {len(found)} stand out; {told}.{beside}"
    return f"## What stands out\n\n{text}\n\n{table(OUTSTANDING, rows)}"


def breach(entry: ExactEntry) -> str:
    """How a kernel breaks the rule that is to hold for it; empty where it keeps it, or where none holds."""
    case = entry.parameters
    plain = case["variant"] in CLEAN_VARIANTS and case["dtype"] != "fp32"
    clean = plain and case["head_dim"] <= CLEAN_HEAD_DIM  # type: ignore[operator]
    if clean and spills_of(entry.figures):
        return "spills"
    return (
        "no matrix instruction" if clean and entry.figures.get("matrix_instructions") == 0 else ""
    )


def _row(entry: ExactEntry) -> tuple[str, ...]:
    options = entry.options
    return (
        *_case(entry), _tile(entry.arguments),
        f"{options['num_warps']}", f"{options['num_stages']}", _with(entry),
        _shared(entry), _figure(registers_of(entry.figures)), _spills(entry), _matrix(entry),
        _in_loops(entry),
    )  # fmt: skip


def _tile(arguments: Mapping[str, str]) -> str:
    """Return queries × keys; row sums have no keys, and a kernel in Gluon parts its queries."""
    if "WARPGROUPS" in arguments:
        rows = int(arguments["ROWS"]) * int(arguments["WARPGROUPS"])
        return f"{rows} × {arguments['BLOCK_N']}"
    return " × ".join(arguments[name] for name in ("BLOCK_M", "BLOCK_N") if name in arguments)


def _case(entry: ExactEntry) -> tuple[str, ...]:
    return tuple(str(entry.parameters[name]) for name in CASE)


def _with(entry: ExactEntry) -> str:
    """What else the kernel was compiled with: `descriptors`, and on AMD its own options."""
    flags = {"descriptors": "DESCRIPTORS", "warp specialization": "WARP_SPECIALIZE"}
    found = [name for name, argument in flags.items() if entry.arguments.get(argument) == "True"]
    found += [
        f"{n} {entry.options[n]}"
        for n in ("waves_per_eu", "matrix_instr_nonkdim")
        if n in entry.options
    ]
    return ", ".join(found)


def _shared(entry: ExactEntry) -> str:
    asked, limit = entry.figures["shared_bytes"], shared_limits().get(entry.target)
    return f"{asked:,}" if limit is None else f"{asked:,} ({asked / limit:.0%})"


def _figure(value: int | None) -> str:
    return UNREAD if value is None else f"{value:,}"


def _spills(entry: ExactEntry) -> str:
    spills = spills_of(entry.figures)
    return f"**{spills:,}**" if spills else _figure(spills)


def _matrix(entry: ExactEntry) -> str:
    if "matrix_instructions" not in entry.figures:
        return UNREAD
    kinds = {
        name: count for name, count in sorted(entry.figures.items()) if matrix_generation(name)
    }
    return ", ".join(f"{count} {name}" for name, count in kinds.items()) or "none"


def _in_loops(entry: ExactEntry) -> str:
    """Return what waits in loops; empty where nothing does."""
    counts = {word: entry.figures.get(figure, 0) for figure, word in IN_LOOPS.items()}
    return ", ".join(f"{number} {word}" for word, number in counts.items() if number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the page, and write it where asked to. Exit status: 0, or 2 where there is no baseline to read."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    parser.add_argument(
        "--baseline", type=Path, default=BASELINE, help="the exact baseline (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    try:
        entries = [
            entry for entry in read_baseline(options.baseline).exact if entry.benchmark == BENCHMARK
        ]
    except RooflineError as error:
        print(f"flash_resources: {error}", file=sys.stderr)
        return 2
    if not entries:
        print(
            f"flash_resources: {options.baseline} has no entry of {BENCHMARK}; record them with "
            "`pytest perf_tests -k flash_resources` and `roofline baseline propose`",
            file=sys.stderr,
        )
        return 2
    text = page(entries)
    print(text, end="")
    if options.output:
        before = options.output.read_text(encoding="utf-8") if options.output.exists() else ""
        try:
            text = keep_parts(text, before, PARTS)
        except BadFile as error:
            print(f"flash_resources: {options.output}: {error}", file=sys.stderr)
            return 2
        options.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The other ways through the forward kernel of FlashAttention on Hopper, by what the compiler makes of them.

    python benchmarks/flash_variants.py -o docs/results/flash-resources.md

It writes its part of the page that `flash_resources.py` makes.

Each variant that `flash_tuning.py` offers beside the shipped configuration is compiled for sm_90 without a GPU, with
and without a causal mask, and its machine code is read: matrix instructions, waits for them, barriers, and how many
exponentials stand between a matrix instruction and the wait for it, which is what an overlap is.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from parts import part_of, with_part
from rank_figures.page import filled, table
from tuning.candidates import name_of, variants
from tuning.compiling import Candidate, compiled
from tuning.problems import Problem, Setting

from pytest_roofline.core.errors import BadFile
from pytest_roofline.kernel_gate.assembler import words_on_waits
from pytest_roofline.kernel_gate.compile import read
from roofline_kernels.attention.architectures import SHARED_BYTES
from roofline_kernels.attention.configurations import Configuration, shipped

PROGRAM = "benchmarks/flash_variants.py"
TARGET = "sm_90"
HEAD_DIMS = (64, 128, 256)
SHAPE = {"batch": 1, "heads": 16, "sequence": 16384}
COLUMNS = ("head dim", "mask", "variant", "wgmma", "waits", "barriers", "exponentials under a wgmma", "of", "registers",
           "shared bytes", "spills", "what speaks against it")  # fmt: skip
SAME = "compiles to the same figures as without"
# A wait that leaves none under way.
_ALL_ENDED = re.compile(r"WARPGROUP\.DEPBAR.*\b0x0\b")
# The compiler says this of a pass that failed, to the process's own stderr and not to whoever called it.
_PASS = re.compile(rb"Pipeline failed while executing \[`(\w+)`")

HEAD = """## Other ways through the forward pass on Hopper

{conclusion}

Made by `python benchmarks/flash_variants.py`, with Triton {triton}, without a GPU: no
time stands here, and none of it has run on a card. The first row of each group is what is shipped; the default changes
only when a card has shown that another is faster, which `benchmarks/flash_tuning.py` finds out: it tries all of these
that the compiler takes. Each computes the same, by a test against float64 in Triton's interpreter.

* `overlap`: the scores of the next tile are asked for before this one's are made into shares, so that the tensor cores
  work under the softmax. The first tile goes under the mask and stands before the loop.
* `threshold8`: the running output is rescaled only where a score exceeds its row's base by more than 2⁸.
* `persistent`: one program a multiprocessor, which takes block after block, the longest first under a causal mask.
* `gluon`: [the kernel in Gluon](../authors/kernels.md#the-triton-kernels): one warp loads, two warpgroups compute in
  turn. It is `flash_attention[gluon-…]` in the suite. Of its exponentials those that stand aside are the ones of each
  block's first tile; the loop has none such.
* `ws`: Triton's warp specialization: some warps load, others compute. At the shipped tile it stands here only: a tuner
  is not offered it.

Waits are `WARPGROUP.DEPBAR`, barriers `BAR.SYNC`. An exponential stands under a wgmma where in the machine code one has
been issued and not yet been waited for; `of` counts all exponentials of the kernel, in loops and beside them.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """What the machine code of one variant holds, or why there is none."""

    head_dim: int
    causal: bool
    tiles: Configuration
    counts: tuple[int, ...] = ()
    against: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, or 2 for a page that has no place for the part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="the page")
    parser.add_argument("--head-dims", nargs="+", type=int, choices=HEAD_DIMS, default=HEAD_DIMS)
    options = parser.parse_args(arguments)
    try:
        page = options.output.read_text(encoding="utf-8")
        # Nobody waits minutes for a part that has no place.
        part_of(page, PROGRAM)
    except (BadFile, OSError) as error:
        print(f"flash_variants: {options.output}: {error}", file=sys.stderr)
        return 2
    text = part(list(found(options.head_dims)))
    options.output.write_text(with_part(page, PROGRAM, text), encoding="utf-8")
    return 0


def part(rows: Sequence[Found]) -> str:
    """Return the part of the page, as Markdown."""
    import triton

    head = HEAD.format(triton=triton.__version__, conclusion=conclusion(rows)).rstrip()
    return filled("\n\n".join([head, table(COLUMNS, list(map(_row, rows)))]))


def conclusion(rows: Sequence[Found]) -> str:
    """Return the sentence that the part begins with."""
    compiled_rows = [row for row in rows if row.counts]
    clean = sum(not row.against for row in compiled_rows)
    return (
        f"Of {len(rows)} kernels, the shipped ones among them, {len(compiled_rows)} compile, and nothing in their "
        f"machine code speaks against {clean}."
    )


def found(head_dims: Sequence[int] = HEAD_DIMS) -> Iterator[Found]:
    """Every variant with either mask, the shipped configuration first."""
    for head_dim in head_dims:
        own = shipped()[TARGET]["forward"]["16-bit"][head_dim]
        for causal in (False, True):
            plain = look(head_dim, causal, own)
            yield plain
            specialized = look(head_dim, causal, replace(own, warp_specialize=True))
            yield (
                replace(specialized, against=SAME)
                if specialized.counts == plain.counts
                else specialized
            )
            for tiles in variants(TARGET, "forward", head_dim, own):
                yield look(head_dim, causal, tiles)


def look(head_dim: int, causal: bool, tiles: Configuration) -> Found:
    """One variant, compiled and read."""
    import triton

    problem = Problem("forward", Setting(head_dim, causal, **SHAPE))
    driver = triton.runtime.driver
    before = driver._active
    with triton.knobs.compilation.scope(), _heard() as said:
        # With it ptxas gives other registers to the same code once a comment moves its lines.
        triton.knobs.compilation.disable_line_info = True
        try:
            made = compiled(Candidate(TARGET, problem, tiles))
        except Exception as error:
            said.seek(0)
            reason = f"{type(error).__name__}: {error}"
            return Found(head_dim, causal, tiles, against=failure(reason, said.read()))
        finally:
            driver._active = before
    figures, code = read(made).figures, disassembled(made.asm["cubin"])
    spills = figures["spill_stores"] + figures["spill_loads"]
    counts = (
        figures["HGMMA"], code.count("WARPGROUP.DEPBAR"), code.count("BAR.SYNC"), exponentials_under(code),
        code.count("MUFU.EX2"), figures["registers"], figures["shared_bytes"], spills,
    )  # fmt: skip
    against = _against(figures["shared_bytes"], spills, made.asm["ptx"])
    return Found(head_dim, causal, tiles, counts, against)


@contextlib.contextmanager
def _heard() -> Iterator[IO[bytes]]:
    """A file that takes what goes to the process's stderr meanwhile, also from code that is not Python."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def failure(error: str, said: bytes) -> str:
    """Why there is no binary: the last line of the error, and the pass that failed where the compiler named one."""
    found = _PASS.search(said)
    return f"Triton: {error.strip().splitlines()[-1].strip()}" + (
        f" (in {found[1].decode()})" if found else ""
    )


def _against(shared_bytes: int, spills: int, ptx: str) -> str:
    if shared_bytes > SHARED_BYTES[TARGET]:
        return f"there are {SHARED_BYTES[TARGET]:,} bytes"
    return "it spills" if spills else serialized(ptx)


def disassembled(cubin: bytes) -> str:
    """The machine code of a binary, an instruction a line."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return _output(knobs.nvidia.nvdisasm.path, "-c", file.name)


def serialized(ptx: str) -> str:
    """Why the assembler lets each matrix instruction wait for the one before; empty where it does not."""
    from triton.backends.nvidia.compiler import get_ptxas

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.ptx"
        source.write_text(ptx, encoding="utf-8")
        reason = words_on_waits(
            _output(
                get_ptxas(90).path,
                "-v",
                f"--gpu-name={TARGET}a",
                str(source),
                "-o",
                str(source.with_suffix(".o")),
            )
        )
    return f"ptxas: {reason}" if reason else ""


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def exponentials_under(code: str) -> int:
    """How many exponentials stand between a matrix instruction and the wait for all, or the end of the loop."""
    count, under_way = 0, False
    for line in code.splitlines():
        if "HGMMA" in line:
            under_way = True
        elif _ALL_ENDED.search(line) or re.search(r"\bBRA\b", line):
            under_way = False
        elif "MUFU.EX2" in line:
            count += under_way
    return count


def _row(one: Found) -> tuple[object, ...]:
    counts = [f"{count:,}" for count in one.counts] or [""] * 8
    return (
        str(one.head_dim),
        "causal" if one.causal else "full",
        name_of(one.tiles),
        *counts,
        one.against,
    )


if __name__ == "__main__":
    sys.exit(main())

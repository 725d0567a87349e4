"""Which tiles, warps and stages are the fastest on this GPU, and how far from them are the shipped ones?

    python benchmarks/flash_tuning.py --json best.json --peers
    python benchmarks/flash_tuning.py --resume

Each kernel of FlashAttention (forward, d_keys, d_queries) is swept alone, at every head dimension, mask and shape.
Candidates are compiled first, and left out where they spill badly or do not fit; the others are timed by the plugin's
engine and held against the reference; then the fastest are timed again, in turn with the shipped one, since the fastest
of many was lucky too. A kernel's rate counts the products that it does: two a tile forward, four for d_keys, three for
d_queries. Everything found is kept as it comes, and --resume goes on where Ctrl-C ended it. Needs a GPU that the
kernels know; let nothing else run on it meanwhile.
"""

import argparse
import functools
import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from tuning.candidates import candidates
from tuning.choosing import as_json, choose, compromise, groups
from tuning.compiling import Candidate, why_not
from tuning.log import Log, begin
from tuning.problems import Problem, parse_shape, problems, settings
from tuning.sweeping import Sweep
from tuning.wording import group_line, line, peer_lines, tally

from pytest_roofline.core.errors import DeviceError, RooflineError
from pytest_roofline.engine.devices import Device, open_device
from roofline_kernels import attention
from roofline_kernels.attention.architectures import (
    NoSuchArchitecture,
    architecture_of,
    configured_as,
)
from roofline_kernels.attention.configurations import PASSES, Configuration, configuration

ROOT = Path(__file__).resolve().parent.parent
MASKS = {"causal": True, "full": False}
SHAPES = ("1x16x16384", "4x2048/Dx4096")
HEAD_DIMS = (64, 128, 256)
# Instructions (NVIDIA) or registers (AMD): a handful may lie outside of the loop, hundreds cannot.
MOST_SPILLS = 100
# Of one timing, in seconds.
BUDGET_S = 0.3
FINALS, TURNS = 4, 3
INTERRUPTED = 130


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = functools.partial(parser.add_argument, help="(default: %(default)s)")
    add("--device", default="cuda")
    add("--kernels", nargs="+", choices=PASSES, default=PASSES)
    add("--head-dims", nargs="+", type=int, choices=HEAD_DIMS, default=HEAD_DIMS)
    add("--masks", nargs="+", choices=MASKS, default=tuple(MASKS))
    add(
        "--shapes",
        nargs="+",
        default=SHAPES,
        help="batch x heads x sequence (default: %(default)s)",
    )
    add(
        "--most-spills",
        type=int,
        default=MOST_SPILLS,
        help="what spills more is not timed (default: %(default)s)",
    )
    add(
        "--budget",
        type=float,
        default=BUDGET_S,
        help="seconds of one timing (default: %(default)s)",
    )
    add("--finals", type=int, default=FINALS, help="so many are timed again (default: %(default)s)")
    add("--turns", type=int, default=TURNS, help="so often (default: %(default)s)")
    add(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="compile so many at once (default: %(default)s)",
    )
    add(
        "--log",
        type=Path,
        help="what is found, as it comes (default: .roofline/tuning/flash-ARCHITECTURE.jsonl)",
    )
    add("--resume", action="store_true", help="go on with the log that is there")
    add(
        "--json",
        type=Path,
        help="write the best configurations, in the form of configurations.json",
    )
    add(
        "--peers",
        action="store_true",
        help="also time PyTorch's back ends, forward and backward, in this process",
    )
    return parser.parse_args(arguments)


def opened(name: str) -> tuple[Device, str]:
    """The device and its architecture.

    Raises:
        DeviceError: it is no GPU, there is none, or Triton is missing.
        NoSuchArchitecture: the kernels are not made for it.
    """
    import torch

    device = open_device(name, "--device")
    if not device.name.startswith("cuda"):
        raise DeviceError(
            f"--device is {name}; expected a CUDA or ROCm device, since only there the kernels are fast"
        )
    architecture = architecture_of(torch.device(device.name))
    configured_as(architecture)
    try:
        import triton  # noqa: F401
    except ImportError:
        raise DeviceError(
            "the kernels need Triton, found none; pip install 'pytest-roofline[triton]'"
        ) from None
    return device, architecture


def header(device: Device, architecture: str) -> dict[str, str]:
    """What must be the same where a log is gone on with."""
    import torch
    import triton

    digest = hashlib.sha256()
    for path in sorted(Path(attention.__file__).parent.glob("triton_*.py")):
        digest.update(path.read_bytes())
    return {
        "device": str(device.facts().product), "architecture": architecture, "torch": torch.__version__,
        "triton": triton.__version__, "kernels": digest.hexdigest()[:12],
    }  # fmt: skip


def own_folder() -> Path:
    """A folder that git ignores."""
    folder = ROOT / ".roofline/tuning"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    return folder


def tasks_of(architecture: str, problem: Problem) -> list[Candidate]:
    """All candidates of a problem, the shipped configuration first."""
    tiles = candidates(
        architecture, problem.kernel, problem.setting.head_dim, shipped(architecture, problem)
    )
    return [Candidate(architecture, problem, one) for one in tiles]


def shipped(architecture: str, problem: Problem) -> Configuration:
    """What the table holds for a problem."""
    return configuration(architecture, problem.kernel, problem.setting.head_dim, element_bytes=2)


def tune(
    log: Log, architecture: str, asked: Sequence[Problem], sweep: Sweep, bench_of: Callable
) -> None:
    """Sweep every problem, and say of each what was found."""
    tasks = {problem: tasks_of(architecture, problem) for problem in asked}
    # All before the first launch, so that the host is quiet while something is timed.
    print(f"compiling {sum(map(len, tasks.values()))} candidates, {sweep.jobs} at once", flush=True)
    sweep.compile(log, [task for own in tasks.values() for task in own])
    for setting, own in groupby(asked, key=lambda problem: problem.setting):
        bench = bench_of(setting)
        for problem in own:
            sweep.time(log, tasks[problem], bench.time)
            print(line(choose(log.tried, problem, shipped(architecture, problem))), flush=True)
            print(tally(log.tried, problem), flush=True)


def best_of(log: Log, asked: Sequence[Problem]) -> dict:
    """By kernel and head dimension the configuration to ship; None where nothing was timed at every shape."""
    return {group: compromise(log.tried, own) for group, own in groups(asked).items()}


def time_peers(log: Log, asked: Sequence[Problem], bench_of: Callable) -> None:
    """Whole passes: ours as shipped and at its best, and PyTorch's back ends."""
    from tuning.timing import time_peer

    from roofline_kernels.attention.implementations import IMPLEMENTATIONS

    best = best_of(log, asked)
    for setting in dict.fromkeys(problem.setting for problem in asked):
        bench = bench_of(setting)
        own = {
            kernel: one
            for (kernel, size), one in best.items()
            if size == setting.head_dim and one is not None
        }
        ours = [("triton, shipped", "triton", {}), ("triton, best", "triton", own)]
        for name, which, chosen in [
            *ours,
            *((one, one, {}) for one in IMPLEMENTATIONS if one.startswith("sdpa")),
        ]:
            for passes in ("forward", "backward"):
                if log.find_peer(setting, passes, name) is None:
                    log.add(time_peer(bench, passes, name, which, chosen))


def report(log: Log, architecture: str, asked: Sequence[Problem]) -> str:
    """Everything that a log holds of these problems."""
    begun = {one.problem for one in log.tried if one.step != "compile"}
    lines = [
        line(choose(log.tried, one, shipped(architecture, one))) for one in asked if one in begun
    ]
    for (kernel, head_dim), best in best_of(log, asked).items():
        own = configuration(architecture, kernel, head_dim, element_bytes=2)
        lines.append(group_line(kernel, head_dim, own, best))
    return "\n".join([*lines, *peer_lines(log.peers)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0; 2 for no GPU or input that cannot be used; 130 where Ctrl-C ended it."""
    options = parse(arguments)
    try:
        masks = [MASKS[name] for name in options.masks]
        chosen = settings([parse_shape(text) for text in options.shapes], options.head_dims, masks)
        device, architecture = opened(options.device)
        log = begin(
            options.log or own_folder() / f"flash-{architecture}.jsonl",
            header(device, architecture),
            resume=options.resume,
        )
    except (RooflineError, NoSuchArchitecture) as error:
        print(f"flash_tuning: {error}", file=sys.stderr)
        return 2
    from tuning.timing import Bench

    asked = list(problems(chosen, options.kernels))
    judge = functools.partial(why_not, most_spills=options.most_spills)
    sweep = Sweep(judge, options.jobs, options.finals, options.turns)
    return run(
        log,
        architecture,
        asked,
        sweep,
        lambda setting: Bench(device, setting, options.budget),
        options,
    )


def run(
    log: Log,
    architecture: str,
    asked: Sequence[Problem],
    sweep: Sweep,
    bench_of: Callable,
    options: argparse.Namespace,
) -> int:
    """Sweep, time the peers, report, and write what was asked for; interrupted, report what there is."""
    status = 0
    try:
        tune(log, architecture, asked, sweep, bench_of)
        if options.peers:
            time_peers(log, asked, bench_of)
    except KeyboardInterrupt:
        print(
            f"interrupted; {log.path} keeps what was found, and --resume goes on", file=sys.stderr
        )
        status = INTERRUPTED
    print(report(log, architecture, asked))
    best = {group: one for group, one in best_of(log, asked).items() if one is not None}
    if options.json and best:
        options.json.write_text(as_json(architecture, best), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())

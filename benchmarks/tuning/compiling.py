"""What the compiler says of a candidate before anything is launched, several at once in processes of their own.

Each compiles as a launch would, for a stand-in of the GPU: so the launch finds the binary in Triton's cache.
"""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pytest_roofline.core.resources import spills_of
from roofline_kernels.attention.architectures import SHARED_BYTES
from roofline_kernels.attention.configurations import Configuration, chosen
from tuning.problems import Problem

DIED = "the compiler died of it"
Task = TypeVar("Task")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One configuration of one problem on one architecture."""

    architecture: str
    problem: Problem
    configuration: Configuration


class StandIn:
    """As much of Triton's driver as compiling asks for: the GPU that it compiles for. It can launch nothing."""

    def __init__(self, target: object) -> None:
        self._target = target

    def get_current_target(self) -> object:
        """What to compile for."""
        return self._target

    def get_current_device(self) -> str:
        """What Triton keeps its binaries by: each target is a device of its own."""
        return str(self._target)

    def get_current_stream(self, device: str) -> int:
        """Of no use, and asked for."""
        return 0


def figures(candidate: Candidate) -> dict[str, int]:
    """What its binary asks for, by name. It leaves the stand-in as this process's driver."""
    from pytest_roofline.kernel_gate.compile import read

    return read(compiled(candidate)).figures


def compiled(candidate: Candidate) -> Any:
    """Triton's compiled kernel of a candidate. It leaves the stand-in as this process's driver."""
    import torch
    import triton

    from pytest_roofline.kernel_gate.targets import gpu_target
    from roofline_kernels.attention.ahead import Shape, launch_ahead

    problem, setting = candidate.problem, candidate.problem.setting
    sizes = {
        "seq_q": setting.sequence,
        "seq_k": setting.sequence,
        "heads": setting.heads,
        "heads_k": setting.heads,
    }
    shape = Shape(setting.head_dim, torch.bfloat16, **sizes, batch=setting.batch)
    triton.runtime.driver.set_active(StandIn(gpu_target(candidate.architecture)))
    with chosen(**{problem.kernel: candidate.configuration}):
        launch = launch_ahead(candidate.architecture, problem.kernel, shape, causal=setting.causal)
    return launch.kernel.warmup(
        grid=(launch.programs,), **launch.arguments, **launch.tiles.options()
    )


def why_not(candidate: Candidate, most_spills: int) -> str:
    """Why a candidate is not worth a launch; empty where it is."""
    try:
        asked = figures(candidate)
    except Exception as error:
        # Of many kinds, and whichever it is: the others are still to be heard.
        return f"cannot be compiled: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return too_much(asked, SHARED_BYTES[candidate.architecture], most_spills)


def too_much(asked: dict[str, int], limit_bytes: int, most_spills: int) -> str:
    """What of a binary's figures rules it out: more shared memory than there is, or more spills than are tolerated."""
    if asked["shared_bytes"] > limit_bytes:
        return f"needs {asked['shared_bytes']:,} bytes of shared memory, there are {limit_bytes:,}"
    spills = spills_of(asked)
    return f"{spills:,} spills" if spills is not None and spills > most_spills else ""


def judged(
    tasks: Sequence[Task], judge: Callable[[Task], str], jobs: int
) -> Iterator[tuple[Task, str]]:
    """What `judge` says of each task, as it comes.

    A fault inside the compiler ends its process. So each process has one task at a time, and is replaced.
    """
    own, pools = threading.local(), list[ProcessPoolExecutor]()

    def heard(task: Task) -> tuple[Task, str]:
        if getattr(own, "pool", None) is None:
            own.pool = _pool()
            pools.append(own.pool)
        try:
            return task, own.pool.submit(judge, task).result()
        except BrokenProcessPool:
            own.pool = None
            return task, DIED

    with ThreadPoolExecutor(jobs) as threads:
        try:
            for future in as_completed([threads.submit(heard, task) for task in tasks]):
                yield future.result()
        finally:
            threads.shutdown(cancel_futures=True)
            for pool in pools:
                pool.shutdown()


def _pool() -> ProcessPoolExecutor:
    # Forked, a child would share the parent's CUDA context. Ctrl-C is for the parent: it waits for what is being done.
    ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), initializer=ignore
    )

"""The identity of a program and of the machine that it runs on, found without torch."""

import functools
from collections.abc import Sequence
from pathlib import Path

from ..core.facts import DeviceFacts, Environment
from ..engine.checkout import code_of
from ..engine.devices import amd, nvidia
from ..engine.host import host_facts, processor_facts
from ..engine.identity import variables
from ..processes.programs import Surroundings, identity_of
from .sides import CACHES, PreparedSide


def environment_of(side: PreparedSide, words: Sequence[str], printed: str) -> Environment:
    """Return the environment of a process of a program.

    Args:
        side: whose process it was.
        words: the command that ran.
        printed: the text in which it may have stated its version.
    """
    return Environment(
        device=_device(),
        host=host_facts(asks_torch=False),
        software=identity_of(words, Surroundings(side.cwd, side.environ), printed),
        code=code_of(Path(side.folder or side.cwd)),
        # The folders of caches always differ between sides.
        variables={
            name: text for name, text in variables(side.environ).items() if name not in CACHES
        },
    )


@functools.cache
def _device() -> DeviceFacts:
    """Return the first GPU that a driver tells of, or the CPU."""
    # AMD's library is asked only where NVIDIA's knows no GPU.
    gpus = nvidia.gpus() or amd.gpus() or []
    if not gpus:
        return processor_facts(host_facts(asks_torch=False))
    gpu = gpus[0]
    return DeviceFacts(
        # Torch calls the GPUs of both vendors so.
        type="cuda",
        product=gpu.product,
        index=gpu.index,
        uuid=gpu.uuid,
        memory_bytes=gpu.memory_bytes,
        partition=gpu.partition,
        driver=gpu.driver,
        power_limit_w=gpu.power_limit_w,
    )

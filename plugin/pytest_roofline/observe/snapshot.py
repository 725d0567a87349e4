"""torch's own record of a call's allocations, with their stacks, as a file for the viewer at pytorch.org/memory_viz."""

import itertools
from collections.abc import Callable
from pathlib import Path

import torch

from ..core.memory import out_of_memory
from ..engine.devices import Device

# Of a step of the largest transformer some 30,000 are expected; older ones are dropped, so that memory has an end.
MOST_EVENTS = 200_000


def why_not(device: Device) -> str:
    """Why there can be no snapshot on a device; empty where there can."""
    if not device.name.startswith("cuda"):
        return f"{device.name} keeps no history of its memory; torch has that on CUDA and ROCm devices"
    if not hasattr(torch.cuda.memory, "_record_memory_history"):
        return f"torch {torch.__version__} keeps no history of its memory"
    return ""


def snapshot(device: Device, call: Callable[[], object], folder: Path, name: str) -> Path:
    """Make a call under torch's memory history and write what that saw; the file, never one that was there.

    Of a call that runs out of memory it is the history up to there, while it still holds what it holds.

    Both functions of torch are documented, whatever their names say (docs.pytorch.org, "Understanding CUDA Memory
    Usage").

    Args:
        device: a CUDA or ROCm device.
        call: what to look at.
        folder: made where it is not there.
        name: of the file, without its ending and without `~`, behind which a number stands where it is taken.

    Raises:
        OSError: the folder or the file cannot be written.
        Exception: whatever the call raises, apart from running out of memory.
    """
    path = _reserved(folder, name)
    try:
        torch.cuda.memory._record_memory_history(max_entries=MOST_EVENTS)
        try:
            try:
                call()
                device.synchronize()
            except Exception as error:
                if out_of_memory(error) is None:
                    raise
                torch.cuda.memory._dump_snapshot(str(path))
            else:
                torch.cuda.memory._dump_snapshot(str(path))
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)
    except BaseException:
        # What is half a snapshot, or none, must not look like one.
        path.unlink(missing_ok=True)
        raise
    return path


def _reserved(folder: Path, name: str) -> Path:
    """A new and empty file."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = folder / f"{name}{f'~{number}' if number > 1 else ''}.pickle"
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        return path
    raise AssertionError("numbers do not end")

"""What cannot be found of a call's memory, and why: each as the words behind `missing:`."""

from collections.abc import Iterator

from torch import nn

from ...core.units import format_memory
from ..devices import Device
from .tracking import Tracker

# Devices whose work can be recorded into a graph, which is replayed without any operator.
_WITH_GRAPHS = ("cuda", "xpu")


def unseen(device: Device, tracker: Tracker) -> Iterator[str]:
    """Of a call that passed no operator, or none that allocated: what is here is hardly what the call took."""
    graph = ", as where a graph is replayed" if device.name.partition(":")[0] in _WITH_GRAPHS else ""
    if not tracker.seen:
        yield f"all that the call itself did: no operator of it was seen on {device.name}{graph}"
    elif graph and not any(block.made != "before" for block, *_ in tracker.log.changes):
        yield f"what passes no operator: none of the call's operators allocated anything{graph}"


def uncounted(device: Device, rise_bytes: int | None, returned_bytes: int) -> Iterator[str]:
    """What the device's own counter does not tell.

    Args:
        device: that counts.
        rise_bytes: what it told; None for nothing.
        returned_bytes: what was there before the call and given back in it, where the counter does not see that.
    """
    if rise_bytes is None:
        yield f"the device's own peak, which {device.name} does not tell here"
    elif returned_bytes:
        yield (
            f"{format_memory(returned_bytes)} that were there before the call and were given back in it, which the "
            f"counter of {device.name} does not see go"
        )


def uncompiled(function: object, model: nn.Module | None) -> Iterator[str]:
    """What code that torch.compile made does in its own way."""
    if is_compiled(function) or is_compiled(model):
        yield "what compiled code allocates: its operators ran one by one here"


def is_compiled(function: object) -> bool:
    """Whether torch.compile made something, or any submodule of it."""
    if isinstance(function, nn.Module):
        modules = list(function.modules())
        return any(hasattr(one, "_orig_mod") or getattr(one, "_compiled_call_impl", None) for one in modules)
    return hasattr(function, "_torchdynamo_orig_callable")

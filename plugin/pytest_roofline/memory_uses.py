"""What the memory of one call goes into: from the call of `roofline.memory` to the record in the run file."""

from collections.abc import Callable, Mapping
from typing import Any

from .core.errors import BadInput
from .core.memory_use import MemoryUse
from .requests import argument_maker, check_callable
from .subject import Subject


def take_memory(
    subject: Subject,
    fn: Callable[..., object],
    *,
    args: tuple[object, ...] | list[object] | None,
    make_args: Callable[[], object] | None,
    model: Any,
    optimizer: Any,
    predicted: Mapping[str, int] | None,
    name: str | None,
) -> MemoryUse:
    """Make one call of a test, follow its memory, and write down what that went into.

    Raises:
        BadInput: an argument cannot be used as given, or nothing of the call lies on the device.
        Exception: whatever the function raises, out of memory included.
    """
    from .measuring.cache import as_tuple
    from .measuring.memory_use.taking import Call, take

    if not callable(fn):
        raise BadInput(f"memory was given {fn!r}; expected a function to call")
    if predicted is not None and not isinstance(predicted, Mapping):
        raise BadInput(f"predicted is {predicted!r}; expected bytes by submodule: {{'blocks.0': 4096}}")
    make, called = argument_maker(args, make_args, "warm"), subject.fresh_memory(name)
    device = subject.session.ground.device
    found = take(device, Call(check_callable(fn), as_tuple(make()), model, optimizer, predicted))
    use = MemoryUse(
        test_id=subject.test_id,
        label=subject.label(called),
        process=subject.session.process,
        device=device.name,
        name=called,
        peak_bytes=found.peak_bytes,
        phase=found.phase,
        categories=found.categories,
        largest=found.largest,
        before_bytes=found.before_bytes,
        phase_peaks=found.phase_peaks,
        outputs=found.outputs,
        device_peak_bytes=found.device_peak_bytes,
        device_before_bytes=found.device_before_bytes,
        missing=found.missing,
    )
    subject.session.note(use)
    return use

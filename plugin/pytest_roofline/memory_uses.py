"""What the memory of one call goes into: from the call of `roofline.memory` to the record in the run file."""

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .core.errors import BadInput
from .core.memory_use import MemoryUse
from .memory import Place, notice
from .requests import argument_maker, check_callable
from .subject import Subject

if TYPE_CHECKING:
    from .measuring.memory_use.taking import Call, Found


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
    from .measuring.memory_use.taking import Call

    if not callable(fn):
        raise BadInput(f"memory was given {fn!r}; expected a function to call")
    if predicted is not None and not isinstance(predicted, Mapping):
        raise BadInput(f"predicted is {predicted!r}; expected bytes by submodule: {{'blocks.0': 4096}}")
    make, called = argument_maker(args, make_args, "warm"), subject.fresh_memory(name)
    device = subject.session.ground.device
    arguments: list[object] = []
    call = Call(check_callable(fn), arguments, model, optimizer, predicted)
    found = _found(Place(device, called, "memory"), call, arguments, make)
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
        largest_made=found.largest_made,
        before_bytes=found.before_bytes,
        phase_peaks=found.phase_peaks,
        outputs=found.outputs,
        device_peak_bytes=found.device_peak_bytes,
        device_before_bytes=found.device_before_bytes,
        missing=found.missing,
    )
    subject.session.note(use)
    return use


def _found(place: Place, call: "Call", arguments: list[object], make: Callable[[], object]) -> "Found":
    """What was found of a call; its arguments and what the device caches of it are let go of, whatever happens."""
    from .measuring.cache import as_tuple
    from .measuring.memory_use.taking import take

    try:
        arguments.extend(as_tuple(make()))
        return take(place.device, call)
    except BaseException as error:
        # Before anything is released, since how full memory was is a part of it.
        notice(error, place)
        raise
    finally:
        # The traceback of a failure holds on to the call; what it was made with must not stay allocated for that.
        arguments.clear()
        # A device that cannot even do this has failed already, and that failure is the one to report.
        with contextlib.suppress(Exception):
            place.device.release()

"""What the memory of one call goes into: from the call of `roofline.memory` to the record in the run file."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .core.errors import BadInput
from .core.memory_use import MemoryUse
from .measuring.request import Timed
from .memory import Place, notice
from .subject import Subject

if TYPE_CHECKING:
    from .observe.memory_use import FollowedCall


def take_memory(
    subject: Subject,
    fn: Callable[..., object],
    *,
    args: tuple[object, ...] | list[object] | None,
    make_args: Callable[[], object] | None,
    model: Any,
    optimizer: Any,
    name: str | None,
) -> MemoryUse:
    """Make one call of a test, follow its memory, and write down what that went into.

    Raises:
        BadInput: an argument cannot be used as given, or nothing of the call lies on the device.
        Exception: whatever the function raises, out of memory included.
    """
    from .observe.memory_use import FollowedCall

    if not callable(fn):
        raise BadInput(f"memory was given {fn!r}; expected a function to call")
    timed, called = Timed(fn, make_args=make_args, args=args), subject.fresh_memory(name)
    device = subject.session.ground.device
    arguments: list[object] = []
    call = FollowedCall(fn, arguments, model, optimizer)
    empty = MemoryUse(
        test_id=subject.test_id,
        label=subject.label(called),
        process=subject.session.process,
        device=device.name,
        name=called,
        peak_bytes=0,
    )
    use = _followed(Place(device, called, "memory"), call, arguments, timed, empty)
    subject.session.note(use)
    return use


def _followed(place: Place, call: "FollowedCall", arguments: list[object], timed: Timed, empty: MemoryUse) -> MemoryUse:
    """What was found of a call; its arguments and what the device caches of it are let go of, whatever happens."""
    from .observe.memory_use import follow

    try:
        arguments.extend(timed.arguments())
        return follow(place.device, call, empty)
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

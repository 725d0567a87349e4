"""A rank's tasks: it opens its device, runs the functions that its controller names, and answers.

This module imports torch, which takes seconds, so `worker` imports it behind its first message.
"""

import traceback
from typing import Any

import torch

from ..core.errors import without_our_frames
from ..core.units import encodable
from ..engine import host
from ..engine.devices import open_device
from ..engine.log import LatestBlock
from . import facts, lockstep
from .channel import Channel
from .identity import Identity
from .listener import keep_gloo_reachable
from .tasks import JOB, Answer, Task, decode, encode, load
from .worlds import Skipped, Worlds

# Characters of an error's text, and of its traceback.
_MOST_TEXT = 4_000
_MOST_TRACEBACK = 20_000


class Executor:
    """A rank with its device and its worlds, which runs one task after the other."""

    def __init__(
        self, channel: Channel, identity: Identity, kind: str, boot: dict[str, Any]
    ) -> None:
        """Open the device of this rank, and send its facts.

        Args:
            channel: to the controller.
            identity: of this rank.
            kind: of device, such as `cuda`.
            boot: the controller's message with this rank's device and threads, and with addresses.
        """
        self._channel = channel
        self._rank = identity.rank
        local_address, controller_address = channel.addresses
        if boot["several_hosts"]:
            keep_gloo_reachable(local_address, boot["outward"])
        torch.set_num_threads(boot["threads"])
        # The device as the timing engine sees it.
        meter = open_device(kind if kind == "cpu" else f"{kind}:{boot['device']}")
        channel.send(
            {
                "kind": "ready",
                "environment": host.gather(meter),
                "unwanted": facts.unwanted_cpu(meter) if kind == "cpu" else "",
            }
        )
        self._worlds = Worlds(identity, meter, controller_address, boot["store"])

    def leave(self) -> None:
        """Leave the present world."""
        self._worlds.leave()

    def do(self, task: Task) -> None:
        """Run a task, and send its result or its error."""
        try:
            answer = Answer("ok", self._run_task(task))
        except BaseException as error:  # Also SystemExit: a rank ends when its controller says so.
            answer = _answer(error)
        self._channel.send({"kind": "answer", "answer": answer})

    def _run_task(self, task: Task) -> bytes:
        """Return the encoded result of a task.

        After the function has returned, this rank says so, and waits until all ranks have returned.
        """
        function = load(task.function)
        arguments = decode(task.arguments, "an argument")
        rank = self._worlds.enter(task.world)
        result: object = None
        # A task calls its function and returns the result, runs the work of a whole program once, or measures it.
        if task.plan is None:
            result = function(rank, *arguments)
        elif task.plan == JOB:
            lockstep.run_once(rank, function, arguments)
        else:
            result = lockstep.measure(rank, function, arguments, task.plan, self._tell)
        encoded = encode(result, f"the result of rank {self._rank}")
        rank.meter.synchronize()
        self._channel.send({"kind": "closing", "collectives": self._worlds.collectives})
        self._worlds.in_step(task.number)
        return encoded

    def _tell(self, progress: LatestBlock) -> None:
        """Send the latest block of a measurement to the controller."""
        self._channel.send({"kind": "progress", "progress": progress})


def _answer(error: BaseException) -> Answer:
    """Return the answer of a task that raised or skipped."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception as broken:  # An exception may fail to tell what it is.
        text = f"(the text of the error cannot be read: {type(broken).__name__})"
    # pytest's own skip is known by its name, since ranks never import pytest by themselves.
    if isinstance(error, Skipped) or name == "Skipped":
        return Answer("skipped", error=encodable(text)[:_MOST_TEXT])
    # The author of the rank function does not need the frames that lead to it.
    with without_our_frames(error):
        try:
            stack = "".join(traceback.format_exception(error))
        except Exception:
            stack = "".join(traceback.format_tb(error.__traceback__)) + name
    line = f"{name}: {text}" if text else name
    return Answer(
        "raised", error=encodable(line)[:_MOST_TEXT], traceback=_shorten(encodable(stack))
    )


def _shorten(text: str) -> str:
    """Return a traceback without its middle, if it is long. The place and the error stay."""
    half = _MOST_TRACEBACK // 2
    return text if len(text) <= _MOST_TRACEBACK else f"{text[:half]} … {text[-half:]}"

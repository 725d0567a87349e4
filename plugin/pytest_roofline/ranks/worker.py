"""A rank: `python -m pytest_roofline.ranks.worker`, the one command that every launcher starts.

It connects to its controller, introduces itself, and does one task after the other. A thread listens meanwhile: if the
controller is gone, the rank ends too, even in the middle of a collective. The import of torch takes seconds, so it
comes last. Before it, the rank has arranged that it ends with its parent, and that the processes which it forks end
with it.
"""

import contextlib
import faulthandler
import os
import queue
import signal
import socket
import sys
import tempfile
import threading
import traceback
from typing import TYPE_CHECKING, Any

from ..core.errors import without_our_frames
from ..core.units import encodable
from ..engine.devices.base import started_by
from ..processes.system import (
    descendants,
    die_with_parent,
    guard_group,
    kill_each,
    process_now,
    process_space,
)
from .channel import Channel, connect, pop_controller
from .identity import Identity, identify
from .listener import keep_gloo_reachable
from .tasks import JOB, Answer, Task, decode, encode, load

if TYPE_CHECKING:
    from ..engine.log import LatestBlock

# Seconds to reach the controller, which listens before it starts ranks.
CONNECT_S = 60.0
# Seconds for an orderly end, before the rank kills itself: twice as long as the controller waits.
LEAVE_S = 10.0
# Characters of an error's text, and of its traceback.
_MOST_TEXT = 4_000
_MOST_TRACEBACK = 20_000


def serve(identity: Identity) -> int:
    """Connect to the controller, and serve it until it says stop.

    Return the exit status.
    """
    try:
        channel = connect(pop_controller(), CONNECT_S)
    except ConnectionError as error:
        print(f"rank {identity.rank} on {socket.gethostname()}: {error}", file=sys.stderr)
        return 1
    return Server(channel, identity).serve()


class Server:
    """The side of a rank that serves its controller."""

    def __init__(self, channel: Channel, identity: Identity) -> None:
        self._channel = channel
        self._identity = identity
        self._inbox: queue.Queue[Any] = queue.Queue()
        # A file without a name, of which nothing is left, however this process ends. Signals write stacks into it.
        self._stacks = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process lives
        if hasattr(faulthandler, "register"):
            faulthandler.register(signal.SIGUSR1, file=self._stacks, all_threads=True)

    def serve(self) -> int:
        """Serve the controller for the rank's whole life. Return the exit status."""
        identity = self._identity
        self._channel.send(
            {
                "kind": "hello",
                "rank": identity.rank,
                "size": identity.size,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "stacks": self._stacks.fileno(),
                "space": process_space(),
                "ticks": process_now(os.getpid()).ticks,
            }
        )
        join = self._channel.receive()
        threading.Thread(target=self._listen, daemon=True, name="roofline-controller").start()
        sys.path[:] = list(dict.fromkeys([*join["path"], *sys.path]))
        with contextlib.suppress(OSError):
            os.chdir(join["folder"])
        from . import facts

        self._channel.send(
            {
                "kind": "facts",
                "facts": facts.gather(identity.rank, identity.local_rank, join["device"]),
            }
        )
        boot = self._inbox.get()
        if boot["kind"] == "stop":
            return 0
        worlds = self._settle_in(join["device"], boot)
        while (message := self._inbox.get())["kind"] != "stop":
            if message["kind"] == "leave":
                worlds.leave()
            else:
                self._do(worlds, message["task"])
        worlds.leave()
        self._channel.close()
        return 0

    def _settle_in(self, kind: str, boot: dict[str, Any]) -> Any:
        """Open the device of this rank, and send its facts.

        Return the `Worlds` of this rank.
        """
        import torch

        from ..engine.devices import open_device
        from ..engine.host import gather
        from .facts import unwanted_cpu
        from .worlds import Worlds

        local_address, controller_address = self._channel.addresses
        if boot["several_hosts"]:
            keep_gloo_reachable(local_address, boot["outward"])
        torch.set_num_threads(boot["threads"])
        meter = open_device(kind if kind == "cpu" else f"{kind}:{boot['device']}")
        self._channel.send(
            {
                "kind": "ready",
                "environment": gather(meter),
                "unwanted": unwanted_cpu(meter) if kind == "cpu" else "",
            }
        )
        return Worlds(self._identity, meter, controller_address, boot["store"])

    def _listen(self) -> None:
        """Receive messages as they come. Kill this rank when the controller is gone.

        A request for stacks is answered at once; all other messages go into the inbox.
        """
        try:
            while True:
                message = self._channel.receive()
                if message["kind"] == "stacks":
                    self._channel.send({"kind": "stacks", "text": self._read_stacks()})
                    continue
                self._inbox.put(message)
                if message["kind"] == "stop":
                    # To leave a group may mean to wait for other ranks, and this thread no longer notices that the
                    # controller is gone.
                    _end_after(LEAVE_S)
                    return
        except BaseException:  # Whatever it was, the controller cannot be served any more.
            _end_at_once()

    def _read_stacks(self) -> str:
        """Return the present stacks of all threads."""
        # Not in the file of the signal, which may hold the stacks of an earlier moment.
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            return file.read()

    def _do(self, worlds: Any, task: Task) -> None:
        """Run a task, and send its result or its error."""
        try:
            answer = Answer("ok", self._run_task(worlds, task))
        except BaseException as error:  # Also SystemExit: a rank ends when its controller says so.
            answer = _answer(error)
        self._channel.send({"kind": "answer", "answer": answer})

    def _run_task(self, worlds: Any, task: Task) -> bytes:
        """Return the encoded result of a task.

        After the function has returned, this rank says so, and waits until all ranks have returned.
        """
        function = load(task.function)
        arguments = decode(task.arguments, "an argument")
        rank = worlds.enter(task.world)
        result: object = None
        if task.plan is None:
            result = function(rank, *arguments)
        elif task.plan == JOB:
            from .lockstep import run_once

            run_once(rank, function, arguments)
        else:
            from .lockstep import measure

            result = measure(rank, function, arguments, task.plan, self._tell)
        encoded = encode(result, f"the result of rank {self._identity.rank}")
        rank.meter.synchronize()
        self._channel.send({"kind": "closing", "collectives": worlds.collectives})
        worlds.in_step(task.number)
        return encoded

    def _tell(self, progress: "LatestBlock") -> None:
        """Send the latest block of a measurement to the controller."""
        self._channel.send({"kind": "progress", "progress": progress})


def _answer(error: BaseException) -> Answer:
    """Return the answer of a task that raised or skipped."""
    from .worlds import Skipped

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


def _end_after(seconds: float) -> None:
    """Kill this process after so many seconds, unless it has ended."""
    timer = threading.Timer(seconds, _end_at_once)
    timer.daemon = True
    timer.start()


def _end_at_once() -> None:
    """Kill this process and all that it started."""
    with contextlib.suppress(OSError):
        if os.getpgrp() == os.getpid() and os.getsid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
    kill_each(descendants(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Serve a controller until it says stop. Return the exit status."""
    faulthandler.enable()
    # Python writes into a log in blocks, so a rank that is lost would lose its last lines.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
    die_with_parent()
    started_by(os.getppid())
    identity = identify(os.environ) or Identity(0, 1, 0, 1, "none")
    # Slurm has all ranks of a node in one group, and itself ends the processes that a rank leaves behind.
    if identity.launcher != "srun":
        guard_group()

    return serve(identity)


if __name__ == "__main__":
    status = main()
    # Without torch's clean-up, which the controller would have to wait for.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

"""A rank: `python -m pytest_roofline.ranks.worker`, the one command that every launcher starts.

It connects to its controller, says what it is, and does one task after the other. A thread listens meanwhile: if the
controller is gone, the rank goes too, even in the middle of a collective. Torch, whose import takes seconds, comes only
after what must hold before it is there: the rank ends with its controller, where that is its parent, and what it forks
ends with it.
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

# For the controller, which listens before it has any rank started.
CONNECT_S = 60.0
# An orderly end that takes longer is none; twice what the controller gives it.
LEAVE_S = 10.0
# Of an error's text and of its traceback.
_MOST_TEXT = 4_000
_MOST_TRACEBACK = 20_000


def serve(identity: Identity) -> int:
    """Serve a controller until it says stop."""
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
        # Without a name: nothing is left behind, however this process ends.
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
        work = self._settle_in(join["device"], boot)
        while (message := self._inbox.get())["kind"] != "stop":
            if message["kind"] == "leave":
                work.leave()
            else:
                self._do(work, message["task"])
        work.leave()
        self._channel.close()
        return 0

    def _settle_in(self, kind: str, boot: dict[str, Any]) -> Any:
        """Open the device of this rank, and tell what it is."""
        import torch

        from ..engine.devices import open_device
        from ..engine.host import gather
        from .facts import unwanted_cpu
        from .worlds import Worlds

        own_address, controllers_address = self._channel.addresses
        if boot["several_hosts"]:
            keep_gloo_reachable(own_address, boot["outward"])
        torch.set_num_threads(boot["threads"])
        meter = open_device(kind if kind == "cpu" else f"{kind}:{boot['device']}")
        self._channel.send(
            {
                "kind": "ready",
                "environment": gather(meter),
                "unwanted": unwanted_cpu(meter) if kind == "cpu" else "",
            }
        )
        return Worlds(self._identity, meter, controllers_address, boot["store"])

    def _listen(self) -> None:
        """Take messages as they come. End this rank when the controller is gone."""
        try:
            while True:
                message = self._channel.receive()
                if message["kind"] == "stacks":
                    self._channel.send({"kind": "stacks", "text": self._read_stacks()})
                    continue
                self._inbox.put(message)
                if message["kind"] == "stop":
                    # Nobody listens any more, and letting go of a group may wait for others.
                    _end_after(LEAVE_S)
                    return
        except BaseException:  # Whatever it was, nobody is left to serve.
            _end_at_once()

    def _read_stacks(self) -> str:
        # Not into the file of the signal, whose stacks are of the moment that was asked about.
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            return file.read()

    def _do(self, worlds: Any, task: Task) -> None:
        try:
            answer = Answer("ok", self._run_task(worlds, task))
        except BaseException as error:  # Also SystemExit: a rank ends when its controller says so.
            answer = _answer(error)
        self._channel.send({"kind": "answer", "answer": answer})

    def _run_task(self, worlds: Any, task: Task) -> bytes:
        function = load(task.function)
        arguments = decode(task.arguments, "an argument")
        rank = worlds.enter(task.world)
        outcome: object = None
        if task.plan is None:
            outcome = function(rank, *arguments)
        elif task.plan == JOB:
            from .lockstep import run_once

            run_once(rank, function, arguments)
        else:
            from .lockstep import measure

            outcome = measure(rank, function, arguments, task.plan, self._tell)
        encoded = encode(outcome, f"the result of rank {self._identity.rank}")
        rank.meter.synchronize()
        self._channel.send({"kind": "closing", "collectives": worlds.collectives})
        worlds.in_step(task.number)
        return encoded

    def _tell(self, progress: "LatestBlock") -> None:
        self._channel.send({"kind": "progress", "progress": progress})


def _answer(error: BaseException) -> Answer:
    from .worlds import Skipped

    name = type(error).__name__
    try:
        text = str(error)
    except Exception as broken:  # An exception may fail to tell what it is.
        text = f"(its text cannot be read: {type(broken).__name__})"
    # pytest's own skip is known by its name, since ranks never import pytest by themselves.
    if isinstance(error, Skipped) or name == "Skipped":
        return Answer("skipped", error=encodable(text)[:_MOST_TEXT])
    # What led to the rank function is none of its author's business.
    with without_our_frames(error):
        try:
            where = "".join(traceback.format_exception(error))
        except Exception:
            where = "".join(traceback.format_tb(error.__traceback__)) + name
    line = f"{name}: {text}" if text else name
    return Answer(
        "raised", error=encodable(line)[:_MOST_TEXT], traceback=_shorten(encodable(where))
    )


def _shorten(text: str) -> str:
    """Return a traceback without its middle, if it is long. The place and the error stay."""
    half = _MOST_TRACEBACK // 2
    return text if len(text) <= _MOST_TRACEBACK else f"{text[:half]} … {text[-half:]}"


def _end_after(seconds: float) -> None:
    timer = threading.Timer(seconds, _end_at_once)
    timer.daemon = True
    timer.start()


def _end_at_once() -> None:
    """End this process and all that it started."""
    with contextlib.suppress(OSError):
        if os.getpgrp() == os.getpid() and os.getsid(0) == os.getpid():
            os.killpg(0, signal.SIGKILL)
    kill_each(descendants(os.getpid()))
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Serve a controller until it says stop. Return the exit status."""
    faulthandler.enable()
    # Into a log they would write in blocks, and a rank that is lost would take its last words along.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)
    die_with_parent()
    started_by(os.getppid())
    identity = identify(os.environ) or Identity(0, 1, 0, 1, "none")
    # Slurm has all ranks of a node in one group, and ends what a rank leaves behind itself.
    if identity.launcher != "srun":
        guard_group()

    return serve(identity)


if __name__ == "__main__":
    status = main()
    # What torch still holds at the end of an orderly life is none of the controller's waiting.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

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
from typing import Any

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

# Seconds to reach the controller, which listens before it starts ranks.
CONNECT_S = 60.0
# Seconds for an orderly end, before the rank kills itself: twice as long as the controller waits.
LEAVE_S = 10.0


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
        """Prepare to serve the controller at the end of a channel.

        Stacks are written at a signal from now on.
        """
        self._channel = channel
        self._identity = identity
        self._inbox: queue.Queue[Any] = queue.Queue()
        # A file without a name, of which nothing is left, however this process ends. Signals write stacks into it.
        self._stacks_file = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process lives
        faulthandler.register(signal.SIGUSR1, file=self._stacks_file, all_threads=True)

    def serve(self) -> int:
        """Serve the controller for the rank's whole life. Return the exit status.

        The controller's messages come in this order: `join` (the kind of device, and where to import from), `boot`
        (this rank's own device and threads), then tasks, and at last `stop`.
        """
        self._introduce()
        join = self._channel.receive()
        # From here on this thread receives all messages, and puts them into the inbox.
        threading.Thread(target=self._listen, daemon=True, name="roofline-controller").start()
        sys.path[:] = list(dict.fromkeys([*join["path"], *sys.path]))
        with contextlib.suppress(OSError):
            os.chdir(join["folder"])
        # The import of torch takes seconds, so it comes after the first message.
        from . import execution, facts

        rank, local_rank = self._identity.rank, self._identity.local_rank
        gathered_facts = facts.gather(rank, local_rank, join["device"])
        self._channel.send({"kind": "facts", "facts": gathered_facts})
        boot = self._inbox.get()
        if boot["kind"] == "stop":
            return 0
        executor = execution.Executor(self._channel, self._identity, join["device"], boot)
        while (message := self._inbox.get())["kind"] != "stop":
            if message["kind"] == "leave":
                executor.leave()
            else:
                executor.do(message["task"])
        executor.leave()
        self._channel.close()
        return 0

    def _introduce(self) -> None:
        """Send the first message of this rank: its number, its host and its process."""
        self._channel.send(
            {
                "kind": "hello",
                "rank": self._identity.rank,
                "size": self._identity.size,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "stacks": self._stacks_file.fileno(),
                "space": process_space(),
                "ticks": process_now(os.getpid()).ticks,
            }
        )

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


def _end_after(seconds: float) -> None:
    """Kill this process after so many seconds, unless it has ended."""
    timer = threading.Timer(seconds, _end_at_once)
    timer.daemon = True
    timer.start()


def _end_at_once() -> None:
    """Kill this process and all that it started."""
    with contextlib.suppress(OSError):
        # The group is killed only if this process leads it and its session; otherwise others may be in it.
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
    alone = Identity(rank=0, size=1, local_rank=0, local_size=1, launcher="none")
    identity = identify(os.environ) or alone
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

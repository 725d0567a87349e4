"""One program on a pretended multiprocessor: its partitions in turn, and copies that come late.

A partition is a thread, and one of them runs at a time. Whenever it comes to a barrier, a copy or a product, a seeded
generator chooses what happens next: a partition goes on, or a copy that was asked for is made. So a seed stands for an
order of events, the same in every run, and a program in which nothing can happen hangs: an error at once.
"""

import random
import threading
from collections.abc import Callable, Sequence


class Fault(AssertionError):
    """A kernel did what hardware does not forgive; the message says what."""


class Stopped(BaseException):
    """Ends the thread of a partition whose program has failed elsewhere."""


class Partition:
    """The thread of a partition, with the products and stores that it has asked for and not waited for."""

    def __init__(self, run: Callable[[], None]) -> None:
        self.products: list = []
        self.stores: list = []
        self.done = False
        self.error: BaseException | None = None
        self.ready: Callable[[], bool] = lambda: True
        self._run = run
        self._resumed, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        self._stopped = False
        self._thread = threading.Thread(target=self._body, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Let it run to its next pause.

        Raises:
            Fault: and whatever else its code raised.
        """
        self._resumed.release()
        self._paused.acquire()
        if self.error is not None:
            raise self.error

    def pause(self) -> None:
        """Let something else happen; called in its own thread."""
        self._paused.release()
        self._resumed.acquire()
        if self._stopped:
            raise Stopped

    def stop(self) -> None:
        """End its thread, wherever it is."""
        if not self.done:
            self._stopped = True
            self._resumed.release()
        self._thread.join()

    def _body(self) -> None:
        self._resumed.acquire()
        try:
            if not self._stopped:
                self._run()
                self._refuse_leftovers()
        except Stopped:
            pass
        except BaseException as error:
            self.error = error
        self.done = True
        self._paused.release()

    def _refuse_leftovers(self) -> None:
        if self.products:
            raise Fault("a partition ended before its products")
        if self.stores:
            raise Fault("a partition ended before its stores had read shared memory")


class Machine:
    """Where one program runs.

    Args:
        program: its number.
        programs: how many there are.
        seed: of the order of events.
    """

    def __init__(self, program: int, programs: int, seed: int) -> None:
        self.program, self.programs = program, programs
        self.copies: list[Callable[[], None]] = []
        self.tiles: list = []
        # That which runs; none before a program parts.
        self.partition: Partition | None = None
        self._random = random.Random(seed)

    def pause(self, ready: Callable[[], bool] = lambda: True) -> None:
        """Let something else happen, or nothing, and go on once `ready` says so."""
        partition = self.partition
        if partition is None:
            assert ready(), "a program waits before it has parted"
            return
        if ready() and self._random.random() < 0.5:
            return
        partition.ready = ready
        partition.pause()

    def run(self, partitions: Sequence[Callable[[], None]]) -> None:
        """Run partitions to their ends.

        Raises:
            Fault: they do not get there.
        """
        running = [Partition(run) for run in partitions]
        try:
            while not all(partition.done for partition in running):
                self._step(running)
        finally:
            for partition in running:
                partition.stop()
            self.partition = None

    def _step(self, running: Sequence[Partition]) -> None:
        able = [partition for partition in running if not partition.done and partition.ready()]
        events = [*able, *self.copies]
        if not events:
            waiting = [number for number, partition in enumerate(running) if not partition.done]
            raise Fault(f"partitions {waiting} wait for what never comes")
        event = self._random.choice(events)
        if isinstance(event, Partition):
            self.partition = event
            event.resume()
        else:
            self.copies.remove(event)
            event()

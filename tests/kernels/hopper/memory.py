"""Shared memory of a pretended multiprocessor: tiles that know who reads and writes them, and barriers."""

import torch

from .machine import Fault


class Tile:
    """One tile: its numbers, how often they were changed, and what is going on with them."""

    def __init__(self, shape, dtype):
        # Nothing was written yet, and whoever reads it is to see that.
        self.numbers = torch.full(shape, torch.nan, dtype=dtype)
        self.changes = 0
        self.loading = False
        # Written by threads, and not yet to be seen by copies and products.
        self.unfenced = False
        self.stores = 0

    def change(self):
        """Note that it is written.

        Raises:
            Fault: something else is using it.
        """
        if self.loading:
            raise Fault("a tile was written while a copy into it was under way")
        if self.stores:
            raise Fault("a tile was written while a store read it")
        self.changes += 1

    def read(self):
        """Note that a copy or a product reads it, and return the number of its changes.

        Raises:
            Fault: it is not there to be read.
        """
        if self.loading:
            raise Fault("a tile was read before its copy had come")
        if self.unfenced:
            raise Fault("a tile was read without a fence behind the threads that wrote it")
        return self.changes


class View:
    """A tile in another shape or with its dimensions turned."""

    def __init__(self, tile, numbers):
        self.tile, self.numbers = tile, numbers

    def reshape(self, shape):
        """The same numbers in another shape."""
        return View(self.tile, self.numbers.view(shape))

    def permute(self, order):
        """The same numbers with dimensions in another order."""
        return View(self.tile, self.numbers.permute(order))

    def store(self, values):
        """Write the tile from registers."""
        assert (values.shape, values.dtype) == (self.numbers.shape, self.numbers.dtype)
        self.tile.change()
        self.numbers.copy_(values)
        self.tile.unfenced = True


class Shared:
    """What was allocated: tiles, or barriers, one beside the other."""

    def __init__(self, items):
        self.items = items

    def index(self, place):
        """One of them."""
        if not 0 <= int(place) < len(self.items):
            raise Fault(f"there is no item {int(place)} of {len(self.items)} in shared memory")
        item = self.items[int(place)]
        return View(item, item.numbers) if isinstance(item, Tile) else item


class Barrier:
    """An mbarrier: a phase ends once as many have arrived as it expects, and all bytes have."""

    def __init__(self):
        self.count = self.missing = self.missing_bytes = self.phase = 0

    def init(self, count):
        """Expect so many from now on."""
        self.count = self.missing = count

    def arrive(self, count=1, expected_bytes=0):
        """Arrive, perhaps on behalf of copies that are to come.

        Raises:
            Fault: more arrive than are expected.
        """
        if count > self.missing:
            raise Fault("more arrived at a barrier than it expects")
        self.missing -= count
        self.missing_bytes += expected_bytes
        self._end_phase()

    def land(self, landed_bytes):
        """Note that bytes have come."""
        self.missing_bytes -= landed_bytes
        self._end_phase()

    def passed(self, parity):
        """Whether the phase of this parity is over: the one before the first is, too."""
        return self.phase != parity

    def _end_phase(self):
        if self.missing == 0 and self.missing_bytes == 0:
            self.phase ^= 1
            self.missing = self.count

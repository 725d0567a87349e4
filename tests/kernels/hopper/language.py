"""Gluon's words for Hopper as a pretended multiprocessor has them: as many as the kernels use.

Tensors are torch's, and layouts are nothing: what they say is for the compiler to check, as are registers and sizes.
"""

import functools
from types import SimpleNamespace

import torch

from .machine import Fault
from .memory import Barrier, Shared, Tile, View


class Descriptor:
    """A tensor by blocks, as a kernel is given it; what lies beyond the tensor reads as zero and is not written."""

    def __init__(self, base, block_shape):
        self.base, self.block_shape, self.dtype = base, block_shape, base.dtype
        self.layout = None

    def place(self, corner):
        """Where a block lies in the tensor, and the part of the block that does."""
        starts = [int(start) for start in corner]
        ends = [start + size for start, size in zip(starts, self.block_shape, strict=True)]
        limits = [
            (max(start, 0), max(min(end, size), start, 0))
            for start, end, size in zip(starts, ends, self.base.shape, strict=True)
        ]
        inside = tuple(slice(low, max(low, high)) for low, high in limits)
        part = tuple(
            slice(low - start, max(low, high) - start)
            for (low, high), start in zip(limits, starts, strict=True)
        )
        return inside, part


class Pointer:
    """The address of an element of a dense tensor, or of several."""

    def __init__(self, base, offset=0):
        self.base, self.offset = base, offset

    def __add__(self, offset):
        return Pointer(self.base, self.offset + offset)


class Product:
    """A product that was asked for, with the tiles that it reads until it is waited for."""

    def __init__(self, value, tiles):
        self.value = value
        self.tiles = [(tile, tile.read()) for tile in tiles]
        self.finished = False

    def finish(self):
        """Note that it is waited for.

        Raises:
            Fault: what it reads was changed meanwhile.
        """
        if any(tile.loading or tile.changes != changes for tile, changes in self.tiles):
            raise Fault("a tile was overwritten under a product that reads it")
        self.finished = True


def language(machine):
    """Each of Gluon's words by its name."""
    return SimpleNamespace(
        gl=_gl(machine),
        mbarrier=_mbarrier(machine),
        tma=_tma(machine),
        fence_async_shared=functools.partial(_fence, machine),
        warpgroup_mma=functools.partial(_multiply, machine),
        warpgroup_mma_wait=functools.partial(_wait_for_products, machine),
    )


def _gl(machine):
    def nothing(*_, **__):
        return None

    def allocate(dtype, shape, layout):
        count, *tile = shape
        items = [Barrier() if dtype == torch.int64 else Tile(tile, dtype) for _ in range(count)]
        machine.tiles += [item for item in items if isinstance(item, Tile)]
        return Shared(items)

    def specialize(parts, warps, registers):
        machine.run([functools.partial(function, *arguments) for function, arguments in parts])

    layouts = ("NVMMADistributedLayout", "DotOperandLayout", "SliceLayout")
    return SimpleNamespace(
        **dict.fromkeys(layouts, nothing),
        float32=torch.float32, int64=torch.int64, static_range=range,
        program_id=lambda axis: machine.program, num_programs=lambda axis: machine.programs,
        allocate_shared_memory=allocate, warp_specialize=specialize,
        zeros=lambda shape, dtype, layout: torch.zeros(shape, dtype=dtype),
        full=lambda shape, value, dtype, layout: torch.full(shape, value, dtype=dtype),
        arange=lambda start, end, layout: torch.arange(start, end),
        where=torch.where, exp2=torch.exp2, log2=torch.log2, max=torch.amax, sum=torch.sum,
        minimum=_of_either(torch.minimum, min), maximum=_of_either(torch.maximum, max),
        convert_layout=lambda tensor, layout: tensor, cast=lambda number, dtype: number,
        store=_store_values,
    )  # fmt: skip


def _of_either(of_tensors, of_numbers):
    return lambda left, right: (
        of_tensors(left, right) if torch.is_tensor(left) else of_numbers(left, right)
    )


def _store_values(pointer, values, mask):
    places = pointer.offset[mask]
    if places.numel() and not 0 <= int(places.min()) <= int(places.max()) < pointer.base.numel():
        raise Fault("a value was stored outside of its tensor")
    pointer.base.view(-1)[places] = values[mask]


def _mbarrier(machine):
    def arrive(barrier, *, count=1, pred=True):
        machine.pause()
        if pred:
            barrier.arrive(count)

    def wait(barrier, phase, pred=True):
        if pred:
            machine.pause(lambda: barrier.passed(phase))

    def expect(barrier, expected_bytes):
        machine.pause()
        barrier.arrive(1, expected_bytes)

    return SimpleNamespace(
        MBarrierLayout=lambda: None,
        init=lambda barrier, count: barrier.init(count),
        wait=wait,
        arrive=arrive,
        expect=expect,
    )


def _tma(machine):
    def load(descriptor, corner, barrier, view):
        machine.pause()
        tile, (inside, part) = view.tile, descriptor.place(corner)
        tile.change()
        tile.loading = True
        view.numbers.fill_(torch.nan)

        def land():
            tile.loading = False
            view.numbers.zero_()
            view.numbers[part] = descriptor.base[inside]
            barrier.land(view.numbers.numel() * view.numbers.element_size())

        machine.copies.append(land)

    def store(descriptor, corner, view):
        machine.pause()
        tile, (inside, part) = view.tile, descriptor.place(corner)
        tile.read()
        tile.stores += 1
        stores = machine.partition.stores

        def land():
            tile.stores -= 1
            descriptor.base[inside] = view.numbers[part]
            stores.remove(land)

        stores.append(land)
        machine.copies.append(land)

    def store_wait(left):
        stores = machine.partition.stores
        machine.pause(lambda: len(stores) <= left)

    return SimpleNamespace(async_load=load, async_store=store, store_wait=store_wait)


def _fence(machine):
    for tile in machine.tiles:
        tile.unfenced = False


def _multiply(machine, left, right, sums, *, use_acc=True, is_async=False):
    machine.pause()
    numbers = left.numbers if isinstance(left, View) else left
    value = numbers.float() @ right.numbers.float()
    product = Product(
        value + sums if use_acc else value,
        [operand.tile for operand in (left, right) if isinstance(operand, View)],
    )
    if not is_async:
        return product.value
    machine.partition.products.append(product)
    return product


def _wait_for_products(machine, left, deps):
    machine.pause()
    products = machine.partition.products
    while len(products) > left:
        products.pop(0).finish()
    values = []
    for value in deps:
        if isinstance(value, Product) and not value.finished:
            raise Fault("a product was handed on before it was waited for")
        values.append(value.value if isinstance(value, Product) else value)
    return values[0] if len(values) == 1 else tuple(values)

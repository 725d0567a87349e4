"""A small kernel in Gluon, apart from the others, since not every Triton has Gluon."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

# Triton 3.6 knows them by longer names.
load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def copy_tile(source, target):
    """Copy the first tile of a matrix."""
    tile = gl.allocate_shared_memory(source.dtype, source.block_type.shape, source.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    mbarrier.expect(full, source.block_type.nbytes)
    load_tile(source, [0, 0], full, tile)
    mbarrier.wait(full, 0)
    fence_async_shared()
    store_tile(target, [0, 0], tile)
    tma.store_wait(0)

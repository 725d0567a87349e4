"""Triton kernels on CPU tensors, in Triton's interpreter: slow, for checking what a kernel does and nothing else.

Triton decides when a kernel is decorated whether it will be compiled or interpreted. Here a compiled kernel gets an
interpreted twin, so that one process can do both: check on the CPU, and compile for a GPU that is elsewhere.
"""

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.runtime import interpreter

with contextlib.suppress(ImportError):
    # A launch imports it in passing where it is there, and it must not find the language half interpreted.
    import triton.experimental.gluon

# What a launch may say that means something to compiled kernels only.
COMPILED_ONLY = (
    "num_warps",
    "num_stages",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "enable_fp_fusion",
)


class _Twin(interpreter.InterpretedFunction):  # type: ignore[misc]
    """An interpreted function that leaves the language alone when another one calls it: a launch has changed it once.

    Triton's own changes it anew at every call, which takes a quarter of the time.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it from within a launch."""
        return self.rewrite()(*args, **kwargs)


# Each kernel's twin, so that functions which call each other get one each.
_twins: dict[Callable[..., Any], Any] = {}


def interpreted(kernel: Any) -> Any:
    """The interpreted twin of a kernel, and of the functions that it calls; launched as `twin[grid](...)`.

    Args:
        kernel: a function decorated with `triton.jit`; one that is interpreted already stays as it is.
    """
    if isinstance(kernel, interpreter.InterpretedFunction):
        return kernel
    own = kernel.fn
    if own not in _twins:
        scope: dict[str, Any] = {}
        twin = types.FunctionType(
            own.__code__, scope, own.__name__, own.__defaults__, own.__closure__
        )
        twin.__kwdefaults__, twin.__annotations__ = own.__kwdefaults__, own.__annotations__
        _twins[own] = _Twin(twin)
        scope.update(own.__globals__)
        scope.update(
            {
                name: interpreted(value)
                for name, value in own.__globals__.items()
                if isinstance(value, triton.JITFunction)
            }
        )
    return _twins[own]


# What Triton's interpreter changes for a launch. It puts back what the kernel itself sees, but not what functions of
# `tl.standard` see, which is `tl.core`; after that nothing that calls them would compile.
_CHANGED = (
    tl,
    tl.core,
    tl.standard,
    tl.math,
    tl.tensor,
    tl.dtype,
    tl.condition,
    tl.core.tensor_descriptor_base,
)


@contextlib.contextmanager
def interpreted_language() -> Iterator[None]:
    """Let the functions of `triton.language` that are kernels themselves (`tl.sum`, `tl.cdiv`) be interpreted.

    In `tl.standard` as well: there the interpreter looks up what a reduction does, to have numpy do it at once.
    Afterwards all of the language is as it was.
    """
    before = [(space, dict(vars(space))) for space in _CHANGED]
    for module in (tl, tl.standard):
        for name, value in dict(vars(module)).items():
            if isinstance(value, triton.JITFunction):
                setattr(module, name, interpreted(value))
    try:
        # The kernel's own view of the language is changed by its launch; this is what `tl.sum` and its like see.
        interpreter._patch_lang(tl.sum.fn)
        yield
    finally:
        for space, own in before:
            for name in vars(space).keys() - own.keys():
                # A module that was imported meanwhile stays where its importers look for it. So does what Triton puts
                # beside its own functions under TRITON_INTERPRET=1, since it does so once and they ask at every call.
                value = getattr(space, name)
                if (
                    not isinstance(value, types.ModuleType)
                    and vars(interpreter).get(name) is not value
                ):
                    delattr(space, name)
            for name, value in own.items():
                if vars(space)[name] is not value:
                    setattr(space, name, value)


@contextlib.contextmanager
def bfloat16_as_it_is() -> Iterator[None]:
    """Mend the interpreter's bfloat16, which it keeps as bit patterns in 16-bit integers, for the time of a launch.

    Its `tl.dot` multiplies the bit patterns (triton issue 11584, which was closed without a fix), and its conversion
    from float32 cuts bits off, where GPUs round to the nearest, ties to even. A test says when this is needed no more.
    """
    builder = interpreter.InterpreterBuilder
    dot, narrow = builder.create_dot, builder.create_fp_trunc

    def mended_dot(self: Any, a: Any, b: Any, accumulator: Any, *rest: Any) -> Any:
        return dot(self, _as_float32(a), _as_float32(b), accumulator, *rest)

    def mended_narrow(self: Any, source: Any, wanted: Any) -> Any:
        if wanted.scalar == tl.bfloat16 and source.dtype.scalar == tl.float32:
            return interpreter.TensorHandle(round_to_bfloat16(source.data), tl.bfloat16)
        return narrow(self, source, wanted)

    builder.create_dot, builder.create_fp_trunc = mended_dot, mended_narrow
    try:
        yield
    finally:
        builder.create_dot, builder.create_fp_trunc = dot, narrow


@contextlib.contextmanager
def scalars_as_bounds() -> Iterator[None]:
    """Let a scalar, which the interpreter keeps as an array of one element, bound a loop, for the time of a launch.

    Triton 3.6 makes an integer of the array itself, which numpy refuses since 2.4; later ones of its element.
    """
    patch = interpreter._patch_lang_tensor

    def mended(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda scalar: int(scalar.handle.data.item()))

    interpreter._patch_lang_tensor = mended
    try:
        yield
    finally:
        interpreter._patch_lang_tensor = patch


def round_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 as bfloat16 bit patterns, uint16 of the same shape: to the nearest, ties to even; NaN stays one."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def _as_float32(handle: Any) -> Any:
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    return interpreter.TensorHandle(
        (handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32
    )


def launch_interpreted(kernel: Any, grid: tuple[int, ...], arguments: dict[str, Any]) -> None:
    """Run a kernel over a grid on CPU tensors.

    Args:
        kernel: a function decorated with `triton.jit`.
        grid: programs in each of up to three dimensions.
        arguments: by name; options of compiled kernels among them are left out.
    """
    kept = {name: value for name, value in arguments.items() if name not in COMPILED_ONLY}
    # As on a GPU, what overflows in rows that are never stored is nobody's business.
    with (
        scalars_as_bounds(),
        interpreted_language(),
        bfloat16_as_it_is(),
        np.errstate(over="ignore", invalid="ignore"),
    ):
        interpreted(kernel)[grid](**kept)

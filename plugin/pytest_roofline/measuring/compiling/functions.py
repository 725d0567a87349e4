"""What a user calls a kernel, as Triton's compiler takes it; and Triton itself, where it is one that can be used."""

import inspect
from collections.abc import Iterable
from typing import Any

from ...core.errors import BadInput

# From here on a back end tells apart what it knows of a number and of a tensor; tried are 3.6 and 3.9.
OLDEST_TRITON = (3, 6)


def usable_triton() -> Any:
    """The module.

    Raises:
        BadInput: it is not installed, cannot be imported, or is too old.
    """
    try:
        import triton
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "triton":
            raise BadInput(
                "Triton is not installed, and kernels are compiled with it; pip install 'pytest-roofline[triton]'"
            ) from None
        raise BadInput(f"Triton is installed and cannot be imported: {error}; expected a whole installation") from error
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if version < OLDEST_TRITON:
        needed = ".".join(map(str, OLDEST_TRITON))
        raise BadInput(f"Triton is {triton.__version__}; expected {needed} or newer to compile for other targets")
    return triton


def function_of(kernel: object, triton: Any) -> Any:
    """The JIT function that a user's kernel is, rebuilt where it was decorated for the interpreter."""
    from triton.runtime.interpreter import InterpretedFunction

    jit = triton.runtime.jit.JITFunction
    if isinstance(kernel, jit) and type(kernel).__name__ == "JITFunction":
        return kernel
    if isinstance(kernel, InterpretedFunction):
        if isinstance(triton.language.sum, InterpretedFunction):
            raise BadInput(
                f"Triton was imported under TRITON_INTERPRET=1, so its own library cannot be compiled in this process "
                f"and neither can {kernel.__name__}; run the tests that compile without that variable"
            )
        # What its decorator was given; the interpreter's has options that the compiler's has not.
        taken = inspect.signature(jit).parameters
        return jit(kernel.fn, **{name: value for name, value in kernel.kwargs.items() if name in taken})
    raise BadInput(
        f"kernel is {kernel!r}; expected a function under @triton.jit, or a kernel that was compiled"
        f"{_hint(kernel, jit | InterpretedFunction)}"
    )


def _hint(kernel: object, wanted: Any) -> str:
    """Where the kernel is, if this only wraps it: an autotuner, perhaps over heuristics."""
    path, inner = "", kernel
    # Wrappers are few; what answers to any name, as a mock does, has no end.
    for _ in range(8):
        path, inner = f"{path}.fn", getattr(inner, "fn", None)
        if isinstance(inner, wanted):
            return f"; it wraps one: give its `{path[1:]}`, with the configuration in arguments and options"
    return ""


def refuse_changed_globals(function: Any, constants: Iterable[object]) -> None:
    """As a launch does. Triton knows a kernel by what its globals were at first, and compiles what they are now.

    Args:
        function: that is to be compiled.
        constants: the values of its constexpr parameters, kernels perhaps.

    Raises:
        BadInput: a global has changed.
    """
    for one in (function, *(value for value in constants if hasattr(value, "used_global_vals"))):
        # Finds them, once in a process.
        _ = one.cache_key
        for (name, _), (before, scope) in one.used_global_vals.items():
            if name not in scope or scope[name] != before:
                raise BadInput(
                    f"global {name} of {one.__name__} was {before} when it was first compiled and is "
                    f"{scope.get(name, 'gone')} now; expected it unchanged within a process: pass it as a constexpr "
                    "argument"
                )

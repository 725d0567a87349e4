"""From a kernel to what its binary asks of a target: Triton compiles, nothing is launched, no GPU is needed."""

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import BadInput, CompileFailed
from ..core.keys import Scalar
from . import amd, nvidia
from .arguments import describe, signature_of
from .targets import canonical, gpu_target, is_nvidia, name_of

# How much of a compiler's own words is told.
LAST_LINES = 8
# Options that decide what comes out, written down even where nobody asked for them.
_TELLING = ("num_warps", "num_stages", "num_ctas", "enable_fp_fusion", "maxnreg", "waves_per_eu")
# Further ones, written down where they are not as usual: a variable of the environment may have set them.
_USUAL: dict[str, object] = {
    "debug": False,
    "instrumentation_mode": "",
    "ir_override": None,
    "ptx_options": None,
    "ptx_version": None,
    "enable_reflect_ftz": True,
    "allow_flush_denorm": False,
    "kpack": 1,
    "llvm_fn_attrs": [],
    "matrix_instr_nonkdim": 0,
    "schedule_hint": "",
}
# Always set here, so that it tells nothing.
_LINES = "TRITON_DISABLE_LINE_INFO"


@dataclass(frozen=True, slots=True)
class Compiled:
    """What was read of a compiled kernel: see `core.resources.Resources` for each field."""

    target: str
    figures: dict[str, int]
    options: dict[str, Scalar]
    arguments: dict[str, str]
    compiler: dict[str, str]
    unread: str = ""


def compile_for(
    kernel: object,
    target: str,
    arguments: Mapping[str, object],
    options: Mapping[str, object] | None = None,
) -> Compiled:
    """Compile a kernel for a target, without line information, and read the binary.

    Args:
        kernel: a `@triton.jit` function.
        target: `sm_90`, `gfx942`.
        arguments: by parameter: a type as Triton writes it, a tensor, a number, or the value of a constant.
        options: of Triton's compiler: num_warps, num_stages, ….

    Raises:
        BadInput: an argument or option cannot be used as given.
        CompileFailed: the compiler refuses, or its result cannot be read.
    """
    triton = usable_triton()
    name = canonical(target)
    function = function_of(kernel, triton)
    gpu = gpu_target(name)
    try:
        backend = triton.compiler.make_backend(gpu)
    except RuntimeError as error:
        raise CompileFailed(f"this Triton ({triton.__version__}) has no back end for {name}: {error}") from None
    given = dict(options or {})
    _check_options(backend, given, name)
    signature = signature_of(function, arguments, backend)
    source = triton.compiler.ASTSource(
        fn=function, signature=signature.types, constexprs=signature.constants, attrs=signature.attributes
    )
    try:
        refuse_changed_globals(function, signature.constants.values())
        # With line information ptxas gives other registers to one and the same PTX once a comment moves its lines (104
        # and 106, measured), and an exact gate would be red for a line number.
        with triton.knobs.compilation.scope():
            triton.knobs.compilation.disable_line_info = True
            compiled = triton.compile(source, target=gpu, options=given)
    except BadInput:
        raise
    except Exception as error:
        raise CompileFailed(_failure(function.__name__, name, given, error)) from error
    return read(compiled, given=given, wanted=name)


def read(compiled: Any, *, given: Mapping[str, object] | None = None, wanted: str = "") -> Compiled:
    """What the binary of an already compiled kernel asks for.

    Args:
        compiled: Triton's CompiledKernel, as `warmup` or a launch returns it.
        given: the options that were asked for.
        wanted: the target that was asked for.

    Raises:
        CompileFailed: it is of another target, or cannot be read.
    """
    metadata = compiled.metadata
    target = name_of(metadata.target)
    arch = str(getattr(metadata, "arch", "")).replace("sm", "sm_", 1)
    if arch and arch != target:
        raise CompileFailed(
            f"Triton compiled for {arch} in place of {wanted or target}; is TRITON_OVERRIDE_ARCH set? expected it unset"
        )
    figures, versions, unread = (nvidia if is_nvidia(target) else amd).read(compiled)
    source = compiled.src
    return Compiled(
        target=target,
        figures={"shared_bytes": int(metadata.shared), **figures},
        options=_options(metadata, given or {}),
        arguments=describe(source.signature, getattr(source, "constants", {}), getattr(source, "attrs", {})),
        compiler={"triton": str(metadata.triton_version), **versions},
        unread=unread,
    )


def _options(metadata: Any, given: Mapping[str, object]) -> dict[str, Scalar]:
    """Options as they took effect, which is not always as they were asked for."""
    taken = metadata._asdict()
    found = dict(given) | {name: taken[name] for name in (*_TELLING, *given) if taken.get(name) is not None}
    found |= {name: taken[name] for name, usual in _USUAL.items() if name in taken and taken[name] != usual}
    # Triton notes the variables of the environment that make another binary, under their own names.
    found |= {name: value for name, value in taken.items() if name.isupper() and name != _LINES}
    return {name: _plain(value) for name, value in sorted(found.items())}


def is_compiled(kernel: object) -> bool:
    """Whether this is a kernel that Triton has compiled already."""
    return isinstance(kernel, usable_triton().compiler.CompiledKernel)


def _check_options(backend: Any, given: Mapping[str, object], target: str) -> None:
    """Refuse what Triton would ignore in silence."""
    known = {known.name for known in dataclasses.fields(type(backend.parse_options({"enable_fp_fusion": True})))}
    known -= {"arch", "backend_name", "warp_size"}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise BadInput(
            f"options has {', '.join(map(str, unknown))}, which the compiler for {target} does not know; it knows "
            f"{', '.join(sorted(known))}"
        )


def _failure(kernel: str, target: str, given: Mapping[str, object], error: Exception) -> str:
    said = [line for line in f"{type(error).__name__}: {error}".splitlines() if line.strip()][-LAST_LINES:]
    options = ", ".join(f"{name}={value}" for name, value in given.items()) or "default options"
    return "\n  ".join([f"{kernel} cannot be compiled for {target} ({options}):", *said])


def _plain(value: object) -> Scalar:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


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

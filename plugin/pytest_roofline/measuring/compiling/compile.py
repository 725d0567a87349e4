"""From a kernel to what its binary asks of a target: Triton compiles, nothing is launched, no GPU is needed."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import BadInput, CompileFailed
from ...core.keys import Scalar
from . import amd, nvidia
from .arguments import describe, signature_of
from .targets import canonical, gpu_target, is_nvidia, name_of

# ASTSource takes attributes by position, and tools are found through `knobs`, from here on.
OLDEST_TRITON = (3, 4)
# How much of a compiler's own words is told.
LAST_LINES = 8
# Options that decide what comes out, written down even where nobody asked for them.
_TELLING = ("num_warps", "num_stages", "num_ctas", "enable_fp_fusion", "maxnreg", "waves_per_eu")


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
    """Compile a kernel for a target and read the binary.

    Args:
        kernel: a `@triton.jit` function.
        target: `sm_90`, `gfx942`.
        arguments: by parameter: a type as Triton writes it, a tensor, a number, or the value of a constant.
        options: of Triton's compiler: num_warps, num_stages, ….

    Raises:
        BadInput: an argument or option cannot be used as given.
        CompileFailed: the compiler refuses, or its result cannot be read.
    """
    triton = _triton()
    name = canonical(target)
    function = _function(kernel, triton)
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
        compiled = triton.compile(source, target=gpu, options=given)
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
    telling = {name: getattr(metadata, name) for name in _TELLING if getattr(metadata, name, None) is not None}
    source = compiled.src
    return Compiled(
        target=target,
        figures={"shared_bytes": int(metadata.shared), **figures},
        options={name: _plain(value) for name, value in sorted((telling | dict(given or {})).items())},
        arguments=describe(source.signature, getattr(source, "constants", {}), getattr(source, "attrs", {})),
        compiler={"triton": str(metadata.triton_version), **versions},
        unread=unread,
    )


def is_compiled(kernel: object) -> bool:
    """Whether this is a kernel that Triton has compiled already."""
    return isinstance(kernel, _triton().compiler.CompiledKernel)


def _triton() -> Any:
    try:
        import triton
    except ImportError:
        raise BadInput(
            "Triton is not installed, and kernels are compiled with it; pip install 'pytest-roofline[triton]'"
        ) from None
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if version < OLDEST_TRITON:
        needed = ".".join(map(str, OLDEST_TRITON))
        raise BadInput(f"Triton is {triton.__version__}; expected {needed} or newer to compile for other targets")
    return triton


def _function(kernel: object, triton: Any) -> Any:
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
        return jit(kernel.fn)
    inner = getattr(kernel, "fn", None)
    hint = ""
    if isinstance(inner, jit | InterpretedFunction):
        hint = "; it wraps one: give its `fn`, with the configuration in arguments and options"
    raise BadInput(f"kernel is {kernel!r}; expected a function under @triton.jit, or a kernel that was compiled{hint}")


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

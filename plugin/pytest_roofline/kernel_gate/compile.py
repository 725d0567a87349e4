"""From a kernel to what its binary asks of a target: Triton compiles, nothing is launched, no GPU is needed."""

import dataclasses
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import BadInput, CompileFailed
from ..core.keys import Scalar
from .assembler import why_serialized
from .targets import canonical, gpu_target, name_of, read_binary

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
    warning: str = ""


def compile_for(
    kernel: object,
    target: str,
    arguments: Mapping[str, object],
    options: Mapping[str, object] | None = None,
) -> Compiled:
    """Compile a `@triton.jit` function for a target, without line information, and read the binary."""
    triton = usable_triton()
    name = canonical(target)
    function = function_of(kernel, triton)
    gpu = gpu_target(name)
    try:
        backend = triton.compiler.make_backend(gpu)
    except RuntimeError as error:
        raise CompileFailed(
            f"this Triton ({triton.__version__}) has no back end for {name}: {error}"
        ) from None
    given = dict(options or {})
    _check_options(backend, given, name)
    source = source_of(function, arguments, backend)
    try:
        refuse_changed_globals(function, source.constants.values())
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
    """What the binary of Triton's CompiledKernel asks for, as `warmup` or a launch returns it."""
    metadata = compiled.metadata
    target = name_of(metadata.target)
    arch = str(getattr(metadata, "arch", "")).replace("sm", "sm_", 1)
    if arch and arch != target:
        raise CompileFailed(
            f"Triton compiled for {arch} in place of {wanted or target}; is TRITON_OVERRIDE_ARCH set? expected it unset"
        )
    figures, versions, unread = read_binary(compiled, target)
    return Compiled(
        target=target,
        figures={"shared_bytes": int(metadata.shared), **figures},
        options=_options(metadata, given or {}),
        arguments=describe(compiled.src),
        compiler={"triton": str(metadata.triton_version), **versions},
        unread=unread,
        warning=why_serialized(compiled) if figures.get("serialized_wgmma") else "",
    )


def _options(metadata: Any, given: Mapping[str, object]) -> dict[str, Scalar]:
    """Options as they took effect, which is not always as they were asked for."""
    effective = metadata._asdict()
    options = {
        **given,
        **{
            name: effective[name] for name in (*_TELLING, *given) if effective.get(name) is not None
        },
        **{
            name: effective[name]
            for name, usual in _USUAL.items()
            if name in effective and effective[name] != usual
        },
        # Triton notes the variables of the environment that make another binary, under their own names.
        **{name: value for name, value in effective.items() if name.isupper() and name != _LINES},
    }
    return {name: _plain(value) for name, value in sorted(options.items())}


def is_compiled(kernel: object) -> bool:
    """Whether this is a kernel that Triton has compiled already."""
    return isinstance(kernel, usable_triton().compiler.CompiledKernel)


def _check_options(backend: Any, given: Mapping[str, object], target: str) -> None:
    """Refuse what Triton would ignore in silence."""
    known = {
        known.name
        for known in dataclasses.fields(type(backend.parse_options({"enable_fp_fusion": True})))
    }
    known -= {"arch", "backend_name", "warp_size"}
    unknown = [name for name in given if name not in known]
    if unknown:
        raise BadInput(
            f"options has {', '.join(map(str, unknown))}, which the compiler for {target} does not know; it knows "
            f"{', '.join(sorted(known))}"
        )


def _failure(kernel: str, target: str, given: Mapping[str, object], error: Exception) -> str:
    said = [line for line in f"{type(error).__name__}: {error}".splitlines() if line.strip()][
        -LAST_LINES:
    ]
    options = ", ".join(f"{name}={value}" for name, value in given.items()) or "default options"
    return "\n  ".join([f"{kernel} cannot be compiled for {target} ({options}):", *said])


def _plain(value: object) -> Scalar:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


# From here on a back end tells apart what it knows of a number and of a tensor; tried are 3.6 and 3.9.
OLDEST_TRITON = (3, 6)


def usable_triton() -> Any:
    """The module."""
    try:
        import triton
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "triton":
            raise BadInput(
                "Triton is not installed, and kernels are compiled with it; pip install 'pytest-roofline[triton]'"
            ) from None
        raise BadInput(
            f"Triton is installed and cannot be imported: {error}; expected a whole installation"
        ) from error
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if version < OLDEST_TRITON:
        needed = ".".join(map(str, OLDEST_TRITON))
        raise BadInput(
            f"Triton is {triton.__version__}; expected {needed} or newer to compile for other targets"
        )
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
        return jit(
            kernel.fn, **{name: value for name, value in kernel.kwargs.items() if name in taken}
        )
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
    """As a launch does. Triton knows a kernel by what its globals were at first, and compiles what they are now."""
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


# Arguments: what a launch would find out about them, by Triton's own binder.

_SCALARS = r"[iu](?:1|8|16|32|64)|fp(?:16|32|64)|bf16|fp8(?:e4nv|e4b8|e4b15|e5|e5b16)"
_TYPE = re.compile(rf"(?P<type>\*k?(?:{_SCALARS})|{_SCALARS})(?::(?P<hint>1|16))?")
_DESCRIPTOR = re.compile(rf"tensordesc<(?:{_SCALARS})\[\d+(?:, ?\d+)*\].*>")
_EXAMPLES = "'*bf16', '*bf16:16', 'i32', 'i32:16', 'fp32' or 'tensordesc<bf16[128,64]>'"
_DIVISIBLE = [["tt.divisibility", 16]]


def source_of(kernel: Any, arguments: Mapping[str, object], backend: Any) -> Any:
    """Triton's `ASTSource`: the kernel with the signature under which a launch with such arguments would compile.

    By parameter they are a type as Triton writes it, a tensor, a dtype, a number, None, or a constant's value.
    """
    _refuse_other_names(kernel, arguments)
    types: dict[str, str] = {}
    constants: dict[tuple[int], object] = {}
    attributes: dict[tuple[int], list[Any]] = {}
    for param in kernel.params:
        facts: list[Any] = []
        value = arguments.get(param.name, param.default)
        if param.is_constexpr:
            kind = "constexpr"
        elif isinstance(value, str):
            kind, facts, value = _stated(param, value)
        else:
            kind, facts = _specialised(param, value, backend)
        types[param.name] = kind
        if kind == "constexpr":
            constants[(param.num,)] = value
        elif facts:
            attributes[(param.num,)] = facts
    return usable_triton().compiler.ASTSource(kernel, types, constants, attributes)


def _refuse_other_names(kernel: Any, arguments: Mapping[str, object]) -> None:
    known = {param.name: param for param in kernel.params}
    unknown = [name for name in arguments if name not in known]
    missing = [
        name for name, param in known.items() if name not in arguments and not param.has_default
    ]
    if unknown or missing:
        found = [f"no argument for {', '.join(missing)}"] * bool(missing)
        found += [f"arguments that it does not have: {', '.join(map(str, unknown))}"] * bool(
            unknown
        )
        raise BadInput(
            f"kernel {kernel.__name__} has {' and '.join(found)}; it takes {', '.join(known)}"
        )


def _specialised(param: Any, value: object, backend: Any) -> tuple[str, list[Any]]:
    """What a launch makes of a value, by the function that a launch calls."""
    from triton._C.libtriton import native_specialize_impl
    from triton.runtime.jit import MockTensor

    # A declared float or bool is not looked at any further; a declared integer or pointer is.
    declared = param.annotation_type
    looked_at = not (param.do_not_specialize or declared == "u1" or declared[:2] in ("fp", "bf"))
    try:
        kind, facts = native_specialize_impl(
            backend,
            MockTensor.wrap_dtype(value),
            param.is_const,
            looked_at,
            not param.do_not_specialize_on_alignment,
        )
    except (TypeError, KeyError):
        # What Triton has no type for, as torch's complex ones.
        kind, facts = None, None
    if not isinstance(kind, str):
        raise BadInput(
            f"argument {param.name} is {value!r}; expected a type such as {_EXAMPLES}, a tensor (on the meta device "
            "too), a torch dtype, a number, a bool or None"
        )
    known = (
        backend.parse_attr(facts)
        if isinstance(facts, str) and kind != "constexpr" and looked_at
        else []
    )
    return (declared if declared and value is not None else kind), known


def _stated(param: Any, text: str) -> tuple[str, list[Any], object]:
    """The type, facts and constant that a type string states; refused where no launch of the kernel would make them."""
    found = _TYPE.fullmatch(text.strip())
    if found is None:
        if _DESCRIPTOR.fullmatch(text.strip()):
            return text.strip(), [], None
        raise BadInput(
            f"argument {param.name} is {text!r}; expected a type such as {_EXAMPLES}, a tensor or a number"
        )
    kind, hint = found["type"], found["hint"]
    if param.is_const and kind.startswith("*"):
        kind = f"*k{kind[1:].removeprefix('k')}"
    whole = re.fullmatch(r"[iu](?:8|16|32|64)", kind) is not None
    # None of these hints is known of a parameter that the kernel asks not to be specialised on.
    hints = {"1"} if whole and not param.annotation_type else set()
    if (whole or kind.startswith("*")) and not param.do_not_specialize_on_alignment:
        hints.add("16")
    if kind != (param.annotation_type or kind) or (
        hint and (hint not in hints or param.do_not_specialize)
    ):
        raise BadInput(
            f"argument {param.name} is {text!r}; expected {(param.annotation_type or kind)!r}, all that a launch of "
            "this kernel makes of it"
        )
    return ("constexpr", [], 1) if hint == "1" else (kind, _DIVISIBLE if hint else [], None)


def describe(source: Any) -> dict[str, str]:
    """Each argument of a source in a word: `*bf16:16`, or the value of a constant."""
    text = {}
    for index, (name, kind) in enumerate(source.signature.items()):
        if kind == "constexpr":
            text[name] = _constant(getattr(source, "constants", {}).get((index,)))
        else:
            facts = dict(getattr(source, "attrs", {}).get((index,), []))
            text[name] = kind + (
                f":{facts['tt.divisibility']}" if "tt.divisibility" in facts else ""
            )
            text[name] += " within 2 GiB" if "tt.pointer_range" in facts else ""
    return text


def _constant(value: object) -> str:
    """A constant as text that is the same in every process: no addresses."""
    name = getattr(value, "__name__", None)
    text = name if isinstance(name, str) else str(getattr(value, "value", value))
    return type(value).__name__ if " at 0x" in text else text

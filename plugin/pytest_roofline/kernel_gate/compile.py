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

# The last lines of a compiler's own message, which are shown.
LAST_LINES = 8
# Options that decide the binary. They are recorded even if the user gave none.
_DECISIVE = ("num_warps", "num_stages", "num_ctas", "enable_fp_fusion", "maxnreg", "waves_per_eu")
# Further options with their defaults. Another value is recorded, since a variable of the environment may have set it.
_DEFAULTS: dict[str, object] = {
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
# The variable that this module always sets itself.
_LINE_VARIABLE = "TRITON_DISABLE_LINE_INFO"


@dataclass(frozen=True, slots=True)
class KernelBinary:
    """The figures and facts of a kernel's binary: `core.resources.Resources` describes the fields."""

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
) -> KernelBinary:
    """Compile a function under `@triton.jit` or `@gluon.jit` for a target, and read the binary.

    The binary has no line information.

    Raises:
        BadInput: the target, an option or an argument cannot be used.
        CompileFailed: Triton cannot compile the kernel, or its binary cannot be read.
    """
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
    compiler_options = dict(options or {})
    _check_options(backend, compiler_options, name)
    source = source_of(function, arguments, backend)
    try:
        refuse_changed_globals(function, source.constants.values())
        # With line information ptxas gives other registers to one and the same PTX once a comment moves its lines (104
        # and 106, measured), and an exact gate would be red for a line number.
        with triton.knobs.compilation.scope():
            triton.knobs.compilation.disable_line_info = True
            compiled_kernel = triton.compile(source, target=gpu, options=compiler_options)
    except BadInput:
        raise
    except Exception as error:
        raise CompileFailed(_failure(function.__name__, name, compiler_options, error)) from error
    return read(compiled_kernel, options=compiler_options, requested_target=name)


def read(
    compiled_kernel: Any, *, options: Mapping[str, object] | None = None, requested_target: str = ""
) -> KernelBinary:
    """Read the binary of Triton's CompiledKernel, which `warmup` or a launch returns.

    Raises:
        CompileFailed: it was compiled for another target, or cannot be read.
    """
    metadata = compiled_kernel.metadata
    target = name_of(metadata.target)
    arch = str(getattr(metadata, "arch", "")).replace("sm", "sm_", 1)
    if arch and arch != target:
        raise CompileFailed(
            f"Triton compiled for {arch} in place of {requested_target or target}; unset TRITON_OVERRIDE_ARCH "
            "if it is set"
        )
    figures, versions, unread = read_binary(compiled_kernel, target)
    return KernelBinary(
        target=target,
        figures={"shared_bytes": int(metadata.shared), **figures},
        options=_options(metadata, options or {}),
        arguments=describe(compiled_kernel.src),
        compiler={"triton": str(metadata.triton_version), **versions},
        unread=unread,
        warning=why_serialized(compiled_kernel) if figures.get("serialized_wgmma") else "",
    )


def _options(metadata: Any, user_options: Mapping[str, object]) -> dict[str, Scalar]:
    """Return the compiler's options in effect, which may differ from the user's.

    They are the user's and the decisive ones, others that differ from their default, and variables
    of the environment that Triton records.
    """
    effective = metadata._asdict()
    options = {
        **user_options,
        **{
            name: effective[name]
            for name in (*_DECISIVE, *user_options)
            if effective.get(name) is not None
        },
        **{
            name: effective[name]
            for name, default in _DEFAULTS.items()
            if name in effective and effective[name] != default
        },
        # Triton records variables of the environment that change the binary, by their upper-case names.
        **{
            name: value
            for name, value in effective.items()
            if name.isupper() and name != _LINE_VARIABLE
        },
    }
    return {name: _to_scalar(value) for name, value in sorted(options.items())}


def is_compiled(kernel: object) -> bool:
    """Return whether Triton has compiled a kernel already."""
    return isinstance(kernel, usable_triton().compiler.CompiledKernel)


def _check_options(backend: Any, options: Mapping[str, object], target: str) -> None:
    """Raise BadInput for options that Triton would silently ignore."""
    # The fields of the back end's record of options are all options that it knows.
    names = {
        field.name
        for field in dataclasses.fields(type(backend.parse_options({"enable_fp_fusion": True})))
    }
    # These follow from the target, so Triton ignores a user's value.
    names -= {"arch", "backend_name", "warp_size"}
    unknown = [name for name in options if name not in names]
    if unknown:
        raise BadInput(
            f"options has {', '.join(map(str, unknown))}, which the compiler for {target} does not "
            f"know; expected some of {', '.join(sorted(names))}"
        )


def _failure(kernel: str, target: str, options: Mapping[str, object], error: Exception) -> str:
    """Return the message of a kernel that cannot be compiled.

    It ends with the last lines of the error, where Triton names the cause.
    """
    error_lines = [
        line for line in f"{type(error).__name__}: {error}".splitlines() if line.strip()
    ][-LAST_LINES:]
    options_text = (
        ", ".join(f"{name}={value}" for name, value in options.items()) or "default options"
    )
    return "\n  ".join(
        [f"{kernel} cannot be compiled for {target} ({options_text}):", *error_lines]
    )


def _to_scalar(value: object) -> Scalar:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


# The oldest version whose back ends specialise numbers and tensors as this module expects. Tested: 3.6 and 3.9.
OLDEST_TRITON = (3, 6)


def usable_triton() -> Any:
    """Return the module `triton`.

    Raises:
        BadInput: it is missing, broken or too old.
    """
    try:
        import triton
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "triton":
            raise BadInput(
                "Triton is not installed, but compiling a kernel needs Triton; type: "
                "pip install 'pytest-roofline[triton]'"
            ) from None
        raise BadInput(
            f"Triton is installed but cannot be imported: {error}; install Triton again"
        ) from error
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if version < OLDEST_TRITON:
        oldest = ".".join(map(str, OLDEST_TRITON))
        raise BadInput(
            f"Triton is {triton.__version__}; expected {oldest} or newer to compile for other targets"
        )
    return triton


def function_of(kernel: object, triton: Any) -> Any:
    """Return a user's kernel as a JIT function.

    From a kernel that was decorated for the interpreter, a new JIT function is made.

    Raises:
        BadInput: the object is no kernel, or Triton itself was imported for the interpreter.
    """
    from triton.runtime.interpreter import InterpretedFunction

    jit = triton.runtime.jit.JITFunction
    if isinstance(kernel, jit):
        return kernel
    if isinstance(kernel, InterpretedFunction):
        if isinstance(triton.language.sum, InterpretedFunction):
            raise BadInput(
                f"Triton was imported under TRITON_INTERPRET=1, so this process can compile neither its "
                f"library nor {kernel.__name__}; unset the variable for tests that compile"
            )
        # The arguments of the decorator, without those that only the interpreter has.
        parameters = inspect.signature(jit).parameters
        return jit(
            kernel.fn,
            **{name: value for name, value in kernel.kwargs.items() if name in parameters},
        )
    raise BadInput(
        f"kernel is {kernel!r}; expected a function under @triton.jit or @gluon.jit, or a kernel that was compiled"
        f"{_hint(kernel, jit | InterpretedFunction)}"
    )


def _hint(kernel: object, kernel_types: Any) -> str:
    """Return the hint to pass the kernel inside a wrapper, such as an autotuner.

    It is empty where no kernel is inside.
    """
    path, inner = "", kernel
    # Wrappers are few. The search is limited, since an object such as a mock has every attribute, without an end.
    for _ in range(8):
        path, inner = f"{path}.fn", getattr(inner, "fn", None)
        if isinstance(inner, kernel_types):
            return (
                f"; this object wraps a kernel: pass its `{path[1:]}`, and the configuration in "
                "arguments and options"
            )
    return ""


def refuse_changed_globals(function: Any, constants: Iterable[object]) -> None:
    """Raise BadInput if a kernel's globals have changed, as a launch does.

    Triton caches a kernel by the first values of its globals, but compiles it with the present ones.
    `constants` may hold further functions, which are checked too.
    """
    for jit_function in (
        function,
        *(constant for constant in constants if hasattr(constant, "used_global_vals")),
    ):
        # Reading the key makes Triton record the globals.
        _ = jit_function.cache_key
        # Triton keeps the first value of each global, and the namespace that holds its present value.
        for (name, _), (before, scope) in jit_function.used_global_vals.items():
            if name not in scope or scope[name] != before:
                raise BadInput(
                    f"global {name} of {jit_function.__name__} was {before} at the first compilation and is "
                    f"{scope.get(name, 'gone')} now; a global must not change within a process; pass the value "
                    "as a constexpr argument"
                )


# Arguments, which Triton's own binder specialises as for a launch.

_SCALARS = r"[iu](?:1|8|16|32|64)|fp(?:16|32|64)|bf16|fp8(?:e4nv|e4b8|e4b15|e5|e5b16)"
_TYPE = re.compile(rf"(?P<type>\*k?(?:{_SCALARS})|{_SCALARS})(?::(?P<hint>1|16))?")
_DESCRIPTOR = re.compile(rf"tensordesc<(?:{_SCALARS})\[\d+(?:, ?\d+)*\].*>")
_EXAMPLES = "'*bf16', '*bf16:16', 'i32', 'i32:16', 'fp32' or 'tensordesc<bf16[128,64]>'"
_DIVISIBLE = [["tt.divisibility", 16]]


def source_of(kernel: Any, arguments: Mapping[str, object], backend: Any) -> Any:
    """Return what Triton compiles (its `ASTSource`): a kernel, as a launch with some arguments would compile it.

    An argument is a type as Triton writes it, a tensor or its descriptor, a dtype, a number, None, or a constant's
    value. Triton compiles some values as constants, and the facts of others, such as a multiple of 16, into the kernel.
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
            kind, facts, value = _parse_type(param, value)
        else:
            kind, facts = _specialise(param, value, backend)
        types[param.name] = kind
        if kind == "constexpr":
            constants[(param.num,)] = value
        elif facts:
            attributes[(param.num,)] = facts
    return _source_type(kernel)(kernel, types, constants, attributes)


def _source_type(kernel: Any) -> Any:
    """Return the class of a kernel's source: Gluon has its own."""
    if not kernel.is_gluon():
        return usable_triton().compiler.ASTSource
    # Imported here, so that a Triton without Gluon compiles all other kernels.
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


def _refuse_other_names(kernel: Any, arguments: Mapping[str, object]) -> None:
    """Raise BadInput if arguments are unknown or missing."""
    parameters = {param.name: param for param in kernel.params}
    unknown = [name for name in arguments if name not in parameters]
    missing = [
        name
        for name, param in parameters.items()
        if name not in arguments and not param.has_default
    ]
    if unknown or missing:
        complaints = []
        if missing:
            complaints.append(f"no argument for {', '.join(missing)}")
        if unknown:
            complaints.append(f"unknown arguments: {', '.join(map(str, unknown))}")
        raise BadInput(
            f"kernel {kernel.__name__} has {' and '.join(complaints)}; expected {', '.join(parameters)}"
        )


def _specialise(param: Any, value: object, backend: Any) -> tuple[str, list[Any]]:
    """Return the type and facts of a value, by the function that a launch calls.

    Facts are what Triton compiles into the kernel, such as that a pointer is a multiple of 16.
    """
    from triton._C.libtriton import native_specialize_impl
    from triton.runtime.jit import MockTensor

    # Triton does not specialise on the value of a parameter that is declared as a float or bool.
    declared = param.annotation_type
    is_specialised = not (
        param.do_not_specialize or declared == "u1" or declared[:2] in ("fp", "bf")
    )
    try:
        kind, facts = native_specialize_impl(
            backend,
            MockTensor.wrap_dtype(value),
            param.is_const,
            is_specialised,
            not param.do_not_specialize_on_alignment,
        )
    except (TypeError, KeyError):
        # Triton has no type for some values, such as torch's complex numbers.
        kind, facts = None, None
    has_type = isinstance(kind, str)
    if not has_type:
        raise BadInput(
            f"argument {param.name} is {value!r}; expected a type such as {_EXAMPLES}, a tensor (on the meta device "
            "too), a torch dtype, a number, a bool or None"
        )
    hints = []
    if isinstance(facts, str) and kind != "constexpr" and is_specialised:
        hints = backend.parse_attr(facts)
    # The type that the kernel declares holds, except for None, which is always a constant.
    return (declared if declared and value is not None else kind), hints


def _parse_type(param: Any, text: str) -> tuple[str, list[Any], object]:
    """Return the type, the facts and the constant that a text such as `i32:16` means.

    Raises:
        BadInput: the text is no type, or no launch of the kernel would pass it.
    """
    match = _TYPE.fullmatch(text.strip())
    if match is None:
        if _DESCRIPTOR.fullmatch(text.strip()):
            return text.strip(), [], None
        raise BadInput(
            f"argument {param.name} is {text!r}; expected a type such as {_EXAMPLES}, a tensor or a number"
        )
    kind, hint = match["type"], match["hint"]
    if param.is_const and kind.startswith("*"):
        # Triton writes a pointer to constant data as `*k…`.
        kind = f"*k{kind[1:].removeprefix('k')}"
    is_integer = re.fullmatch(r"[iu](?:8|16|32|64)", kind) is not None
    # The hints that a launch would find: `1` for an integer without a declared type, `16` for a multiple of 16.
    hints = {"1"} if is_integer and not param.annotation_type else set()
    if (is_integer or kind.startswith("*")) and not param.do_not_specialize_on_alignment:
        hints.add("16")
    is_other_type = kind != (param.annotation_type or kind)
    is_impossible_hint = hint and (hint not in hints or param.do_not_specialize)
    if is_other_type or is_impossible_hint:
        raise BadInput(
            f"argument {param.name} is {text!r}; expected {(param.annotation_type or kind)!r}, the type that a "
            "launch of this kernel passes"
        )
    if hint == "1":
        # A launch compiles an integer of value 1 as a constant.
        return "constexpr", [], 1
    return kind, _DIVISIBLE if hint else [], None


def describe(source: Any) -> dict[str, str]:
    """Return the arguments of a source by name: `*bf16:16`, or `64` for a constant."""
    text_by_name = {}
    for index, (name, kind) in enumerate(source.signature.items()):
        if kind == "constexpr":
            text_by_name[name] = _constant(getattr(source, "constants", {}).get((index,)))
            continue
        facts = dict(getattr(source, "attrs", {}).get((index,), []))
        text = kind
        if "tt.divisibility" in facts:
            text += f":{facts['tt.divisibility']}"
        if "tt.pointer_range" in facts:
            text += " within 2 GiB"
        text_by_name[name] = text
    return text_by_name


def _constant(value: object) -> str:
    """Return a constant as text without addresses, which differ between processes."""
    name = getattr(value, "__name__", None)
    text = name if isinstance(name, str) else str(getattr(value, "value", value))
    return type(value).__name__ if " at 0x" in text else text

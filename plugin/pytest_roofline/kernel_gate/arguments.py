"""What a kernel is compiled for: the type and the known facts of every argument, as a launch would find them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import BadInput

_SCALARS = r"[iu](?:1|8|16|32|64)|fp(?:16|32|64)|bf16|fp8(?:e4nv|e4b8|e4b15|e5|e5b16)"
_TYPE = re.compile(rf"(?P<type>\*k?(?:{_SCALARS})|{_SCALARS})(?::(?P<hint>1|16))?")
_DESCRIPTOR = re.compile(rf"tensordesc<(?:{_SCALARS})\[\d+(?:, ?\d+)*\].*>")
_EXAMPLES = "'*bf16', '*bf16:16', 'i32', 'i32:16', 'fp32' or 'tensordesc<bf16[128,64]>'"
_BITS_32, _BITS_64 = 2**31, 2**63


@dataclass(slots=True)
class Signature:
    """The arguments in Triton's words: types by name, constants and attributes by position; `text` is for a person."""

    types: dict[str, str] = field(default_factory=dict)
    constants: dict[tuple[int], Any] = field(default_factory=dict)
    attributes: dict[tuple[int], list[Any]] = field(default_factory=dict)

    @property
    def text(self) -> dict[str, str]:
        """Each argument in a word: `*bf16:16`, or the value of a constant."""
        return describe(self.types, self.constants, self.attributes)


def signature_of(kernel: Any, arguments: Mapping[str, object], backend: Any) -> Signature:
    """The signature under which a launch with such arguments would compile.

    Args:
        kernel: a JITFunction.
        arguments: by parameter: a type as Triton writes it, a tensor, a dtype, a number, None, or a constant's value.
        backend: Triton's, of the target: it knows what else a launch finds out about a tensor.

    Raises:
        BadInput: parameters without an argument, arguments without a parameter, or one that cannot be compiled for.
    """
    _refuse_other_names(kernel, arguments)
    signature = Signature()
    for param in kernel.params:
        value = arguments.get(param.name, param.default)
        if param.is_constexpr:
            signature.types[param.name], signature.constants[(param.num,)] = "constexpr", value
        elif isinstance(value, str):
            _add_text(signature, param, value)
        else:
            _add_value(signature, param, value, backend)
    return signature


def _refuse_other_names(kernel: Any, arguments: Mapping[str, object]) -> None:
    known = {param.name: param for param in kernel.params}
    unknown = [name for name in arguments if name not in known]
    missing = [name for name, param in known.items() if name not in arguments and not param.has_default]
    if unknown or missing:
        found = [f"no argument for {', '.join(missing)}"] * bool(missing)
        found += [f"arguments that it does not have: {', '.join(map(str, unknown))}"] * bool(unknown)
        raise BadInput(f"kernel {kernel.__name__} has {' and '.join(found)}; it takes {', '.join(known)}")


def _add_text(signature: Signature, param: Any, text: str) -> None:
    found = _TYPE.fullmatch(text.strip())
    if found is None and not _DESCRIPTOR.fullmatch(text.strip()):
        raise BadInput(f"argument {param.name} is {text!r}; expected a type such as {_EXAMPLES}, a tensor or a number")
    if found is None:
        signature.types[param.name] = text.strip()
        return
    kind = _declared(param, found["type"], text)
    _refuse_hint(param, kind, found["hint"], text)
    signature.types[param.name] = kind
    if found["hint"] == "16":
        signature.attributes[(param.num,)] = [["tt.divisibility", 16]]
    elif found["hint"] == "1":
        signature.types[param.name], signature.constants[(param.num,)] = "constexpr", 1


def _declared(param: Any, kind: str, text: str) -> str:
    """The type with what the kernel itself says of its parameter, which a launch takes over what it is given."""
    if param.is_const and kind.startswith("*"):
        kind = f"*k{kind[1:].removeprefix('k')}"
    if param.annotation_type and param.annotation_type != kind:
        raise BadInput(
            f"argument {param.name} is {text!r}, and the kernel says {param.annotation_type} of it, which a launch "
            f"takes; expected {param.annotation_type!r}"
        )
    return kind


def _refuse_hint(param: Any, kind: str, hint: str | None, text: str) -> None:
    """Refuse knowledge that no launch would have."""
    whole = re.fullmatch(r"[iu](?:8|16|32|64)", kind) is not None
    why = ""
    if hint is not None and param.do_not_specialize:
        why = "the kernel asks not to be specialised on it"
    elif hint == "16" and param.do_not_specialize_on_alignment:
        why = "the kernel asks not to be specialised on its alignment"
    elif hint == "16" and not (whole or kind.startswith("*")):
        why = "only integers and pointers are known to be divisible"
    elif hint == "1" and not (whole and not param.annotation_type):
        why = "only an integer that the kernel gives no type becomes a constant for being 1"
    if why:
        raise BadInput(f"argument {param.name} is {text!r}, and {why}; expected {kind!r}")


def _add_value(signature: Signature, param: Any, value: object, backend: Any) -> None:
    """As Triton's own binder does at a launch."""
    aligned = not param.do_not_specialize_on_alignment
    if isinstance(value, bool):
        signature.types[param.name] = param.annotation_type or "u1"
    elif isinstance(value, float):
        signature.types[param.name] = param.annotation_type or "fp32"
    elif isinstance(value, int):
        _add_int(signature, param, value, backend.get_int_specialization(value, align=aligned))
    elif value is None:
        signature.types[param.name], signature.constants[(param.num,)] = "constexpr", None
    else:
        signature.types[param.name], facts = _tensor(param, value, backend, aligned)
        if facts and not param.do_not_specialize:
            signature.attributes[(param.num,)] = facts


def _add_int(signature: Signature, param: Any, value: int, facts: str) -> None:
    if value == 1 and not (param.do_not_specialize or param.annotation_type):
        signature.types[param.name], signature.constants[(param.num,)] = "constexpr", 1
        return
    natural = "i32" if -_BITS_32 <= value < _BITS_32 else "i64" if value < _BITS_64 else "u64"
    signature.types[param.name] = param.annotation_type or natural
    # What is declared to be no integer is not looked at.
    declared_otherwise = param.annotation_type == "u1" or param.annotation_type[:2] in ("fp", "bf")
    if "D" in facts and not (param.do_not_specialize or declared_otherwise):
        signature.attributes[(param.num,)] = [["tt.divisibility", 16]]


def _tensor(param: Any, value: object, backend: Any, aligned: bool) -> tuple[str, list[Any]]:
    """The type of a tensor, a tensor descriptor or a dtype, and what its address tells."""
    from triton.runtime.jit import MockTensor, mangle_type

    tensor = MockTensor.wrap_dtype(value)
    try:
        named = str(mangle_type(tensor))
    except (TypeError, KeyError):
        # What Triton has no type for, as torch's complex ones.
        named = ""
    if named.startswith("tensordesc<"):
        return named, []
    if not named.startswith("*"):
        raise BadInput(
            f"argument {param.name} is {value!r}; expected a type such as {_EXAMPLES}, a tensor (on the meta device "
            "too), a torch dtype, a number, a bool or None"
        )
    if param.is_const:
        named = f"*k{named.removeprefix('*')}"
    named = param.annotation_type or named
    return named, backend.parse_attr(backend.get_tensor_specialization(tensor, align=aligned))


def describe(types: Mapping[str, str], constants: Mapping[Any, Any], attributes: Mapping[Any, Any]) -> dict[str, str]:
    """Each argument in a word; positions of constants and attributes are those of `types`."""
    text = {}
    for index, (name, kind) in enumerate(types.items()):
        if kind == "constexpr":
            text[name] = _constant(constants.get((index,)))
        else:
            facts = dict(attributes.get((index,), []))
            text[name] = kind + (f":{facts['tt.divisibility']}" if "tt.divisibility" in facts else "")
            text[name] += " within 2 GiB" if "tt.pointer_range" in facts else ""
    return text


def _constant(value: object) -> str:
    """A constant as text that is the same in every process: no addresses."""
    name = getattr(value, "__name__", None)
    text = name if isinstance(name, str) else str(getattr(value, "value", value))
    return type(value).__name__ if " at 0x" in text else text

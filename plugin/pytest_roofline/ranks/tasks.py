"""The controller's requests to ranks, and their answers. Functions go by file and name, plain data
and tensors as bytes.

Every rank loads a function by its place, and functions that have no such place are refused. The bytes are pickled data
only, never code: only plain data may be written, and what is read may name nothing but the few classes below.
"""

import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import io
import pickle
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import BadInput

# Functions below import torch only when there is a tensor, since a rank sends its first messages before the import.
if TYPE_CHECKING:
    import torch

# The most bytes of one result or one set of arguments. More belongs into a file, or stays on the rank.
MOST_BYTES = 64 * 2**20
# The modules of this package whose records may be sent.
_OURS = (
    "pytest_roofline.core.",
    "pytest_roofline.ranks.",
    "pytest_roofline.engine.request",
    "pytest_roofline.engine.measure",
    "pytest_roofline.engine.log",
)
# Types that pickle may name itself.
_PLAIN = (complex, bytearray, range, slice)
_BUILTINS = ("complex", "bytearray", "range", "slice", "set", "frozenset", "int", "tuple")
_EXPECTED = "expected numbers, text, bytes, None, tuples, lists, sets, dicts, tensors and dtypes"


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """The place of a function: its file with its SHA-256, its module and its name."""

    file: str
    sha256: str
    module: str
    name: str


def reference(fn: Callable[..., object]) -> FunctionRef:
    """Return the place of `fn`, by which every rank can load it.

    The place is its file, the file's hash, module and name. Raise BadInput if it is no function at the top of a module.
    """
    _check_plain_function(fn)
    name, module = fn.__qualname__, sys.modules.get(fn.__module__)
    target: Any = module
    # Look the name up as ranks do; a function in a class has a name with dots.
    for part in name.split("."):
        target = getattr(target, part, None)
    if target is not fn:
        raise BadInput(
            f"{fn.__module__}.{name} is not the given function (a decorator may have replaced the function). Ranks "
            "load functions by name. Pass the function that has this name"
        )
    path = Path(getattr(module, "__file__", None) or f"<{fn.__module__}>").resolve()
    try:
        return FunctionRef(str(path), _digest(path), fn.__module__, name)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}; ranks load {name} from this file"
        ) from None


def _check_plain_function(fn: object) -> None:
    """Raise BadInput unless `fn` is a plain function at the top of a module."""
    name = getattr(fn, "__qualname__", repr(fn))
    if not inspect.isfunction(fn) or "<lambda>" in name or "<locals>" in name:
        raise BadInput(
            f"{name} is not a function at the top of a module (but a lambda, a closure, a method or a partial); "
            "ranks load functions by file and name. Define the function at the top of a module, and pass the data "
            "as arguments"
        )
    if (
        inspect.iscoroutinefunction(fn)
        or inspect.isasyncgenfunction(fn)
        or inspect.isgeneratorfunction(fn)
    ):
        raise BadInput(
            f"{name} is async or a generator, so calling it does no work; expected a plain function"
        )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load(ref: FunctionRef) -> Callable[..., object]:
    """Return the function at a place, on a rank.

    Raises:
        BadInput: the file is missing or another version, or has no such function.
    """
    path, host = Path(ref.file), socket.gethostname()
    try:
        digest = _digest(path)
    except OSError as error:
        raise BadInput(
            f"{ref.file} cannot be read on {host}: {error.strerror}; expected the same files on every node"
        ) from None
    if digest != ref.sha256:
        raise BadInput(
            f"{ref.file} on {host} is another version than the controller's (SHA-256 {digest[:12]}…, expected "
            f"{ref.sha256[:12]}…); copy the same file to every node"
        )
    target: Any = _module(ref, path)
    for part in ref.name.split("."):
        target = getattr(target, part, None)
    if not callable(target):
        raise BadInput(f"{ref.file} on {host} has no function {ref.name}")
    return target  # type: ignore[no-any-return]


# Modules as loaded, by file and version.
_loaded: dict[tuple[str, str], ModuleType] = {}


def _module(ref: FunctionRef, path: Path) -> ModuleType:
    """Return the module of a function, loaded once for each version of its file."""
    key = ref.file, ref.sha256
    if key not in _loaded:
        # If another version of the file was loaded, the module of that name is the old version.
        has_changed = any(file == ref.file for file, _ in _loaded)
        module = None if has_changed else _by_name(ref.module, path)
        _loaded[key] = module or _by_file(ref.module, path)
    return _loaded[key]


def _by_name(name: str, path: Path) -> ModuleType | None:
    """Return the module under its own name, if its file is `path`."""
    module = sys.modules.get(name)
    if module is not None:
        return module if _is_file(getattr(module, "__file__", None), path) else None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or not _is_file(spec.origin, path):
        return None
    return importlib.import_module(name)


def _is_file(file: str | None, path: Path) -> bool:
    return file is not None and Path(file).resolve() == path


def _by_file(name: str, path: Path) -> ModuleType:
    """Return a module from its file, and register it under its name."""
    if name == "__main__":
        # Under the name `__main__`, a script would run its main program.
        name = f"__main__ of {path.name}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Registered before it is executed, as an import does: dataclasses look their module up.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


# The plan of a task that is a whole program, which has no result.
JOB = "job"


@dataclass(frozen=True, slots=True)
class World:
    """A world as the controller names it. `name` is new if its members must meet anew."""

    name: str
    size: int
    backend: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Task:
    """Something for the ranks of a world to do.

    Args:
        number: of the task, counted from 1.
        world: the ranks that take part.
        function: called as `function(rank, *arguments)`.
        arguments: as bytes. The rank decodes them within the task, so that it can answer with an error.
        plan: a `Request` to measure, or `JOB` to run the work once; None calls the function and sends its result.
    """

    number: int
    world: World
    function: FunctionRef
    arguments: bytes
    plan: Any = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a task on a rank.

    Args:
        status: `ok`, `raised` or `skipped`.
        value: the encoded result.
        error: the error, or the reason of a skip.
        traceback: of the error.
    """

    status: Literal["ok", "raised", "skipped"]
    value: bytes = b""
    error: str = ""
    traceback: str = ""


# Plain data and tensors as bytes.


def encode(content: object, subject: str, most_bytes: int = MOST_BYTES) -> bytes:
    """Return plain data as bytes. Raise BadInput if something in it is no plain data, or it is too
    large. `subject` begins the error's sentence.
    """
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, most_bytes).dump(content)
        _check_size(buffer.tell(), most_bytes)
    except BadInput as error:
        raise BadInput(f"{subject} {error}") from None
    except RecursionError:
        raise BadInput(f"{subject} is nested too deeply; {_EXPECTED}") from None
    return buffer.getvalue()


def decode(encoded: bytes, subject: str) -> Any:
    """Return the plain data that `encode` wrote. Raise BadInput if it is damaged or holds anything
    else.
    """
    try:
        return _Unpickler(io.BytesIO(encoded)).load()
    except BadInput as error:
        raise BadInput(f"{subject} {error}") from None
    except Exception as error:  # pickle raises whatever a damaged stream leads it to.
        raise BadInput(f"{subject} cannot be read: {type(error).__name__}: {error}") from None


def _check_size(size_bytes: int, most_bytes: int) -> None:
    """Raise BadInput for too large data. The caller adds the subject of its sentence."""
    if size_bytes > most_bytes:
        raise BadInput(
            f"is {size_bytes / 2**20:.0f} MiB or more; expected at most {most_bytes / 2**20:.0f} MiB; "
            "reduce the data on the rank, or write the data to a file"
        )


def _not_plain(content: object) -> BadInput:
    """Return the error on a value that cannot be sent, which names its type."""
    kind = type(content)
    name = f"a {kind.__module__}.{kind.__qualname__}"
    # A function or a type has a name of its own.
    if callable(content):
        name = getattr(content, "__qualname__", None) or name
    return BadInput(f"holds {name}; {_EXPECTED}")


class _Pickler(pickle.Pickler):
    """Writes plain data, tensors and records of this package, and refuses everything else."""

    def __init__(self, buffer: io.BytesIO, most_bytes: int) -> None:
        super().__init__(buffer, protocol=5)
        self._most_bytes = most_bytes
        self._tensor_bytes = 0

    def reducer_override(self, content: Any) -> Any:
        """Return how to pickle a value of other than the plainest types.

        Raise BadInput if it is no plain data. pickle calls this. `NotImplemented` lets pickle do what it usually does.
        Any other result is the function that rebuilds the value, and its arguments.
        """
        import torch

        kind = type(content)
        # `_tensor` and `_dtype` are the functions of this module that rebuild tensors and dtypes.
        if kind in _PLAIN or content is _tensor or content is _dtype:
            return NotImplemented
        if isinstance(content, type) and (content in (int, tuple, *_PLAIN) or _is_record(content)):
            return NotImplemented
        if isinstance(content, torch.Tensor):
            return self._reduce_tensor(content)
        if kind is torch.dtype:
            return _dtype, (str(content).removeprefix("torch."),)
        if kind is torch.Size:
            return tuple, (tuple(content),)
        if _is_record(kind):
            return kind, tuple(
                getattr(content, field.name) for field in dataclasses.fields(content)
            )
        # A number of ours, such as a `Rank`, is sent as a plain number.
        if (
            isinstance(content, int)
            and not isinstance(content, bool)
            and kind.__module__.startswith(_OURS)
        ):
            return int, (int(content),)
        raise _not_plain(content)

    def _reduce_tensor(self, tensor: "torch.Tensor") -> Any:
        """Return how to pickle a tensor: by its dtype, its shape and its bytes.

        It is the function that rebuilds the tensor, and its arguments.
        """
        import torch

        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            raise _not_plain(tensor)
        self._tensor_bytes += tensor.numel() * tensor.element_size()
        _check_size(self._tensor_bytes, self._most_bytes)
        plain = tensor.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
        # Not `contiguous()`, which leaves a single element with whatever stride it has.
        plain = plain.clone(memory_format=torch.contiguous_format)
        # As bytes, since NumPy does not know all dtypes of torch.
        content = bytes(plain.view(torch.uint8).numpy()) if plain.numel() else b""
        return _tensor, (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), content)


class _Unpickler(pickle.Unpickler):
    """Reads plain types, tensors and records of this package, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class or function that the bytes name, if it is allowed.

        pickle calls this for every name in the bytes. Raise BadInput for any other name.
        """
        if module == __name__ and name in ("_tensor", "_dtype"):
            return globals()[name]
        if module == "builtins" and name in _BUILTINS:
            return super().find_class(module, name)
        if module.startswith(_OURS):
            kind = super().find_class(module, name)
            if isinstance(kind, type) and _is_record(kind):
                return kind
        raise BadInput(f"names {module}.{name}; {_EXPECTED}")


def _is_record(kind: type) -> bool:
    """Return whether a type is a record of this package that may be sent."""
    return dataclasses.is_dataclass(kind) and kind.__module__.startswith(_OURS)


def _tensor(dtype: str, shape: tuple[int, ...], content: bytes) -> "torch.Tensor":
    """Return the tensor that was pickled; the bytes name this function."""
    import torch

    kind = _dtype(dtype)
    if not content:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(kind).reshape(shape)


def _dtype(name: str) -> "torch.dtype":
    """Return the dtype that was pickled; the bytes name this function."""
    import torch

    kind = getattr(torch, name, None)
    if not isinstance(kind, torch.dtype):
        raise BadInput(f"names the dtype {name!r}, which this torch lacks")
    return kind

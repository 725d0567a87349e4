"""What the controller asks of ranks, and what they answer: tasks whose functions are named by file and qualified name.

A function is found again on every rank, and refused where that cannot work.
"""

import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from ..core.errors import BadInput
from .channel import Endpoint


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """Where a function is: its module's file with the SHA-256 of its text, the module's name and its own."""

    file: str
    sha256: str
    module: str
    name: str


def reference(fn: Callable[..., object]) -> FunctionRef:
    """Where `fn` is, so that every rank can load it."""
    # For pytest, which takes this as a wish; whoever reads a refusal wants the test's own line.
    __tracebackhide__ = True
    _refuse(fn)
    name, module = fn.__qualname__, sys.modules.get(fn.__module__)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not fn:
        raise BadInput(
            f"{fn.__module__}.{name} is not the function that was given (a decorator replaced it?); ranks load a "
            "function by that name, so give the one that stands there"
        )
    file = getattr(module, "__file__", None)
    if file is None:
        raise BadInput(f"{fn.__module__} has no file; expected a rank function from a file that ranks can load")
    path = Path(file).resolve()
    try:
        return FunctionRef(str(path), _digest(path), fn.__module__, name)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}; ranks load {name} from there") from None


def _refuse(fn: object) -> None:
    __tracebackhide__ = True
    remedy = "expected a function at the top of a module, since ranks load it by file and name"
    if isinstance(fn, functools.partial):
        raise BadInput(f"{fn!r} is a partial; {remedy}: pass its arguments beside it")
    if inspect.ismethod(fn):
        raise BadInput(f"{fn.__qualname__} is a method bound to an object, which no other process has; {remedy}")
    if not inspect.isfunction(fn):
        raise BadInput(f"{fn!r} is a {type(fn).__name__}; {remedy}")
    if fn.__name__ == "<lambda>":
        raise BadInput(f"a lambda in {fn.__module__} was given; {remedy}")
    if "<locals>" in fn.__qualname__:
        held = ", ".join(fn.__code__.co_freevars)
        why = f"which holds {held} of the function around it" if held else "which exists only while that function runs"
        raise BadInput(f"{fn.__qualname__} is defined inside another function, {why}; {remedy}: pass values beside it")
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        raise BadInput(f"{fn.__qualname__} is async, so calling it does no work; expected a plain function")
    if inspect.isgeneratorfunction(fn):
        raise BadInput(f"{fn.__qualname__} is a generator, so calling it does no work; expected a plain function")


@functools.lru_cache(maxsize=256)
def _digest_at(path: str, changed_ns: int, size_bytes: int) -> str:  # noqa: ARG001 - the last two renew the cache
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _digest(path: Path) -> str:
    told = path.stat()
    return _digest_at(str(path), told.st_mtime_ns, told.st_size)


def load(ref: FunctionRef) -> Callable[..., object]:
    """The function, on a rank."""
    path, host = Path(ref.file), socket.gethostname()
    try:
        found = _digest(path)
    except OSError as error:
        raise BadInput(
            f"{ref.file} cannot be read on {host}: {error.strerror}; expected the same files on every node"
        ) from None
    if found != ref.sha256:
        raise BadInput(
            f"{ref.file} on {host} is another version than the controller's (SHA-256 {found[:12]}…, expected "
            f"{ref.sha256[:12]}…); bring the nodes' files into line"
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
    key = ref.file, ref.sha256
    if key not in _loaded:
        # A file that has changed since: what is known under its name is the version before.
        changed = any(file == ref.file for file, _ in _loaded)
        known = None if changed else _by_name(ref.module, path)
        _loaded[key] = known or _by_file(ref.module, path)
    return _loaded[key]


def _by_name(name: str, path: Path) -> ModuleType | None:
    """The module under its own name, where that leads to this very file."""
    known = sys.modules.get(name)
    if known is not None:
        return known if _is(getattr(known, "__file__", None), path) else None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    return importlib.import_module(name) if spec is not None and _is(spec.origin, path) else None


def _is(file: str | None, path: Path) -> bool:
    return file is not None and Path(file).resolve() == path


def _by_file(name: str, path: Path) -> ModuleType:
    if name == "__main__":
        # Under its own name a script would run as a program once more.
        name = f"__main__ of {path.name}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Under its name at once, as an import does: dataclasses look their module up.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


# Where the controller listens, with the key that both know, in hexadecimal digits: no launcher's quoting harms them.
CONTROLLER_VARIABLE = "ROOFLINE_RANK_CONTROLLER"


@dataclass(frozen=True, slots=True)
class World:
    """A world as the controller names it: `name` is new wherever its members must meet anew."""

    name: str
    size: int
    backend: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Task:
    """Something for the ranks of a world to do.

    Args:
        number: new for every task.
        world: that it runs in.
        function: what to call as `function(rank, *arguments)`.
        arguments: encoded, since a rank must answer for what it cannot read.
        plan: a `Request` to measure, a `JobPlan` to do it once; None calls the function once and sends its result.
    """

    number: int
    world: World
    function: FunctionRef
    arguments: bytes
    plan: Any = None


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Says of a task that it is a whole program, of which nobody wants the result."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a task ended on a rank.

    Args:
        number: of the task.
        value: the encoded result.
        error: what was raised, in a line; or the reason of a skip.
        traceback: where.
    """

    number: int
    status: Literal["ok", "raised", "skipped"]
    value: bytes = b""
    error: str = ""
    traceback: str = ""


def to_controller(endpoint: Endpoint) -> dict[str, str]:
    """The variable for ranks; never on a command line."""
    return {CONTROLLER_VARIABLE: endpoint.text.encode().hex()}


def pop_controller() -> Endpoint:
    """Where this rank's controller listens, taken away so that nothing a rank function starts can read the key."""
    try:
        return Endpoint.parse(bytes.fromhex(os.environ.pop(CONTROLLER_VARIABLE, "")).decode())
    except ValueError:
        raise BadInput(f"{CONTROLLER_VARIABLE} is not set; ranks are started by pytest, not by hand") from None

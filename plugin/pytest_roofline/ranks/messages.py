"""What the controller asks of ranks, and what they answer; and the variable by which a rank finds its controller."""

import os
from dataclasses import dataclass
from typing import Any

from ..core.errors import BadInput
from .channel import Endpoint
from .functions import FunctionRef

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
        status: `ok`, `raised` or `skipped`.
        value: the encoded result.
        error: what was raised, in a line; or the reason of a skip.
        traceback: where.
    """

    number: int
    status: str
    value: bytes = b""
    error: str = ""
    traceback: str = ""


def to_controller(endpoint: Endpoint) -> dict[str, str]:
    """The variable for ranks; never on a command line."""
    return {CONTROLLER_VARIABLE: endpoint.text.encode().hex()}


def pop_controller() -> Endpoint:
    """Where this rank's controller listens, taken away so that nothing a rank function starts can read the key.

    Raises:
        BadInput: nobody said so.
    """
    try:
        return Endpoint.parse(bytes.fromhex(os.environ.pop(CONTROLLER_VARIABLE, "")).decode())
    except ValueError:
        raise BadInput(f"{CONTROLLER_VARIABLE} is not set; ranks are started by pytest, not by hand") from None

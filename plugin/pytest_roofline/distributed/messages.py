"""What controller and ranks say to each other, and the variables by which a rank finds its controller."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core.errors import BadInput
from .functions import FunctionRef
from .worlds import World

# Where the controller listens (`host,host:port`), and the secret that both know; never on a command line.
ADDRESS_VARIABLE = "ROOFLINE_RANK_ADDRESS"
KEY_VARIABLE = "ROOFLINE_RANK_KEY"

# How long a rank looks for its controller, and a variable by which that says so.
CONNECT_S = 60.0
CONNECT_VARIABLE = "ROOFLINE_RANK_CONNECT_S"


@dataclass(frozen=True, slots=True)
class Task:
    """Something for the ranks of a world to do.

    Args:
        number: new for every task.
        world: that it runs in.
        function: what to call as `function(rank, *arguments)`.
        arguments: encoded, since a rank must answer for what it cannot read.
        plan: a `RankPlan` to measure, a `JobPlan` to do it once; None calls the function once and sends its result.
    """

    number: int
    world: World
    function: FunctionRef
    arguments: bytes
    plan: Any = None


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


def address_text(addresses: Sequence[str], port: int) -> str:
    """`host,host:port`."""
    return f"{','.join(addresses)}:{port}"


def parse_address(text: str) -> tuple[list[str], int]:
    """The addresses and the port of `address_text`.

    Raises:
        BadInput: it is none.
    """
    hosts, _, port = text.rpartition(":")
    if not hosts or not port.isdecimal():
        raise BadInput(f"{ADDRESS_VARIABLE} is {text!r}; expected host,host:port, as the controller sets it")
    return hosts.split(","), int(port)


def own_addresses(bound_to: str) -> list[str]:
    """Under which names and addresses this host can be reached, for ranks to try in turn.

    Args:
        bound_to: the address that is listened on; empty is all of them.
    """
    if bound_to:
        return [bound_to]
    name = socket.gethostname()
    found = [name, socket.getfqdn()]
    try:
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)]
    except OSError:
        found.append("127.0.0.1")
    return list(dict.fromkeys(found))


def connect_s() -> float:
    """How long this rank shall look for its controller, in seconds.

    Raises:
        BadInput: the variable holds no number.
    """
    text = os.environ.get(CONNECT_VARIABLE, str(CONNECT_S))
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{CONNECT_VARIABLE} is {text!r}; expected seconds, as the controller sets it") from None


def pop_key() -> bytes:
    """The secret, taken out of the environment so that nothing a rank function starts can read it there.

    Raises:
        BadInput: there is none.
    """
    text = os.environ.pop(KEY_VARIABLE, "")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if not key:
        raise BadInput(f"{KEY_VARIABLE} is not set; ranks are started by pytest, not by hand")
    return key

"""Where the figures of a tool stand in its JSON or CSV, as a line of data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..core.keys import Cache, Scalar, Timing
from ..core.samples import Mode
from .records import Tool


@dataclass(frozen=True, slots=True)
class FigurePlace:
    """A figure of a row.

    Args:
        path: its place in the row.
        parameters: that tell it from the other figures of the row.
        calls: the place of the number of calls behind it.
        timing: of the calls.
        cache: before each call.
    """

    path: str
    parameters: dict[str, Scalar] = field(default_factory=dict)
    calls: str = ""
    timing: Timing = "wall"
    cache: Cache = "warm"


@dataclass(frozen=True, slots=True)
class RatePlace:
    """The bytes a second of a row, which with the time that they took give its bytes.

    Args:
        path: its place in the row.
        times: the places of that time, each for the names that a pattern finds; the first that is there counts.
        counts: the kind of bytes.
    """

    path: str
    times: tuple[tuple[str, str], ...]
    counts: Literal["read_bytes", "payload_bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The places of a tool's figures. Each is a path in a row; those of the machine are in the whole document.

    Args:
        name: of the reader.
        title: of the files, for messages.
        tool: that wrote them.
        is_of: recognises a text.
        document_of: makes plain data of it.
        rows: the path of the rows.
        figures: of a row.
        benchmark: the places of a row's name, of which the first that is there counts.
        nameless: the name of a benchmark where neither its row nor the file has one.
        parameters: the places of values, by name; the values of an object have names of their own.
        unit: of the figures, or else the place of it: `unit_path`. Without either the user says it.
        rate: of a row.
        summary: the statistic of a row that summarises others.
        statistic: of the other rows.
        failed: the reason why a row has no figure.
        skipped: the reason why a row was left out on purpose.
        product: the place of what stands for `{}` in the path of the product.
        device_type: of the device.
        host: the place of the name of the host.
        cores: the place of the number of its cores.
        software: the places of versions, by name.
        started: the place of the time at which the run began.
        mode: of the clock.
    """

    name: str
    title: str
    tool: Tool
    is_of: Callable[[str], bool]
    document_of: Callable[[str], object]
    rows: str
    figures: tuple[FigurePlace, ...]
    benchmark: tuple[str, ...] = ()
    nameless: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    unit_path: str = ""
    rate: RatePlace | None = None
    summary: str = ""
    statistic: str = "mean"
    failed: str = ""
    skipped: str = ""
    product: tuple[str, str] = ("", "")
    device_type: str = "accelerator"
    host: str = ""
    cores: str = ""
    software: Mapping[str, str] = field(default_factory=dict)
    started: str = ""
    mode: Mode = "host"

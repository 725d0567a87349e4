"""The roofs of a figure of FLOP per byte: what memory and links let pass, and what arithmetic can do."""

from collections.abc import Sequence
from dataclasses import dataclass

from ....core.records import Ceiling
from ....core.rows import Row
from ....core.units import format_flops
from ....core.work import MOST, rate_suffix
from .axes import drawable, median_of
from .drawing import GREY, Trace, safe
from .words import rate_words

_MEMORY = "traffic_GBps"
_LINKS = {"payload_GBps": "link", "busbw_GBps": "bus", "algbw_GBps": "algorithm", "wirebw_GBps": "wire"}


@dataclass(frozen=True, slots=True)
class Roofs:
    """What bounds the work of one kind of device, by metric: a datasheet's roof, else the median of measured ones.

    Args:
        bytes: of memory and of links, whose rates are counted in bytes per second.
        flops: of arithmetic, the lowest first.
    """

    bytes: dict[str, Ceiling]
    flops: dict[str, Ceiling]

    @property
    def memory(self) -> Ceiling | None:
        return self.bytes.get(_MEMORY)

    @property
    def ridges(self) -> list[float]:
        """The intensities at which the memory's slope meets a roof of arithmetic, where any work can have them."""
        memory = self.memory
        found = [roof.value / memory.value for roof in self.flops.values()] if memory is not None else []
        return [ridge for ridge in found if 1 / MOST <= ridge <= MOST]


def roofs_of(rows: Sequence[Row]) -> Roofs:
    """The roofs that measurements were held against."""
    found: dict[str, list[Ceiling]] = {}
    for row in rows:
        ceiling = row.measurement.ceiling if row.measurement is not None else None
        if ceiling is not None:
            found.setdefault(ceiling.metric, []).append(ceiling)
    ordered = sorted(map(_one, found.values()), key=lambda roof: roof.value)
    return Roofs(
        {roof.metric: roof for roof in ordered if rate_suffix(roof.metric) not in (None, "TFLOPS")},
        {roof.metric: roof for roof in ordered if rate_suffix(roof.metric) == "TFLOPS"},
    )


def _one(ceilings: Sequence[Ceiling]) -> Ceiling:
    rated = [ceiling for ceiling in ceilings if ceiling.source == "datasheet"]
    first, *_ = rated or ceilings
    return Ceiling(first.metric, median_of(one.value for one in rated or ceilings), first.source, first.origin)


def roof_traces(roofs: Roofs, span: tuple[float, float], strip_end: float | None) -> list[Trace]:
    """Slopes of what moves bytes and levels of what computes, dashed, each with its text.

    Args:
        roofs: all of them.
        span: the least and the largest intensity of the figure.
        strip_end: where the strip of those ends that have no FLOPs, in which alone links have their slopes; None
            without such a strip.
    """
    low, high = span
    memory = roofs.memory
    traces = []
    if memory is not None:
        top = max((roof.value for roof in roofs.flops.values()), default=memory.value * high)
        traces += _slope("memory", memory, (low, min(high, top / memory.value)), "top left")
    for metric, roof in roofs.bytes.items():
        if metric != _MEMORY and strip_end is not None:
            traces += _slope(_LINKS.get(rate_suffix(metric) or "", metric), roof, (low, strip_end), "bottom right")
    for metric, roof in roofs.flops.items():
        start = max(low, roof.value / memory.value) if memory is not None else low
        kind = metric.removesuffix("TFLOPS").removesuffix("_") or "arithmetic"
        text = f"{kind} {format_flops(roof.value)}"
        traces += _roof([start, high], [roof.value] * 2, ["", text], f"{text} ({roof.source})", "top left")
    return traces


def _slope(kind: str, roof: Ceiling, span: tuple[float, float], place: str) -> list[Trace]:
    # Its text is short, and not at its end: there is the other roof's, and a strip is narrow on a phone.
    low, end = span
    xs = [low, low**0.25 * end**0.75, end]
    text = rate_words(roof.value, roof.metric)
    return _roof(xs, [roof.value * x for x in xs], ["", text, ""], f"{kind} {text} ({roof.source})", place)


def _roof(xs: Sequence[float], ys: Sequence[float], texts: Sequence[str], name: str, place: str) -> list[Trace]:
    if xs[0] > xs[-1] or not all(map(drawable, [*xs, *ys])):
        return []
    line = {"color": GREY, "dash": "dash", "width": 2}
    shown = {"name": safe(name), "hoverinfo": "text", "hovertext": safe(name), "textposition": place, "line": line}
    shown["text"] = [safe(text) for text in texts]
    return [{"type": "scatter", "x": list(xs), "y": list(ys), "mode": "lines+text", **shown}]

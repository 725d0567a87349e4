"""Which class of work an activity is.

A range says most (a kernel of the optimizer is the optimizer's, whatever it does), then the operators around a launch,
then the kernel's name.
"""

import re
from enum import IntEnum

from ...core.profiles import ActivityClass
from .nesting import Node
from .rules import ANNOTATIONS, KERNELS, OPERATORS, SOFTMAX, Rule, first_rule

# A range of attention, by one of the names between its dots; `attention_norm` is none.
_ATTENTION = re.compile(r"(?i)(\w*_)?(attention|attn|mha|sdpa)\d*|[\w ]*attention")
_SOFTMAX_PART = re.compile(r"(?i).*softmax.*")


def parts_of(name: str) -> list[str]:
    """The names between the dots of a range."""
    return name.split(".")


def in_attention(ranges: tuple[str, ...]) -> bool:
    """Whether a range is attention, or inside it."""
    return any(_ATTENTION.fullmatch(part) for name in ranges for part in parts_of(name))


def _in_attention_softmax(ranges: tuple[str, ...]) -> bool:
    return in_attention(ranges) and any(_SOFTMAX_PART.fullmatch(part) for part in parts_of(ranges[-1]))


class Hold(IntEnum):
    """How much a class of a host event says of what happens in it."""

    INHERITED = 0
    """It has none of its own, but what is around it has."""
    OWN = 1
    """A rule knows it, and may know what is inside better."""
    WHOLE = 2
    """Everything inside belongs to it."""


Known = tuple[str, Hold]
NOTHING: Known = "", Hold.INHERITED


class Classifier:
    """Gives every host event its class, once a name and once an event."""

    def __init__(self, nodes: list[Node]) -> None:
        self._rules: dict[tuple[bool, str], Rule | None] = {}
        self._kernels: dict[str, Rule | None] = {}
        self._known: dict[Node, Known] = {}
        self._attention: dict[tuple[str, ...], tuple[bool, bool]] = {}
        for node in nodes:
            self._known[node] = self._look(node)

    def of_operator(self, node: Node) -> ActivityClass:
        """The class of what an operator does itself."""
        return self._final(self._known[node][0], node.ranges)

    def is_known(self, node: Node) -> bool:
        """Whether a rule knows an event, and not only what it is in."""
        return self._known[node][1] > Hold.INHERITED

    def of_kernel(self, name: str, category: str, node: Node | None) -> ActivityClass:
        """The class of a piece of the device's work, launched inside `node`."""
        kind, hold = self._known[node] if node is not None else NOTHING
        ranges = node.ranges if node is not None else ()
        if name not in self._kernels:
            self._kernels[name] = first_rule(KERNELS, name) if category == "kernel" else None
        rule = self._kernels[name]
        if rule is not None and rule.kind == "communication":
            # An optimizer that is spread over ranks communicates.
            return "communication"
        if hold > Hold.INHERITED:
            return self._final(kind, ranges)
        if category != "kernel":
            return "copy"
        return self._final(rule.kind if rule is not None else kind, ranges)

    def _look(self, node: Node) -> Known:
        """The class of an event as far as its place and name tell."""
        above = self._known[node.parent] if node.parent is not None else NOTHING
        rule = self._rule(node)
        if rule is not None and rule.kind == "communication":
            return rule.kind, Hold.WHOLE
        if above[1] is Hold.WHOLE:
            return above
        if node.event.is_operator and self._places(node.ranges)[1]:
            return "attention softmax", Hold.WHOLE
        if rule is not None and rule.whole:
            return rule.kind, Hold.WHOLE
        # The gradient of a part of a norm is the norm's, as that part was.
        forward = self._known[node.forward] if node.forward is not None else NOTHING
        if forward[1] is Hold.WHOLE:
            return forward
        return (rule.kind, Hold.OWN) if rule is not None else (above[0] or forward[0], Hold.INHERITED)

    def _rule(self, node: Node) -> Rule | None:
        key = node.event.is_operator, node.event.name
        if key not in self._rules:
            name = node.event.name.removeprefix("autograd::engine::evaluate_function: ")
            self._rules[key] = first_rule(OPERATORS if node.event.is_operator else ANNOTATIONS, name)
        return self._rules[key]

    def _places(self, ranges: tuple[str, ...]) -> tuple[bool, bool]:
        """Whether ranges are inside attention, and inside its softmax."""
        if ranges not in self._attention:
            self._attention[ranges] = in_attention(ranges), _in_attention_softmax(ranges)
        return self._attention[ranges]

    def _final(self, kind: str, ranges: tuple[str, ...]) -> ActivityClass:
        if kind == SOFTMAX:
            # Without any range nothing contradicts attention, which is where a transformer has its softmax.
            return "attention softmax" if not ranges or self._places(ranges)[0] else "reduction"
        return kind or "other"  # type: ignore[return-value]

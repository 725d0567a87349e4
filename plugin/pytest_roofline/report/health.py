"""A sick device in the lines of a failed test: the cause first, since short summaries truncate."""

from collections.abc import Sequence

from ..core.facts import Finding
from ..core.units import printable


def health_message(findings: Sequence[Finding]) -> str:
    """Why a device is DEGRADED: the worst cause in the first line, then each with its effect and remedy.

    Empty where nothing was found.
    """
    if not findings:
        return ""
    worst = findings[0]
    more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    lines = [f"DEGRADED: {worst.observed} ({_flat(worst.subject)}){more}"]
    lines += [f"  {found.subject}: {found.observed}: {found.effect}. Mend: {found.remedy}." for found in findings]
    return "\n".join(printable(line) for line in lines)


def _flat(subject: str) -> str:
    """`GPU 0, NVIDIA H200` of `GPU 0 (NVIDIA H200)`, to stand in parentheses itself."""
    name, between, product = subject.partition(" (")
    return f"{name}, {product.removesuffix(')')}" if between else subject

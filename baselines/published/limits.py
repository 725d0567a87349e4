"""Whether a published limit may fail a test: only where everything is as in our measurement."""

from cells import RESOURCES
from figures import Figure
from meaning import Meaning
from variants import Variant

_METHODS = {
    target.benchmark: resource.method for resource in RESOURCES for target in resource.targets
}


def why_not(figure: Figure, meaning: Meaning, variant: Variant) -> list[str]:
    """Why a figure does not gate, in words; nothing where it does.

    A figure that somebody measured is no limit, however good it is: it has no tolerance, and nobody promised it.
    """
    reasons = [*meaning.apart.values()]
    if figure.kind == "threshold" and _METHODS.get(meaning.benchmark) == "host link":
        reasons.append(
            "of its source's own machines; in others the host, its slots and its IOMMU differ"
        )
    if variant.doubt:
        reasons.append(variant.doubt)
    if figure.confidence not in ("high", "medium"):
        reasons.append(f"confidence {figure.confidence}")
    return reasons


def gates(figure: Figure, meaning: Meaning, variant: Variant) -> bool:
    """Whether it is published as a limit, and nothing about it differs."""
    return figure.kind == "threshold" and not why_not(figure, meaning, variant)

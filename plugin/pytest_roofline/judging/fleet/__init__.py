"""Which node, GPU or link of a fleet is slower than its fellows."""

from .findings import Finding, Fleet, Part, Slow, fleet

__all__ = ["Finding", "Fleet", "Part", "Slow", "fleet"]

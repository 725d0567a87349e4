"""Which hardware this is, and what it can reach at most: hardware keys and datasheet peaks, as data with sources."""

from .ceilings import (
    BOUNDED_FROM_BYTES,
    BOUNDED_FROM_FLOPS,
    UPPER_BOUND,
    above_peak,
    datasheet_ceiling,
    format_ceiling,
    is_arithmetic,
    link_ceiling,
    link_peak,
    rank_ceiling,
)
from .keys import family_of, identity_of, key_of
from .products import Peak, Product, products

__all__ = [
    "BOUNDED_FROM_BYTES",
    "BOUNDED_FROM_FLOPS",
    "UPPER_BOUND",
    "Peak",
    "Product",
    "above_peak",
    "datasheet_ceiling",
    "family_of",
    "format_ceiling",
    "identity_of",
    "is_arithmetic",
    "key_of",
    "link_ceiling",
    "link_peak",
    "products",
    "rank_ceiling",
]

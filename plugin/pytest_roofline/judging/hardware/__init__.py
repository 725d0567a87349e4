"""Which hardware this is, and what it can reach at most: hardware keys and datasheet peaks, as data with sources."""

from .added import use_hardware
from .ceilings import (
    BOUNDED_FROM_BYTES,
    BOUNDED_FROM_FLOPS,
    UPPER_BOUND,
    above_peak,
    at_generation,
    beyond_belief,
    datasheet_ceiling,
    device_bounds,
    format_ceiling,
    is_arithmetic,
    product_ceiling,
    rank_ceiling,
)
from .keys import family_of, identity_of, is_part, key_of
from .links import collective_ceiling, link_ceiling, link_peak, pair_ceiling
from .products import catalogue, product_like, product_of, products
from .rated import Name, Peak, Product
from .unknown import unknown_line

__all__ = [
    "BOUNDED_FROM_BYTES",
    "BOUNDED_FROM_FLOPS",
    "UPPER_BOUND",
    "Name",
    "Peak",
    "Product",
    "above_peak",
    "at_generation",
    "beyond_belief",
    "catalogue",
    "collective_ceiling",
    "datasheet_ceiling",
    "device_bounds",
    "family_of",
    "format_ceiling",
    "identity_of",
    "is_arithmetic",
    "is_part",
    "key_of",
    "link_ceiling",
    "link_peak",
    "pair_ceiling",
    "product_ceiling",
    "product_like",
    "product_of",
    "products",
    "rank_ceiling",
    "unknown_line",
    "use_hardware",
]

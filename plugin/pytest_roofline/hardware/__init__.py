"""The name of this hardware, and its limits from datasheets, which are data with sources."""

from .ceilings import (
    BOUNDED_FROM_BYTES,
    BOUNDED_FROM_FLOPS,
    UPPER_BOUND,
    above_peak,
    at_generation,
    beyond_belief,
    collective_ceiling,
    datasheet_ceiling,
    device_bounds,
    format_ceiling,
    is_arithmetic,
    is_large,
    link_ceiling,
    link_peak,
    moved_bytes,
    product_ceiling,
)
from .keys import family_of, identity_of, key_of, unknown_line
from .lookup import catalogue, product_like, product_of, products, use_hardware
from .specs import Peak, Product

__all__ = [
    "BOUNDED_FROM_BYTES",
    "BOUNDED_FROM_FLOPS",
    "UPPER_BOUND",
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
    "is_large",
    "key_of",
    "link_ceiling",
    "link_peak",
    "moved_bytes",
    "product_ceiling",
    "product_like",
    "product_of",
    "products",
    "unknown_line",
    "use_hardware",
]

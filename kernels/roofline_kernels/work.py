"""Bytes and FLOPs of what is measured, as plain integers, with the source of each formula."""


def copy_bytes(size_bytes: int) -> dict[str, int]:
    """A copy of `size_bytes` within one memory: every byte is read once and written once."""
    return {"read_bytes": size_bytes, "write_bytes": size_bytes, "payload_bytes": size_bytes}


def link_copy_bytes(size_bytes: int) -> dict[str, int]:
    """A copy of `size_bytes` across a link, one way: every byte crosses once and arrives once."""
    return {"payload_bytes": size_bytes, "wire_bytes": size_bytes}


# Arrays read, arrays written, FLOPs per element. Source: BabelStream (Deakin et al., "GPU-STREAM v2.0", 2016), after
# McCalpin's STREAM: copy and scale move two arrays, add and triad three, dot reads two and writes none.
STREAM = {
    "copy": (1, 1, 0),
    "scale": (1, 1, 1),
    "add": (2, 1, 1),
    "triad": (2, 1, 2),
    "dot": (2, 0, 2),
}


def stream_work(operation: str, elements: int, element_bytes: int) -> dict[str, int]:
    """The work of one STREAM operation over arrays of `elements` elements.

    Args:
        operation: one of `STREAM`.
        elements: elements of one array.
        element_bytes: bytes of one element.
    """
    read, written, flops = STREAM[operation]
    array_bytes = elements * element_bytes
    return {
        "read_bytes": read * array_bytes,
        "write_bytes": written * array_bytes,
        "payload_bytes": array_bytes,
        "flops": flops * elements,
    }

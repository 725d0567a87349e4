"""The work of one call, in bytes and floating-point operations.

Every rate is derived from it and the time.
"""

from dataclasses import dataclass, fields

from .errors import BadInput, short_repr

# The most bytes or FLOPs of one call. Anything larger is a mistake, and arithmetic would overflow.
MOST = 2**63


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one call of a measured function.

    Args:
        read_bytes: bytes read from the device's memory.
        write_bytes: bytes written to the device's memory.
        payload_bytes: bytes that arrive at their destination, counted once.
        flops: floating-point operations; a fused multiply-add counts as two.
        wire_bytes: bytes that cross a link (PCIe, NVLink, Infinity Fabric), one direction.
        algbw_bytes: the size S of a collective as the nccl-tests count it; over the time, the algorithm bandwidth.
        busbw_bytes: S times the factor of the operation, whole bytes; over the time, the bus bandwidth. Zero where
            nothing crosses a bus, as among one rank.
        tokens: that a step of a language model processes; no work by itself, so that something else stands beside it.
        calls: of a function with unknown bytes and FLOPs, as of `measure` without work; gives no rate.

    A copy inside one device gives read, write and payload, and is shown as traffic (read + write). A copy across a
    link gives payload and wire, and is shown as payload. A collective gives algbw and busbw, and is shown as busbw.

    Raises:
        BadInput: a negative or fractional amount, or no work at all.
    """

    read_bytes: int = 0
    write_bytes: int = 0
    payload_bytes: int = 0
    flops: int = 0
    wire_bytes: int = 0
    algbw_bytes: int = 0
    busbw_bytes: int = 0
    tokens: int = 0
    calls: int = 0

    def __post_init__(self) -> None:
        """Raise BadInput unless all fields are whole numbers from 0 on, and one of them counts work.

        Tokens alone are no work.
        """
        for field in fields(self):
            amount = getattr(self, field.name)
            if not isinstance(amount, int) or isinstance(amount, bool):
                raise BadInput(
                    f"Work.{field.name} is {short_repr(amount)}; expected a whole number"
                )
            if not 0 <= amount <= MOST:
                raise BadInput(
                    f"Work.{field.name} is {amount}; expected zero or more, and at most 2^63"
                )
        if not any(getattr(self, field.name) for field in fields(self) if field.name != "tokens"):
            raise BadInput(
                "every field of Work is zero; expected at least one of read_bytes, write_bytes, payload_bytes, flops, "
                "wire_bytes or algbw_bytes above zero; leave out work to measure time only"
            )

    @property
    def traffic_bytes(self) -> int:
        """Bytes read plus bytes written."""
        return self.read_bytes + self.write_bytes

    @property
    def size_bytes(self) -> int:
        """The size of the call: S of a collective, or the payload.

        Else it is the largest number of moved bytes.
        """
        return (
            self.algbw_bytes
            or self.payload_bytes
            or max(self.read_bytes, self.write_bytes)
            or self.wire_bytes
        )

    @property
    def operational_intensity(self) -> float | None:
        """Floating-point operations per byte of traffic; None without traffic."""
        return self.flops / self.traffic_bytes if self.traffic_bytes else None

    @property
    def metric(self) -> str:
        """The metric under which this work is shown.

        A collective's is its bus bandwidth, or among one rank its algorithm bandwidth; else traffic where there is any,
        else payload, wire or FLOP/s; of calls alone it is their time.
        """
        if self.busbw_bytes:
            return "busbw_GBps"
        if self.algbw_bytes:
            return "algbw_GBps"
        if self.traffic_bytes:
            return "traffic_GBps"
        if self.payload_bytes:
            return "payload_GBps"
        if self.wire_bytes:
            return "wirebw_GBps"
        return "TFLOPS" if self.flops else "time_s"

    def amount(self, metric: str) -> float | None:
        """Return the bytes or FLOPs behind a rate named `metric`.

        None where this work has none of it.
        """
        amounts = {
            "traffic_GBps": self.traffic_bytes,
            "payload_GBps": self.payload_bytes,
            "algbw_GBps": self.algbw_bytes,
            "busbw_GBps": self.busbw_bytes,
            "wirebw_GBps": self.wire_bytes,
            "TFLOPS": self.flops,
        }
        return amounts.get(rate_suffix(metric) or "") or None


# A public rate ends in one of these, which say how bytes were counted.
RATE_UNITS = {
    "traffic_GBps": 1e9,
    "payload_GBps": 1e9,
    "algbw_GBps": 1e9,
    "busbw_GBps": 1e9,
    "wirebw_GBps": 1e9,
    "TFLOPS": 1e12,
}
RATE_SUFFIXES = tuple(RATE_UNITS)


def rate_suffix(metric: str) -> str | None:
    """Return the counting convention that ends a metric's name. None where it names none."""
    return next(
        (suffix for suffix in RATE_SUFFIXES if metric == suffix or metric.endswith("_" + suffix)),
        None,
    )


def rate_unit(metric: str) -> str:
    """Return the SI unit of a metric's rate: `B/s` or `FLOP/s`."""
    return "FLOP/s" if rate_suffix(metric) == "TFLOPS" else "B/s"

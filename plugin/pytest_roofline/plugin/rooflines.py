"""The rooflines of a run's device: of the datasheet, or measured once."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..core.facts import Environment, Gpu, HardwareKey
from ..core.records import Ceiling
from ..core.work import Work, rate_suffix
from ..hardware import (
    at_generation,
    beyond_belief,
    datasheet_ceiling,
    device_bounds,
    link_ceiling,
    product_of,
)

if TYPE_CHECKING:
    from ..engine.devices import Device

# Rates of one core that are twice what the fastest reads from its nearest cache, and four times what it computes with
# vectors. Only where a test is faster, the machine's own rates are measured to compare with.
SUSPECT_BYTES_PER_S, SUSPECT_FLOPS = 1e12, 1e12


@dataclass(slots=True)
class Rooflines:
    """The most that a device can do, by work and metric.

    `gpu` is the state of its GPU before the first test, `triad` the bandwidth of a CPU's memory, measured when it was
    opened; None of any other device. A matrix product is measured once a type.
    """

    device: "Device"
    environment: Environment
    gpu: Gpu | None = None
    triad: Ceiling | None = None
    _products: dict[str, Ceiling | None] = field(default_factory=dict)

    def ceiling(
        self, work: Work, metric: str, hardware: HardwareKey | None = None
    ) -> Ceiling | None:
        """Return the roofline of a metric.

        It is the datasheet's, else a measured one. The measured one of a CPU's traffic is the triad. That of FLOP/s is
        a matrix product in the type that the metric names. Where `hardware` has several devices, the roofline is that
        of their link. It is None where none is known.
        """
        if hardware is not None and hardware.devices not in (None, 1):
            return link_ceiling(product_of(self.environment.device), hardware, metric)
        ceiling = datasheet_ceiling(self.environment.device, work, metric)
        kind = rate_suffix(metric)
        if ceiling is not None:
            return at_generation(ceiling, self.gpu) if ceiling.metric == "payload_GBps" else ceiling
        if kind == "traffic_GBps" and self.environment.device.type == "cpu":
            return self.triad
        # The fake device of the tests cannot compute a matrix product.
        if kind == "TFLOPS" and self.environment.device.type != "fake":
            return self._product(metric)
        return None

    def beyond_belief(self, work: Work, seconds: float) -> str:
        """Return why work cannot be so fast, if so.

        The limits of an accelerator are those of its datasheet. Those of a CPU are measured, but only where a rate
        looks impossible.
        """
        moved_bytes = max(work.traffic_bytes, work.payload_bytes, work.algbw_bytes)
        if self.environment.device.type == "cpu":
            bounds = self._bounds_of_cpu(moved_bytes / seconds, work.flops / seconds)
        else:
            bounds = device_bounds(self.environment.device)
        for bound in bounds:
            amount = work.flops if rate_suffix(bound.metric) == "TFLOPS" else moved_bytes
            reason = beyond_belief(bound, amount, seconds)
            if reason:
                return reason
        return ""

    def _bounds_of_cpu(self, bytes_per_s: float, flops_per_s: float) -> list[Ceiling]:
        """Return the limits of a CPU for impossible rates.

        They are measured. To measure takes time, so a rate that the fastest processors reach is not checked.
        """
        cores = self.environment.host.usable_cores
        bounds = []
        if bytes_per_s > SUSPECT_BYTES_PER_S * cores and self.triad is not None:
            bounds.append(self.triad)
        if flops_per_s > SUSPECT_FLOPS * cores:
            # The type in which the work computes is not known, so the faster of two counts.
            products = filter(None, map(self._product, ("fp32_TFLOPS", "bf16_TFLOPS")))
            fastest = max(products, key=lambda product: product.value, default=None)
            bounds += [fastest] if fastest is not None else []
        return bounds

    def _product(self, metric: str) -> Ceiling | None:
        """Return the rate of a matrix product, measured once.

        It is in the type of the metric.
        """
        if metric in self._products:
            return self._products[metric]
        from ..engine.ceiling import measure_product

        product = measure_product(self.device, self.device.name, metric)
        # An unsettled rate, as beside the buffers of a large test, is not kept for the tests that follow.
        if product.settled:
            self._products[metric] = product.ceiling
        return product.ceiling


def triad_of(device: "Device", environment: Environment) -> Ceiling | None:
    """Measure the memory bandwidth of a CPU by a triad.

    The triad is `a = b + s * c`. Any other device has None. Call it before a test uses some of the memory.
    """
    # The name is asked, and not the type: the fake device of the tests has another clock, and would never end.
    if device.name != "cpu":
        return None
    from ..engine.ceiling import measure_triad

    return measure_triad(device, "cpu", environment.device.last_level_cache_bytes or 0)

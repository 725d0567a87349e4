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

# Of a core: twice what the fastest reads out of its nearest cache, and four times what it computes by vectors. Only
# beyond that is it measured what the machine can do.
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
        """Return the roofline of a metric: the datasheet's, else a measured one.

        Of a CPU's traffic that is the triad, of FLOP/s in a type that the metric names a matrix product. Between
        several devices, as `hardware` names them, it is that of the link.
        """
        if hardware is not None and hardware.devices not in (None, 1):
            return link_ceiling(product_of(self.environment.device), hardware, metric)
        ceiling = datasheet_ceiling(self.environment.device, work, metric)
        kind = rate_suffix(metric)
        if ceiling is not None:
            return at_generation(ceiling, self.gpu) if ceiling.metric == "payload_GBps" else ceiling
        if kind == "traffic_GBps" and self.environment.device.type == "cpu":
            return self.triad
        # A device whose clock a script moves multiplies nothing.
        if kind == "TFLOPS" and self.environment.device.type != "fake":
            return self._product(metric)
        return None

    def beyond_belief(self, work: Work, seconds: float) -> str:
        """Return why work cannot be done so fast, else an empty text.

        What a CPU can do at most is measured for that once, and only where a rate looks impossible.
        """
        moved_bytes = max(work.traffic_bytes, work.payload_bytes, work.algbw_bytes)
        if self.environment.device.type != "cpu":
            bounds = device_bounds(self.environment.device)
        else:
            cores = self.environment.host.usable_cores
            triad = self.triad if moved_bytes / seconds > SUSPECT_BYTES_PER_S * cores else None
            suspect = work.flops / seconds > SUSPECT_FLOPS * cores
            products = [self._product(f"{name}_TFLOPS") for name in ("fp32", "bf16") if suspect]
            fastest = max(filter(None, products), key=lambda product: product.value, default=None)
            bounds = [bound for bound in (triad, fastest) if bound is not None]
        amounts = (
            (bound, work.flops if rate_suffix(bound.metric) == "TFLOPS" else moved_bytes)
            for bound in bounds
        )
        return next(
            filter(None, (beyond_belief(bound, amount, seconds) for bound, amount in amounts)), ""
        )

    def _product(self, metric: str) -> Ceiling | None:
        if metric in self._products:
            return self._products[metric]
        from ..engine.ceiling import measure_product

        product = measure_product(self.device, self.device.name, metric)
        # The buffers of the test that asks first must not lower the roofline of all that follow.
        if product.settled:
            self._products[metric] = product.ceiling
        return product.ceiling


def triad_of(device: "Device", environment: Environment) -> Ceiling | None:
    """Measure the memory bandwidth of a CPU; None of any other device.

    It comes before a test takes some of the memory.
    """
    # By its name: a device whose clock a script moves would wait for the end of the triad for ever.
    if device.name != "cpu":
        return None
    from ..engine.ceiling import measure_triad

    return measure_triad(device, "cpu", environment.device.last_level_cache_bytes or 0)

"""The facts of a good node, made from one and compared with others. `roofline doctor --expect` does
it.
"""

import collections
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ..core.amounts import Amount
from ..core.errors import BadInput
from ..core.facts import Gpu, Machine, Unexpected
from ..core.groups import group_by
from ..core.records import SCHEMA
from ..core.storage import read_record, to_plain
from ..core.units import format_amount
from ..core.writing import write_json

# The share by which memory may differ: kernels reserve some of it, and not always the same amount.
MEMORY_TOLERANCE = 0.02
# The partition of a whole device in an expectation file.
WHOLE = "none"
_OMITTED = "a number above zero, or no such field"
Figure = Annotated[int, Meta(ge=1, description=_OMITTED)]
Watts = Annotated[float, Meta(gt=0, description=_OMITTED)]


@dataclass(frozen=True, slots=True)
class ExpectedGpus:
    """The GPUs of one product that a node must have, and the facts of each.

    A fact that is omitted may be anything. `partition` is `none` for a whole device.
    """

    product: str
    count: Amount
    memory_bytes: Figure | None = None
    pcie_generation: Figure | None = None
    pcie_width: Figure | None = None
    power_limit_w: Watts | None = None
    ecc: bool | None = None
    links: Amount | None = None
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class Expectation:
    """The facts of a good node. A fact that is omitted may be anything.

    `roofline doctor --write-expect` writes them, and people edit them.
    """

    gpus: tuple[ExpectedGpus, ...]
    driver: str | None = None
    cpu_model: str | None = None
    usable_cores: Figure | None = None
    memory_bytes: Figure | None = None
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        """Raise BadInput if two groups of expected GPUs have the same product."""
        products = [group.product for group in self.gpus]
        if len(set(products)) < len(products):
            repeated = next(product for product in products if products.count(product) > 1)
            raise BadInput(
                f"gpus names {repeated!r} twice; expected one group for each product, with its count"
            )


def read_expectation(path: Path) -> Expectation:
    """Return the expectation in a file.

    Raises:
        BadInput: the file is missing, or is no expectation of this schema.
    """
    return read_record(path, Expectation, "expectation file")


def write_expectation(path: Path, expectation: Expectation) -> None:
    """Write an expectation for people to read and edit."""
    write_json(path, to_plain(expectation))


def expectation_of(machine: Machine) -> Expectation:
    """Return the facts of this machine as an expectation.

    It is a good node, with which other nodes are compared. A driver that differs between its GPUs is left out.
    """
    gpus_by_product = group_by(map(_expected_gpus, machine.gpus), attrgetter("product"))
    gpus = tuple(map(_common, gpus_by_product.values()))
    drivers = {gpu.driver for gpu in machine.gpus}
    host = machine.host
    return Expectation(
        gpus=gpus,
        driver=drivers.pop() if len(drivers) == 1 else None,
        cpu_model=host.cpu_model,
        usable_cores=host.usable_cores,
        memory_bytes=host.usable_memory_bytes,
    )


def _common(gpus: list[ExpectedGpus]) -> ExpectedGpus:
    """Return the common facts of all GPUs of a product.

    A fact in which they differ is omitted, so that it may be anything.
    """
    values_by_fact = {
        field.name: {getattr(gpu, field.name) for gpu in gpus} for field in fields(ExpectedGpus)
    }
    # A set of one value shows that all GPUs agree.
    facts = {
        name: values.pop() if len(values) == 1 else None for name, values in values_by_fact.items()
    }
    return ExpectedGpus(**facts | {"count": len(gpus)})  # type: ignore[arg-type]


def _expected_gpus(gpu: Gpu) -> ExpectedGpus:
    """Return the facts of a GPU as an expectation."""
    # A driver that does not know a fact reports zero, so a zero is omitted.
    return ExpectedGpus(
        product=gpu.product,
        count=1,
        memory_bytes=gpu.memory_bytes or None,
        # The link as it is on this good node; its slot may allow less than the card.
        pcie_generation=gpu.pcie_generation or None,
        pcie_width=gpu.pcie_width or None,
        power_limit_w=gpu.power_limit_w or None,
        ecc=gpu.ecc,
        links=gpu.links,
        partition=gpu.partition or WHOLE,
    )


def rated_by(expected: Expectation, gpu: Gpu) -> Gpu:
    """Return a GPU with the ratings of the expectation.

    They stand in place of the card's own. So a card in an older slot, or with a power limit that was lowered on
    purpose, is not DEGRADED.
    """
    for group in expected.gpus:
        if group.product == gpu.product:
            return replace(
                gpu,
                power_default_w=group.power_limit_w or gpu.power_default_w,
                pcie_generation_rated=group.pcie_generation or gpu.pcie_generation_rated,
                pcie_width_rated=group.pcie_width or gpu.pcie_width_rated,
            )
    return gpu


def differences(expected: Expectation, machine: Machine) -> list[Unexpected]:
    """Return every fact that is not as expected.

    A better fact is a difference too, since times on that node are not comparable.
    """
    unexpected: list[Unexpected] = []
    counts = collections.Counter(gpu.product for gpu in machine.gpus)
    for group in expected.gpus:
        count = counts.pop(group.product, 0)
        if count != group.count:
            unexpected.append(Unexpected("GPUs", group.product, str(group.count), str(count)))
        for gpu in machine.gpus:
            if gpu.product == group.product:
                unexpected += _gpu_differences(group, gpu)
    unexpected += [
        Unexpected("GPUs", product, "0", str(count)) for product, count in counts.items()
    ]
    return [
        *unexpected,
        *_driver_differences(expected, machine),
        *_host_differences(expected, machine),
    ]


def _gpu_differences(expected: ExpectedGpus, gpu: Gpu) -> Iterator[Unexpected]:
    """Yield the facts of one GPU that differ from the expectation."""
    for fact in ("pcie_generation", "pcie_width", "power_limit_w", "ecc", "links", "partition"):
        expected_fact, actual_fact = getattr(expected, fact), getattr(gpu, fact)
        if fact == "partition":
            # A whole device has no partition, but the expectation needs a word for it.
            actual_fact = actual_fact or WHOLE
        if expected_fact is not None and expected_fact != actual_fact:
            yield Unexpected(gpu.label, fact, _text(expected_fact), _text(actual_fact))
    if expected.memory_bytes is not None and not _is_about(expected.memory_bytes, gpu.memory_bytes):
        yield Unexpected(
            gpu.label, "memory_bytes", _amount(expected.memory_bytes), _amount(gpu.memory_bytes)
        )


def _driver_differences(expected: Expectation, machine: Machine) -> Iterator[Unexpected]:
    """Yield each other version of the driver.

    A machine without GPUs has none.
    """
    if expected.driver is not None:
        # None, which differs from every version, stands for the driver of a machine without GPUs.
        drivers = {gpu.driver for gpu in machine.gpus} or {None}
        for driver in sorted(drivers - {expected.driver}, key=str):
            yield Unexpected("driver", "version", expected.driver, _text(driver))


def _host_differences(expected: Expectation, machine: Machine) -> Iterator[Unexpected]:
    """Yield the facts of the host that differ from the expectation."""
    host = machine.host
    if expected.cpu_model not in (None, host.cpu_model):
        yield Unexpected("host", "cpu_model", str(expected.cpu_model), host.cpu_model)
    if expected.usable_cores not in (None, host.usable_cores):
        yield Unexpected("host", "usable_cores", str(expected.usable_cores), str(host.usable_cores))
    if expected.memory_bytes is not None and not _is_about(
        expected.memory_bytes, host.usable_memory_bytes
    ):
        yield Unexpected(
            "host",
            "memory_bytes",
            _amount(expected.memory_bytes),
            _amount(host.usable_memory_bytes),
        )


def _is_about(expected: int, observed: int | None) -> bool:
    return observed is not None and abs(observed / expected - 1) <= MEMORY_TOLERANCE


def _amount(size_bytes: int | None) -> str:
    """Return a size in a unit, and exactly: `80 GiB (85899345920)`."""
    return "unknown" if size_bytes is None else f"{format_amount(size_bytes)} ({size_bytes})"


def _text(fact: object) -> str:
    if fact is None:
        return "unknown"
    return f"{fact:g}" if isinstance(fact, float) else str(fact)

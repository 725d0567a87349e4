"""The facts of a good node, made from one and held against others. `roofline doctor --expect` does
it.
"""

import collections
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ..core.amounts import Amount
from ..core.errors import BadInput
from ..core.facts import Gpu, Machine, Unexpected
from ..core.records import SCHEMA
from ..core.storage import check_schema, decode_json, read_bytes, to_plain, to_record
from ..core.units import format_amount
from ..core.writing import write_json

# Kernels reserve some of the memory, and not always the same.
MEMORY_TOLERANCE = 0.02
# What a file says of a device that is no part of one.
WHOLE = "none"
_OMITTED = "a number above zero, or leave it out"
Figure = Annotated[int, Meta(ge=1, description=_OMITTED)]
Watts = Annotated[float, Meta(gt=0, description=_OMITTED)]


@dataclass(frozen=True, slots=True)
class ExpectedGpus:
    """So many GPUs of one product, and the facts that each must have. What is omitted may be
    anything.

    `partition` is `none` for a whole device.
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
    """The facts of a good node. Written by `roofline doctor --write-expect`, edited by people;
    omitted means any.
    """

    gpus: tuple[ExpectedGpus, ...]
    driver: str | None = None
    cpu_model: str | None = None
    usable_cores: Figure | None = None
    memory_bytes: Figure | None = None
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        products = [group.product for group in self.gpus]
        if len(set(products)) < len(products):
            twice = next(product for product in products if products.count(product) > 1)
            raise BadInput(
                f"gpus names {twice!r} twice; expected one group for each product, with its count"
            )


def read_expectation(path: Path) -> Expectation:
    """An expectation file."""
    where = f"expectation file {path}"
    raw = decode_json(read_bytes(path, "expectation file"), where)
    check_schema(raw, where)
    return to_record(raw, Expectation, where)


def write_expectation(path: Path, expectation: Expectation) -> None:
    """Write an expectation for people to read and edit."""
    write_json(path, to_plain(expectation))


def expectation_of(machine: Machine) -> Expectation:
    """Return what every node must have, if this one is good."""
    products: dict[str, list[ExpectedGpus]] = {}
    for gpu in machine.gpus:
        products.setdefault(gpu.product, []).append(_expected_gpus(gpu))
    gpus = tuple(_common(alike) for alike in products.values())
    drivers = {gpu.driver for gpu in machine.gpus}
    host = machine.host
    return Expectation(
        gpus=gpus,
        driver=drivers.pop() if len(drivers) == 1 else None,
        cpu_model=host.cpu_model,
        usable_cores=host.usable_cores,
        memory_bytes=host.usable_memory_bytes,
    )


def _common(alike: list[ExpectedGpus]) -> ExpectedGpus:
    """Return the common facts of all GPUs of a product. A fact in which they differ may be
    anything.
    """
    shared = {f.name: {getattr(gpu, f.name) for gpu in alike} for f in fields(ExpectedGpus)}
    facts = {
        name: facts_seen.pop() if len(facts_seen) == 1 else None
        for name, facts_seen in shared.items()
    }
    return ExpectedGpus(**facts | {"count": len(alike)})  # type: ignore[arg-type]


def _expected_gpus(gpu: Gpu) -> ExpectedGpus:
    return ExpectedGpus(
        product=gpu.product,
        count=1,
        memory_bytes=gpu.memory_bytes or None,
        # A zero is no fact: a driver that does not know says so that way.
        # As this good node runs, which may be less than the card alone could: its slot decides too.
        pcie_generation=gpu.pcie_generation or None,
        pcie_width=gpu.pcie_width or None,
        power_limit_w=gpu.power_limit_w or None,
        ecc=gpu.ecc,
        links=gpu.links,
        partition=gpu.partition or WHOLE,
    )


def rated_by(expected: Expectation, gpu: Gpu) -> Gpu:
    """Return a GPU as its site rates it. A card in an older slot, or with a limit lowered on
    purpose, is not sick there.
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
    """Every fact that is not as expected. What is better is a difference too, since it makes another node."""
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
    for fact in ("pcie_generation", "pcie_width", "power_limit_w", "ecc", "links", "partition"):
        expected_fact, actual_fact = getattr(expected, fact), getattr(gpu, fact)
        actual_fact = actual_fact or WHOLE if fact == "partition" else actual_fact
        if expected_fact is not None and expected_fact != actual_fact:
            yield Unexpected(gpu.label, fact, _text(expected_fact), _text(actual_fact))
    if expected.memory_bytes is not None and not _about(expected.memory_bytes, gpu.memory_bytes):
        yield Unexpected(
            gpu.label, "memory_bytes", _amount(expected.memory_bytes), _amount(gpu.memory_bytes)
        )


def _driver_differences(expected: Expectation, machine: Machine) -> Iterator[Unexpected]:
    if expected.driver is not None:
        drivers = {gpu.driver for gpu in machine.gpus} or {None}
        for driver in sorted(drivers - {expected.driver}, key=str):
            yield Unexpected("driver", "version", expected.driver, _text(driver))


def _host_differences(expected: Expectation, machine: Machine) -> Iterator[Unexpected]:
    host = machine.host
    if expected.cpu_model not in (None, host.cpu_model):
        yield Unexpected("host", "cpu_model", str(expected.cpu_model), host.cpu_model)
    if expected.usable_cores not in (None, host.usable_cores):
        yield Unexpected("host", "usable_cores", str(expected.usable_cores), str(host.usable_cores))
    if expected.memory_bytes is not None and not _about(
        expected.memory_bytes, host.usable_memory_bytes
    ):
        yield Unexpected(
            "host",
            "memory_bytes",
            _amount(expected.memory_bytes),
            _amount(host.usable_memory_bytes),
        )


def _about(expected: int, observed: int | None) -> bool:
    return observed is not None and abs(observed / expected - 1) <= MEMORY_TOLERANCE


def _amount(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else f"{format_amount(size_bytes)} ({size_bytes})"


def _text(fact: object) -> str:
    if fact is None:
        return "unknown"
    return f"{fact:g}" if isinstance(fact, float) else str(fact)

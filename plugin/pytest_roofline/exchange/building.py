"""Imported readings as the records of a run file, so that every command that reads runs can read them."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..baselines.runs import Line, encode_line, read_run
from ..core.errors import BadFile, BadInput, CannotStore
from ..core.facts import DeviceFacts, Environment, HardwareKey, HostFacts
from ..core.keys import Key
from ..core.records import Footer, Header, Measurement, Outcome
from ..core.samples import HEAD, IMPORTED, Ranks, Samples
from ..core.units import moment, printable, slug
from ..core.writing import write_new
from ..hardware import (
    above_peak,
    collective_ceiling,
    datasheet_ceiling,
    key_of,
    link_ceiling,
    product_of,
    products,
)
from .collectives import NAMES, operation_of
from .records import ImportedLog, Reading, UserFacts

UNKNOWN = "unknown"
# What lies between devices; `none` is for one alone.
LINKS = ("nvlink", "nvlink-switch", "xgmi", "pcie", "staged", "mixed", UNKNOWN)


def check_user_facts(given: UserFacts) -> UserFacts:
    """`given`, where it can be."""
    if given.link is not None and given.link not in LINKS:
        raise BadInput(f"--link is {given.link!r}; expected one of {', '.join(LINKS)}")
    if given.devices is not None and not 1 <= given.devices <= 10**6:
        raise BadInput(f"--devices is {given.devices}; expected 1 or more")
    if given.operation is not None and operation_of(given.operation) is None:
        raise BadInput(f"--operation is {given.operation!r}; expected one of {', '.join(NAMES)}")
    if given.begun and moment(given.begun) is None:
        raise BadInput(
            f"--begun is {given.begun!r}; expected a date or time as 2026-03-01 or 2026-03-01T10:00:00+01:00"
        )
    if given.product is not None and not given.product.strip():
        raise BadInput("--product is empty; expected a name as the driver prints it")
    if given.product is not None and given.product != printable(given.product):
        raise BadInput(
            f"--product is {given.product!r}; expected printable text, as the driver prints it"
        )
    if given.host != printable(given.host):
        raise BadInput(f"--host is {given.host!r}; expected the printable name of a node")
    return given


def run_id_of(contents: Sequence[bytes]) -> str:
    """A run's name by its content, so that the same file imported twice counts as one session."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return f"imported-{digest.hexdigest()[:16]}"


def build(
    imported: Sequence[ImportedLog],
    given: UserFacts,
    run_id: str,
    tool: str,
    command: tuple[str, ...],
) -> list[Line]:
    """The lines of one run: a session, in which each run of a tool is a process."""
    first = _surroundings(imported, given)
    environment = Environment(
        _device(first, imported, given), _host(first, imported), _software(imported)
    )
    started = min((entry.started for entry in imported if entry.started), default=given.begun)
    measurements = [
        _measurement(reading, entry, environment, given)
        for entry in imported
        for reading in entry.readings
    ]
    return [
        Header(run_id, started, command, tool, environment),
        *measurements,
        *_outcomes(measurements, imported),
        Footer("", exit_status=0, measured=len(measurements)),
    ]


def without_impossible(imported: Sequence[ImportedLog], given: UserFacts) -> list[ImportedLog]:
    """The same with those readings invalid whose rate is above what the gate believes of the device."""
    first = _surroundings(imported, given)
    environment = Environment(_device(first, imported, given), _host(first, imported), {})
    return [
        replace(
            entry,
            readings=tuple(
                replace(reading, invalid=_invalid_reason(reading, entry, environment, given))
                for reading in entry.readings
            ),
        )
        for entry in imported
    ]


def _invalid_reason(
    reading: Reading, one: ImportedLog, environment: Environment, given: UserFacts
) -> str:
    """Why a reading stands for nothing: what its tool says, or a rate above the peak that applies; else empty."""
    measurement = _measurement(reading, one, environment, given)
    hardware, work, metric = measurement.key.hardware, measurement.work, measurement.key.metric
    known = product_of(environment.device)
    if hardware.devices in (None, 1):
        ceiling = datasheet_ceiling(environment.device, work, metric)
    else:
        operation = reading.benchmark.rpartition(".")[2]
        ceiling = link_ceiling(known, hardware, metric)
        ceiling = ceiling or collective_ceiling(known, hardware, work, metric, operation)
    share = replace(measurement, ceiling=ceiling).share_of_ceiling
    return reading.invalid or above_peak(ceiling, work, share, measurement.samples.labels)


def save(lines: Sequence[Line], path: Path) -> bool:
    """Write a run file that was not there before, whole or not at all; False where it holds this import already."""
    if path.suffix != ".jsonl":
        raise CannotStore(f"{path} does not end in .jsonl, as a run file must")
    if path.is_file() and _same(lines, path):
        return False
    write_new(path, "".join(map(encode_line, lines)))
    return True


def _same(lines: Sequence[Line], path: Path) -> bool:
    """Whether a run file holds this import, from the same content and told the same, by whatever names of files."""
    try:
        there = read_run(path)
    except BadFile:
        return False
    header, *_ = lines
    assert isinstance(header, Header)
    ours = [
        (line.key, line.samples, line.invalid) for line in lines if isinstance(line, Measurement)
    ]
    theirs = [(one.key, one.samples, one.invalid) for one in there.measurements]
    return (there.header.run_id, there.header.started, theirs) == (
        header.run_id,
        header.started,
        ours,
    )


def _surroundings(imported: Sequence[ImportedLog], given: UserFacts) -> ImportedLog:
    """The file that tells of the machine, if any does; all with readings must be of one."""
    machines: dict[str, ImportedLog] = {}
    for one in (one for one in imported if one.readings):
        if given.product is not None and one.product not in (None, given.product):
            raise BadFile(
                f"{one.source} was measured on {one.product}, but --product={given.product}; expected the same"
            )
        unnamed = "a CPU" if one.device_type == "cpu" else "an unknown product"
        machines.setdefault(given.product or one.product or unnamed, one)
    if len(machines) > 1:
        told = ", ".join(f"{one.source} on {product}" for product, one in machines.items())
        raise BadFile(
            f"{told}; import them apart, or tell with --product what all were measured on"
        )
    return next((one for one in imported if one.product), imported[0])


def _device(first: ImportedLog, imported: Sequence[ImportedLog], given: UserFacts) -> DeviceFacts:
    product = given.product or first.product or first.cpu_model
    return DeviceFacts(
        type="accelerator" if given.product else first.device_type,
        product=product or UNKNOWN,
        driver=next((entry.driver for entry in imported if entry.driver), None),
    )


def _host(first: ImportedLog, imported: Sequence[ImportedLog]) -> HostFacts:
    """What is known of the host; of the rest, zeros and `unknown`."""
    host = next((entry.host for entry in imported if entry.host), None)
    cores, name = first.cores or 0, host or UNKNOWN
    return HostFacts(name, first.cpu_model or UNKNOWN, cores, cores, 0, 0, first.kernel or UNKNOWN)


def _software(imported: Sequence[ImportedLog]) -> dict[str, str]:
    """Versions and settings, and for each tool its convention."""
    found: dict[str, str] = {}
    for one in imported:
        found |= one.software | {f"{one.tool} convention": one.convention}
    return found


def _hardware(environment: Environment, reading: Reading, given: UserFacts) -> HardwareKey:
    link = (given.link or UNKNOWN) if reading.devices > 1 else "none"
    if environment.device.type != "cpu":
        return key_of(environment, reading.devices, link)
    return HardwareKey(
        slug(environment.device.product),
        UNKNOWN,
        f"{environment.host.cores or UNKNOWN}-cores",
        reading.devices,
        link,
    )


def _measurement(
    reading: Reading, entry: ImportedLog, environment: Environment, given: UserFacts
) -> Measurement:
    hardware = _hardware(environment, reading, given)
    gpus = [] if entry.hosts or hardware.is_cpu else reading.gpus
    key = Key(
        reading.benchmark,
        reading.parameters,
        reading.metric,
        hardware,
        reading.cache,
        reading.timing,
        reading.statistic,
    )
    return Measurement(
        key=key,
        test_id=f"{entry.source}::{reading.test_id}",
        label=key.label,
        process=entry.process,
        work=reading.work,
        samples=Samples(
            seconds=reading.seconds,
            iterations=reading.iterations,
            tick_s=0.0,
            warmup_iterations=reading.warmup_iterations,
            labels=(IMPORTED, *(f"{HEAD}{name}: {text}" for name, text in entry.unread.items())),
            mode=reading.mode,
        ),
        verified=reading.verified,
        invalid=reading.invalid,
        ranks=Ranks(len(entry.hosts), "", "", entry.hosts) if entry.hosts else None,
        device=f"{environment.host.name}:{gpus[0]}" if len(gpus) == 1 else "",
    )


def _outcomes(measured: Sequence[Measurement], imported: Sequence[ImportedLog]) -> list[Outcome]:
    """One for each test: failed where the tool found wrong data, or had no number at all."""
    reasons: dict[str, str] = {}
    for measurement in measured:
        reasons[measurement.test_id] = reasons.get(measurement.test_id) or measurement.invalid
    outcomes = [
        Outcome(test_id, "failed" if reason else "passed", reason=reason)
        for test_id, reason in reasons.items()
    ]
    return outcomes + [
        Outcome(f"{entry.source}::{name}", "failed", reason=reason)
        for entry in imported
        for name, reason in entry.failed
    ]


def unknown_product(environment: Environment) -> str:
    """Why there is no percentage for this product, and what to do; empty where it is known."""
    product = environment.device.product
    if environment.device.type == "cpu" or product in products():
        return ""
    if product == UNKNOWN:
        return "the files do not name the product; name it with --product, as the driver prints it"
    return (
        f"{product!r} is not a product that pytest-roofline knows, so no share of a peak is shown"
    )

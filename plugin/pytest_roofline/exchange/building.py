"""Imported readings as the records of a run file. Every command that reads runs can then read them."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..baselines.runs import Line, encode_line, read_run
from ..core.errors import BadFile, BadInput, CannotStore
from ..core.facts import DeviceFacts, Environment, HardwareKey, HostFacts
from ..core.records import Footer, Header, Measurement, Outcome
from ..core.samples import HEAD, IMPORTED, Ranks, Samples
from ..core.units import moment, printable, slug
from ..core.writing import write_new
from ..figures.figure_units import SOME_UNITS, unit_of
from ..figures.plan import ReadPlan
from ..figures.reading import FigurePath
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
from .records import ImportedLog, MachineFacts, Reading, UserFacts

UNKNOWN = "unknown"
# The links between devices; a single device has `none`.
LINKS = ("nvlink", "nvlink-switch", "xgmi", "pcie", "staged", "mixed", UNKNOWN)
# More than any job has.
MOST_DEVICES = 10**6


def user_facts_of(plan: ReadPlan, user_facts: UserFacts) -> UserFacts:
    """Return the facts that the user gave by options.

    The paths of figures and the facts of a plan are added.

    Raises:
        BadInput: a fact cannot be true, or an option and the plan contradict each other.
    """
    check_facts(user_facts, "--")
    if plan.paths and user_facts.unit:
        raise BadInput(
            f"--unit is {user_facts.unit!r}, but a figure of a program has its unit in its name; leave --unit out, "
            f"and type the name: --{plan.paths[0].direction} 'NAME ({user_facts.unit})=PATH'"
        )
    for name, value in plan.facts.items():
        stated = getattr(user_facts, name)
        if stated not in (None, "", value):
            raise BadInput(
                f"--{name} is {stated!r}, but --read says {name}={value}; give only one of them"
            )
    return replace(user_facts, paths=plan.paths, **plan.facts)  # type: ignore[arg-type]


def check_plan(plan: ReadPlan, read: str) -> None:
    """Raise BadInput if a fact behind the name of a tool cannot be true.

    `read` is the name of the option or argument that states it.
    """
    check_facts(UserFacts(**plan.facts), f"{read}: ")  # type: ignore[arg-type]


def check_facts(user_facts: UserFacts, prefix: str) -> None:
    """Raise BadInput for a fact that cannot be true.

    `prefix` stands before the name of a fact in the message: the dashes of an option, or where else it was stated.
    """
    if user_facts.link is not None and user_facts.link not in LINKS:
        raise BadInput(f"{prefix}link is {user_facts.link!r}; expected one of {', '.join(LINKS)}")
    if user_facts.devices is not None and not 1 <= user_facts.devices <= MOST_DEVICES:
        raise BadInput(
            f"{prefix}devices is {user_facts.devices}; expected a number from 1 to {MOST_DEVICES}"
        )
    if user_facts.operation is not None and operation_of(user_facts.operation) is None:
        raise BadInput(
            f"{prefix}operation is {user_facts.operation!r}; expected one of {', '.join(NAMES)}"
        )
    if user_facts.unit and unit_of(user_facts.unit) is None:
        raise BadInput(f"{prefix}unit is {user_facts.unit!r}; expected one of {SOME_UNITS}")
    if user_facts.begun and moment(user_facts.begun) is None:
        raise BadInput(
            f"{prefix}begun is {user_facts.begun!r}; expected a date or time such as 2026-03-01 or "
            "2026-03-01T10:00:00+01:00"
        )
    if user_facts.product is not None and not user_facts.product.strip():
        raise BadInput(f"{prefix}product is empty; expected a name as the driver prints it")
    if user_facts.product is not None and user_facts.product != printable(user_facts.product):
        raise BadInput(
            f"{prefix}product is {user_facts.product!r}; expected printable text, as the driver prints it"
        )
    if user_facts.host != printable(user_facts.host):
        raise BadInput(
            f"{prefix}host is {user_facts.host!r}; expected the printable name of a node"
        )


def identity_of_file(content: bytes, source: str, paths: Sequence[FigurePath]) -> bytes:
    """Return the bytes that name a file's measurement.

    They are its content, after its place where figures are read by paths. The log of a tool never equals that of
    another run. A program may print the same few figures again.
    """
    return bytes(Path(source).resolve()) + b"\n" + content if paths else content


def run_id_of(identities: Sequence[bytes], paths: Sequence[FigurePath] = ()) -> str:
    """Return a run's name.

    It is made of the identities of its files and of the figures that are read. The same file imported twice then counts
    as one session.
    """
    figures = [repr((path.direction, path.name, path.path)).encode() for path in paths]
    digest = hashlib.sha256()
    for identity in (*identities, *figures):
        digest.update(hashlib.sha256(identity).digest())
    return f"imported-{digest.hexdigest()[:16]}"


def build(
    logs: Sequence[ImportedLog],
    user_facts: UserFacts,
    run_id: str,
    tool: str,
    command: tuple[str, ...],
) -> list[Line]:
    """Return the lines of one run file.

    The run is one session, and each log is a process in it.

    Args:
        logs: the imported logs, all of one machine.
        user_facts: that no log states, from options.
        run_id: the name of the run.
        tool: that writes the file: this package and its version.
        command: the command line that imported the logs.
    """
    environment = imported_environment(logs, user_facts)
    started = started_of(logs, user_facts)
    measurements = [
        _measurement(reading, log, environment, user_facts)
        for log in logs
        for reading in log.readings
    ]
    return [
        Header(run_id, started, command, tool, environment),
        *measurements,
        *_outcomes(measurements, logs),
        Footer("", exit_status=0, measured=len(measurements)),
    ]


def imported_environment(logs: Sequence[ImportedLog], user_facts: UserFacts) -> Environment:
    """Return the environment of logs of one machine.

    Raises:
        BadFile: they are of several products.
    """
    machine = _machine(logs, user_facts)
    return Environment(_device(machine, logs, user_facts), _host(machine, logs), _software(logs))


def started_of(logs: Sequence[ImportedLog], user_facts: UserFacts) -> str:
    """Return when the first log began, or what the user says; empty if unknown."""
    return min((log.started for log in logs if log.started), default=user_facts.begun)


def mark_impossible(logs: Sequence[ImportedLog], user_facts: UserFacts) -> list[ImportedLog]:
    """Return the logs with their impossible readings marked invalid.

    A reading is impossible if its rate is above the peak of the device.
    """
    environment = imported_environment(logs, user_facts)
    return [
        replace(
            log,
            readings=tuple(
                replace(reading, invalid=_invalid_reason(reading, log, environment, user_facts))
                for reading in log.readings
            ),
        )
        for log in logs
    ]


def _invalid_reason(
    reading: Reading, log: ImportedLog, environment: Environment, user_facts: UserFacts
) -> str:
    """Return why a reading is invalid; empty where it is valid.

    Either its tool says so, or its rate is above the peak of the device or the link.
    """
    measurement = with_ceiling(reading, log, environment, user_facts)
    share = measurement.share_of_ceiling
    return reading.invalid or above_peak(
        measurement.ceiling, measurement.work, share, measurement.samples.labels
    )


def with_ceiling(
    reading: Reading, log: ImportedLog, environment: Environment, user_facts: UserFacts
) -> Measurement:
    """Return a reading as a measurement with its peak.

    It is that of the device, or of the link between devices.
    """
    measurement = _measurement(reading, log, environment, user_facts)
    hardware, work, metric = measurement.key.hardware, measurement.work, measurement.key.metric
    # An unknown number of devices counts as one.
    if hardware.devices in (None, 1):
        return replace(measurement, ceiling=datasheet_ceiling(environment.device, work, metric))
    product = product_of(environment.device)
    # The name of a benchmark ends in its operation: nccl_tests.all_reduce.
    _, _, operation = reading.key.benchmark.rpartition(".")
    ceiling = link_ceiling(product, hardware, metric)
    ceiling = ceiling or collective_ceiling(product, hardware, work, metric, operation)
    return replace(measurement, ceiling=ceiling)


def save(lines: Sequence[Line], path: Path) -> bool:
    """Write a new run file, and return True.

    Return False, and write nothing, where the file holds this import already.
    """
    if path.suffix != ".jsonl":
        raise CannotStore(f"{path} is not the name of a run file; expected one that ends in .jsonl")
    if path.is_file() and _same(lines, path):
        return False
    write_new(path, "".join(map(encode_line, lines)))
    return True


def _same(lines: Sequence[Line], path: Path) -> bool:
    """Return True if the run file at `path` holds the import whose lines are given.

    The run's name, its start and its readings must be the same.
    """
    try:
        run = read_run(path)
    except BadFile:
        return False
    header, *_ = lines
    assert isinstance(header, Header)
    new_readings = [
        (line.key, line.samples, line.invalid) for line in lines if isinstance(line, Measurement)
    ]
    stored_readings = [
        (measurement.key, measurement.samples, measurement.invalid)
        for measurement in run.measurements
    ]
    return (run.header.run_id, run.header.started, stored_readings) == (
        header.run_id,
        header.started,
        new_readings,
    )


def _machine(logs: Sequence[ImportedLog], user_facts: UserFacts) -> MachineFacts:
    """Return the machine of the first log that names its product.

    Where no log names one, it is the machine of the first log. Raise BadFile if the logs with readings are of several
    products.
    """
    log_by_product: dict[str, ImportedLog] = {}
    for log in (log for log in logs if log.readings):
        product = log.machine.product
        if user_facts.product is not None and product not in (None, user_facts.product):
            raise BadFile(
                f"{log.source} was measured on {product}, but product={user_facts.product} was given; expected the same"
            )
        fallback = "a CPU" if log.machine.device_type == "cpu" else "an unknown product"
        log_by_product.setdefault(user_facts.product or product or fallback, log)
    if len(log_by_product) > 1:
        sources = ", ".join(f"{log.source} on {product}" for product, log in log_by_product.items())
        raise BadFile(
            f"the files are of different products: {sources}; import each product separately, or give the product of "
            "all files with --product"
        )
    return next((log for log in logs if log.machine.product), logs[0]).machine


def _device(
    machine: MachineFacts, logs: Sequence[ImportedLog], user_facts: UserFacts
) -> DeviceFacts:
    """Return the device that was measured. The product that the user gives goes before that of the logs.

    A product that the user gives is an accelerator; the logs tell the kind of any other.
    """
    product = user_facts.product or machine.product or machine.cpu_model
    return DeviceFacts(
        type="accelerator" if user_facts.product else machine.device_type,
        product=product or UNKNOWN,
        driver=next((log.machine.driver for log in logs if log.machine.driver), None),
    )


def _host(machine: MachineFacts, logs: Sequence[ImportedLog]) -> HostFacts:
    """Return the known facts of the host. Others are zeros and `unknown`."""
    host = next((log.machine.host for log in logs if log.machine.host), None)
    cores = machine.cores or 0
    return HostFacts(
        name=host or UNKNOWN,
        cpu_model=machine.cpu_model or UNKNOWN,
        cores=cores,
        usable_cores=cores,
        memory_bytes=0,
        usable_memory_bytes=0,
        kernel=machine.kernel or UNKNOWN,
    )


def _software(logs: Sequence[ImportedLog]) -> dict[str, str]:
    """Return the versions and settings of the logs' software by name.

    For each tool there is also its convention: the sentence on how it counts bytes and times.
    """
    software: dict[str, str] = {}
    for log in logs:
        software |= log.machine.software | {f"{log.tool.name} convention": log.tool.convention}
    return software


def _hardware(environment: Environment, reading: Reading, user_facts: UserFacts) -> HardwareKey:
    """Return the hardware key of a reading.

    The link counts only between several devices. A CPU has its host's cores in the key.
    """
    link = (user_facts.link or UNKNOWN) if reading.devices > 1 else "none"
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
    reading: Reading, log: ImportedLog, environment: Environment, user_facts: UserFacts
) -> Measurement:
    """Return a reading as a measurement.

    It names a device only if it is of one GPU on one host. Its labels keep what the log says and no reader understands.
    """
    hardware = _hardware(environment, reading, user_facts)
    gpus = [] if log.machine.hosts or hardware.is_cpu else reading.gpus
    device = ""
    if len(gpus) == 1:
        (gpu,) = gpus
        device = f"{environment.host.name}:{gpu}"
    hosts = log.machine.hosts
    ranks = Ranks(len(hosts), "", "", hosts) if hosts else None
    key = replace(reading.key, hardware=hardware)
    return Measurement(
        key=key,
        test_id=f"{log.source}::{reading.test_id}",
        label=key.label,
        process=log.process,
        work=reading.work,
        samples=Samples(
            seconds=reading.seconds,
            iterations=reading.iterations,
            tick_s=0.0,
            warmup_iterations=reading.warmup_iterations,
            labels=(IMPORTED, *(f"{HEAD}{name}: {text}" for name, text in log.unread.items())),
            mode=reading.mode,
        ),
        verified=reading.verified,
        invalid=reading.invalid,
        ranks=ranks,
        device=device,
    )


def _outcomes(measurements: Sequence[Measurement], logs: Sequence[ImportedLog]) -> list[Outcome]:
    """Return one outcome for each test.

    A test failed if a reading of it is invalid, or if its log lists it as failed.
    """
    reasons: dict[str, str] = {}
    for measurement in measurements:
        reasons[measurement.test_id] = reasons.get(measurement.test_id) or measurement.invalid
    outcomes = [
        Outcome(test_id, "failed" if reason else "passed", reason=reason)
        for test_id, reason in reasons.items()
    ]
    return outcomes + [
        Outcome(f"{log.source}::{name}", "failed", reason=reason)
        for log in logs
        for name, reason in log.failed
    ]


def unknown_product(environment: Environment) -> str:
    """Return why the product has no share of a peak, and the remedy.

    Empty for a known product and for a CPU.
    """
    product = environment.device.product
    if environment.device.type == "cpu" or product in products():
        return ""
    if product == UNKNOWN:
        return (
            "the files do not name the product; give the name that the driver prints with --product"
        )
    return f"{product!r} is an unknown product, so no share of a peak is shown"

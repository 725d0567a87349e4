"""The commands `roofline doctor` and `roofline hardware`.

They show this machine, its clocks and known peaks.
"""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import click

from ..core.errors import BadInput, CannotStore
from ..core.facts import Finding, Machine, Unexpected
from ..core.storage import to_plain
from ..core.units import count, parse_duration, printable, slug
from ..engine import devices, inventory, quiet
from ..engine.devices.cpu import QUIETEN, WATCH_S, occupied_text
from ..engine.host import gather, unused_accelerator
from ..engine.sizing.calibration import calibrate
from ..hardware import Peak, Product, products
from ..hardware.keys import how_to_add, is_slice, part_line
from ..hardware.lookup import hardware_files, merge_hardware
from ..machine.diagnosis import diagnose
from ..machine.expectation import differences, expectation_of, read_expectation, write_expectation
from ..report.machine import (
    difference_lines,
    finding_lines,
    machine_lines,
    product_lines,
    product_table,
    property_line,
)
from .options import command, print_json, say, width


@command()
@click.option(
    "--expect",
    type=click.Path(path_type=Path),
    help="Check the machine against FILE.",
)
@click.option(
    "--write-expect",
    type=click.Path(path_type=Path),
    help="Write the facts of this machine to FILE, as an example of a good machine.",
)
@click.option(
    "--wait",
    metavar="DURATION",
    help="Wait at most this long until the machine is quiet: 90s, 10m.",
)
@click.option(
    "--measure", "measures", is_flag=True, help="Also check that timing on a device is right."
)
@click.option(
    "--device", help="With --measure: cpu, cuda, cuda:N, mps or xpu (default: the best device)."
)
def doctor(
    expect: Path | None,
    write_expect: Path | None,
    wait: str | None,
    measures: bool,
    device: str | None,
    as_json: bool,
) -> int:
    """List what this machine has, what limits the trust in its numbers, and how to fix it.

    With --measure also a line for each property of timing that must hold. That takes up to a minute; a GPU works at its
    power cap for ten seconds of it.

    Example: roofline doctor --wait 10m

    Exit status: 0 listed, 1 the machine is not as --expect says, a property does not hold, it stays busy longer than
    --wait, or without --expect is too busy to measure its CPU where it has nothing else, 2 a device or a file cannot be
    used.
    """
    expectation = read_expectation(expect) if expect is not None else None
    if write_expect is not None and write_expect.exists():
        raise CannotStore(f"{write_expect} exists already; choose another name or remove that file")
    timed_device = _open_device(device, measures)
    neighbours = (
        _wait_until_quiet(parse_duration(wait, "--wait"), as_json) if wait is not None else ""
    )
    machine = inventory.take_stock(WATCH_S)
    findings = diagnose(machine)
    deviations = differences(expectation, machine) if expectation is not None else []
    if not as_json:
        _print_doctor(machine, findings, deviations, expect)
    timing: dict[str, object] = {}
    failure_count = 0
    if timed_device is not None:
        timing, failure_count = _check_timing(timed_device, device, as_json)
    if write_expect is not None:
        write_expectation(write_expect, expectation_of(machine))
    if as_json:
        print_json(
            {
                "machine": to_plain(machine),
                "findings": list(map(to_plain, findings)),
                "differences": list(map(to_plain, deviations)),
                **timing,
            }
        )
    if write_expect is not None:
        say(
            f"expectation written to {write_expect}; check this file, and remove the facts that may differ",
            err=as_json,
        )
    # Without a device and without --expect, a busy CPU is a finding as well.
    judges_cpu = expect is None and write_expect is None and not machine.torch_devices
    busy_text = neighbours
    if not busy_text and judges_cpu:
        busy_text = occupied_text(machine.cores_taken, machine.host.usable_cores, machine.taken_by)
    if busy_text:
        say(f"this machine is too busy to be measured: {busy_text}; {QUIETEN}", err=as_json)
    return 1 if deviations or failure_count or busy_text else 0


def _open_device(name: str | None, measures: bool) -> devices.Device | None:
    """Open the device to measure on; return None without --measure.

    This comes before the first line is printed, so that a bad device is the only message.
    """
    if not measures:
        if name is not None:
            raise BadInput("--device needs --measure; give both, or neither")
        return None
    return devices.open_device(name, "--device")


def _check_timing(
    device: devices.Device, name: str | None, as_json: bool
) -> tuple[dict[str, object], int]:
    """Check the properties that timing on a device needs.

    A line is printed for each. Return the results as JSON, and the number of properties that do not hold. `name` is the
    user's name of the device, None for the best one.
    """
    from ..engine.ceiling import TorchWorkloads
    from ..machine.selftest import selftest

    environment = gather(device)
    # With --json only the document goes to standard output.
    say(f"\n{device.name} ({printable(environment.device.product)})", err=as_json)
    warning = "" if name == "cpu" else unused_accelerator(device)
    if warning:
        say(f"WARNING: {warning}", err=True)
    product = products().get(environment.device.product)
    peak = product.peaks.get("memory_GBps") if product else None
    peak_bytes_per_s = peak.value * 1e9 if peak else None
    properties = []
    # Each proof takes seconds, so its line is printed as soon as it is done.
    for proof in selftest(device, TorchWorkloads(device), peak_bytes_per_s):
        properties.append(proof)
        say(property_line(proof, width()), err=as_json)
    failure_count = sum(proof.outcome == "FAILS" for proof in properties)
    closing = f"{failure_count} of {len(properties)} properties fail"
    say(closing if failure_count else "the timing on this machine is correct", err=as_json)
    document: dict[str, object] = {
        "environment": to_plain(environment),
        "calibration": to_plain(calibrate(device)),
        "properties": list(map(to_plain, properties)),
    }
    return document, failure_count


def _wait_until_quiet(patience_s: float, as_json: bool) -> str:
    """Wait until no other process uses the device.

    Return the processes that still use it after `patience_s`, as a text; empty if it is quiet.
    """
    device = devices.open_device(None)
    return quiet.wait_until_quiet(
        lambda: quiet.busy_at(device), patience_s, lambda line: say(line, err=as_json)
    )


def _print_doctor(
    machine: Machine,
    findings: list[Finding],
    deviations: list[Unexpected],
    expect: Path | None,
) -> None:
    """Print the machine, the findings, and with --expect the differences."""
    for line in machine_lines(machine):
        say(line)
    say("")
    for line in finding_lines(findings, width()):
        say(line)
    if expect is not None:
        say("")
        for line in difference_lines(deviations, str(expect)):
            say(line)


@command()
@click.argument("name", required=False)
@click.pass_obj
def hardware(folders: tuple[Path, ...], name: str | None, as_json: bool) -> int:
    """List every known product: memory, peaks, and how sure its figures are; or show NAME with every source.

    NAME is a product as the list has it, or the exact name that a driver prints. Known is what ships, and before it the
    hardware.json of ./baselines and of every `roofline --hardware DIR`.

    Example: roofline hardware "NVIDIA H100 80GB HBM3"

    Exit status: 0 listed or known, 1 NAME is not known, and what to write down is printed, 2 a file cannot be used.
    """
    products = merge_hardware(hardware_files(folders)).catalogue.products
    if name is not None:
        return _show_product(products, name, as_json)
    sorted_products = sorted(products, key=lambda product: product.key)
    if as_json:
        print_json([_product_json(product) for product in sorted_products])
    else:
        say(product_table(sorted_products, width(), sys.stdout.isatty()))
    return 0


def _show_product(products: tuple[Product, ...], name: str, as_json: bool) -> int:
    """Print the hardware product of a name. Return the exit status.

    An unknown name is a slice of a GPU, the beginning of known names, or a product to add; each has its own message.
    """
    matches = [
        product for product in products
        if name in (product.product, " ".join(product.key), *(alias.name for alias in product.names))
    ]  # fmt: skip
    if as_json:
        print_json([_product_json(product) for product in matches])
    elif matches:
        say("\n\n".join("\n".join(product_lines(product)) for product in matches))
    elif is_slice(name):
        say(part_line(printable(name)))
    elif candidates := _products_like(products, name):
        ambiguity = f"{printable(repr(name))} fits {count(len(candidates), 'product')}: {', '.join(candidates)}"
        say(f"{ambiguity}; name one product, for example: roofline hardware {candidates[0]}")
    else:
        say(f"{printable(repr(name))} is not known. {how_to_add(name)}")
    return 0 if matches else 1


def _products_like(products: Iterable[Product], name: str) -> list[str]:
    """Return the names of products that begin like `name`."""
    start = slug(name)
    return sorted(
        {
            product.product
            for product in products
            if product.family == start or product.product.startswith(f"{start}-")
        }
    )


def _product_json(product: Product) -> dict[str, object]:
    """Return a product as JSON, with all figures."""
    return {**to_plain(product), "peaks": _figures(product.peaks), "facts": _figures(product.facts)}


def _figures(figures: dict[str, Peak]) -> dict[str, object]:
    """Return figures by name, with all fields.

    `bounds` is True where a result above the figure must be wrong.
    """
    return {name: {**asdict(figure), "bounds": figure.trusted} for name, figure in figures.items()}

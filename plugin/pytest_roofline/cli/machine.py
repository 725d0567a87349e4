"""`roofline doctor`, `selftest` and `hardware`: what this machine has, whether its clocks can be trusted, its peaks."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.errors import CannotStore
from ..core.storage import to_plain
from ..core.units import printable
from ..core.writing import refuse_overwriting, write_json
from .options import InOrder, command, print_json, say, width

if TYPE_CHECKING:
    from ..core.facts import Finding, Machine, Unexpected
    from ..hardware import Peak, Product


@command("Check on this device that timing is right, in a minute.")
@click.option("--device", help="cpu, cuda, cuda:N, mps, xpu; default: the best one.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Also write the JSON to this file."
)
def selftest(device: str | None, as_json: bool, output: Path | None) -> int:
    """Check on this device that timing is right: a line for each property that must hold.

    It takes up to a minute; a GPU works at its power cap for ten seconds of it.

    Example: roofline selftest --device cuda:1

    Exit status: 0 timing can be trusted, 1 a property fails, 2 the device or a file cannot be used.
    """
    from ..engine.calibration import calibrate
    from ..engine.ceiling import TorchWorkloads
    from ..engine.devices import open_device
    from ..engine.host import gather, unused_accelerator
    from ..hardware import products
    from ..machine.selftest import selftest as prove
    from ..report.machine import property_line

    if output is not None:
        refuse_overwriting(output)
    opened = open_device(device, "--device")
    environment = gather(opened)
    # With --json, standard output is for the machine alone.
    say(f"{opened.name} ({printable(environment.device.product)})", err=as_json)
    warning = "" if device == "cpu" else unused_accelerator(opened)
    if warning:
        say(f"WARNING: {warning}", err=True)
    known = products().get(environment.device.product)
    peak = known.peaks.get("memory_GBps") if known else None
    properties = []
    for checked in prove(opened, TorchWorkloads(opened), peak.value * 1e9 if peak else None):
        properties.append(checked)
        say(property_line(checked, width()), err=as_json)
    failed = sum(checked.outcome == "FAILS" for checked in properties)
    closing = f"{failed} of {len(properties)} properties fail"
    say(closing if failed else "timing can be trusted here", err=as_json)
    plain = {
        "environment": to_plain(environment),
        "calibration": to_plain(calibrate(opened)),
        "properties": list(map(to_plain, properties)),
    }
    if output is not None:
        write_json(output, plain)
    if as_json:
        print_json(plain)
    return 1 if failed else 0


@command("List what limits trust in this machine's numbers.")
@click.option(
    "--expect",
    type=click.Path(path_type=Path),
    help="Check the machine against FILE; nothing is measured.",
)
@click.option(
    "--write-expect",
    type=click.Path(path_type=Path),
    help="Write FILE from this machine, a good one.",
)
def doctor(expect: Path | None, write_expect: Path | None, as_json: bool) -> int:
    """List what this machine has, what limits the trust in its numbers, and how to fix it.

    Example: roofline doctor --expect node.json

    Exit status: 0 listed, 1 the machine is not as --expect says, or without --expect too busy to measure its CPU where
    it has nothing else, 2 a file cannot be used.
    """
    from ..engine.devices.cpu import QUIETEN, WATCH_S, occupied
    from ..engine.inventory import take_stock
    from ..machine.diagnosis import diagnose
    from ..machine.expectation import (
        differences,
        expectation_of,
        read_expectation,
        write_expectation,
    )

    expected = read_expectation(expect) if expect is not None else None
    if write_expect is not None and write_expect.exists():
        raise CannotStore(f"{write_expect} exists already; choose another name or remove it")
    machine = take_stock(WATCH_S)
    findings = diagnose(machine)
    found = differences(expected, machine) if expected is not None else []
    if not as_json:
        _print_doctor(machine, findings, found, expect)
    if write_expect is not None:
        write_expectation(write_expect, expectation_of(machine))
    if as_json:
        print_json(
            {
                "machine": to_plain(machine),
                "findings": list(map(to_plain, findings)),
                "differences": list(map(to_plain, found)),
            }
        )
    if write_expect is not None:
        say(
            f"expectation written to {write_expect}; read it, and leave out what may differ",
            err=as_json,
        )
    alone = expect is None and write_expect is None and not machine.torch_devices
    busy = alone and occupied(machine.cores_taken, machine.host.usable_cores, machine.taken_by)
    if busy:
        say(f"this machine is too busy to be measured: {busy}; {QUIETEN}", err=as_json)
    return 1 if found or busy else 0


def _print_doctor(
    machine: "Machine", findings: "list[Finding]", found: "list[Unexpected]", expect: Path | None
) -> None:
    from ..report.machine import difference_lines, finding_lines, machine_lines

    for line in machine_lines(machine):
        say(line)
    say("")
    for line in finding_lines(findings, width()):
        say(line)
    if expect is not None:
        say("")
        for line in difference_lines(found, str(expect)):
            say(line)


@click.group(cls=InOrder, short_help="List known hardware and what it can reach.")
def hardware() -> None:
    """Which products are known, what they can reach, and whether that can be true.

    What ships, and before it the hardware.json of ./baselines and of every `roofline --hardware DIR`.
    """


@command("List every known product.", group=hardware, name="list")
@click.pass_obj
def list_products(folders: tuple[Path, ...], as_json: bool) -> None:
    """List every known product: memory, peaks, and how sure its figures are.

    Example: roofline --hardware site/ hardware list

    Exit status: 0 listed, 2 a file cannot be used.
    """
    from ..report.machine import product_table

    rows = sorted(_products(folders), key=lambda product: product.key)
    if as_json:
        print_json([_product_json(product) for product in rows])
    else:
        say(product_table(rows, width(), sys.stdout.isatty()))


@command("Show what is known of one product, with sources.", group=hardware)
@click.argument("name")
@click.pass_obj
def show(folders: tuple[Path, ...], name: str, as_json: bool) -> int:
    """Show what is known of NAME: a product as `list` has it, or the exact name that a driver prints.

    Example: roofline hardware show "NVIDIA H100 80GB HBM3"

    Exit status: 0 it is known, 1 it is not, and what to write down is printed, 2 a file cannot be used.
    """
    from ..hardware.keys import how_to_add, is_slice, part_line
    from ..report.machine import product_lines

    found = [
        product for product in _products(folders)
        if name in (product.product, " ".join(product.key), *(alias.name for alias in product.names))
    ]  # fmt: skip
    if as_json:
        print_json([_product_json(product) for product in found])
    elif found:
        say("\n\n".join("\n".join(product_lines(product)) for product in found))
    elif is_slice(name):
        say(part_line(printable(name)))
    else:
        say(f"{printable(repr(name))} is not known. {how_to_add(name)}")
    return 0 if found else 1


def _products(folders: tuple[Path, ...]) -> "tuple[Product, ...]":
    """What is in use with the hardware of these folders."""
    from ..hardware.lookup import hardware_files, merged

    return merged(hardware_files(folders)).catalogue.products


@command("Validate files of hardware.", group=hardware, name="check")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.pass_obj
def check_hardware(folders: tuple[Path, ...], files: tuple[Path, ...], as_json: bool) -> int:
    """Validate FILES of hardware (default: those in use): form, names, sources, and the range of every figure.

    Example: roofline hardware check site/hardware.json

    Exit status: 0 nothing is wrong, 1 something is, 2 a file cannot be read.
    """
    from ..hardware.lookup import hardware_files, mistakes, read_hardware

    checked = files or hardware_files(folders)
    found = [(str(path), mistake) for path in checked for mistake in mistakes(read_hardware(path))]
    if as_json:
        print_json([{"file": file, **asdict(mistake)} for file, mistake in found])
    else:
        for file, mistake in found:
            say(f"{printable(file)}: {mistake}")
        where = (
            ", ".join(map(str, checked))
            or "no file of hardware: what ships is tested with the package"
        )
        say(f"{len(found) or 'nothing'} wrong in {printable(where)}")
    return 1 if found else 0


def _product_json(product: "Product") -> dict[str, object]:
    return {**to_plain(product), "peaks": _figures(product.peaks), "facts": _figures(product.facts)}


def _figures(figures: "dict[str, Peak]") -> dict[str, object]:
    """Every figure with all that there is to say of it, whether by default or not."""
    return {name: {**asdict(figure), "bounds": figure.trusted} for name, figure in figures.items()}

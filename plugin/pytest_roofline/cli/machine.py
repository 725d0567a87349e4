"""`roofline doctor` and `roofline selftest`: what this machine has, and proof that its clocks can be trusted."""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import CannotStore
from ..core.units import printable
from .options import json_option, print_json

if TYPE_CHECKING:
    from ..core.facts import DeviceFacts, Environment, Finding, Machine, Property, Unexpected
    from ..core.samples import Calibration


def _width() -> int:
    return shutil.get_terminal_size((100, 24)).columns


@click.command(short_help="Prove on this device that timing is right, in a minute.")
@click.option("--device", default=None, help="cpu, cuda, cuda:N, mps, xpu; the best there is by default.")
@json_option
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Also write the JSON to this file.")
def selftest(device: str | None, as_json: bool, output: Path | None) -> None:
    """Prove on this device that timing is right: a line for each property that must hold.

    It takes up to a minute, of which a GPU works at its power cap for ten seconds.

    Example: roofline selftest --device cuda:1

    Exit status: 0 timing can be trusted, 1 a property fails, 2 the device or a file cannot be used.
    """
    from ..core.writing import refuse_overwriting
    from ..engine.calibration import calibrate
    from ..engine.devices import open_device
    from ..engine.host import gather, unused_accelerator
    from ..machine.selftest import Limits, TorchWorkloads
    from ..machine.selftest import selftest as prove
    from ..report.machine import property_line

    if output is not None:
        refuse_overwriting(output)
        _refuse_unwritable(output)
    opened = open_device(device, "--device")
    environment = gather(opened)
    # With --json, standard output is for the machine alone.
    click.echo(f"{opened.name} ({printable(environment.device.product)})", err=as_json)
    warning = "" if device == "cpu" else unused_accelerator(opened)
    if warning:
        click.echo(f"WARNING: {warning}", err=True)
    properties = []
    for found in prove(opened, TorchWorkloads(opened), Limits(_memory_peak(environment.device))):
        properties.append(found)
        click.echo(property_line(found, _width()), err=as_json)
    failed = [found.name for found in properties if found.outcome == "FAILS"]
    closing = f"{len(failed)} of {len(properties)} properties fail" if failed else "timing can be trusted here"
    click.echo(closing, err=as_json)
    plain = _selftest_as_plain(environment, calibrate(opened), properties)
    if output is not None:
        _write(output, plain)
    if as_json:
        print_json(plain)
    sys.exit(1 if failed else 0)


def _refuse_unwritable(path: Path) -> None:
    """Better now than after a minute of measuring."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotStore(f"{path} cannot be written: {error.strerror}") from None
    if (path.exists() and not path.is_file()) or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CannotStore(f"{path} cannot be written; expected a file in a folder that may be written")


def _memory_peak(device: "DeviceFacts") -> float | None:
    from ..hardware import products

    known = products().get(device.product)
    peak = known.peaks.get("memory_GBps") if known else None
    return peak.value * 1e9 if peak else None


def _selftest_as_plain(
    environment: "Environment", calibration: "Calibration", properties: "list[Property]"
) -> dict[str, Any]:
    from ..core.storage import to_plain

    return {
        "environment": to_plain(environment),
        "calibration": to_plain(calibration),
        "properties": [to_plain(found) for found in properties],
    }


def _write(path: Path, plain: dict[str, Any]) -> None:
    from ..core.writing import write_json

    write_json(path, plain)


@click.command(short_help="List what limits trust in this machine's numbers.")
@click.option("--expect", type=click.Path(path_type=Path), help="Check the machine against FILE; nothing is measured.")
@click.option("--write-expect", type=click.Path(path_type=Path), help="Write FILE from this machine, a good one.")
@json_option
def doctor(expect: Path | None, write_expect: Path | None, as_json: bool) -> None:
    """List what this machine has, what limits the trust in its numbers, and what would mend each.

    Example: roofline doctor --expect node.json

    Exit status: 0 listed, 1 the machine is not as --expect says, 2 a file cannot be used.
    """
    from ..engine.inventory import take_stock
    from ..machine.diagnosis import diagnose
    from ..machine.expectation import differences, expectation_of, read_expectation, write_expectation

    expected = read_expectation(expect) if expect is not None else None
    if write_expect is not None and write_expect.exists():
        raise CannotStore(f"{write_expect} exists already; choose another name or remove it")
    machine = take_stock()
    findings = diagnose(machine)
    found = differences(expected, machine) if expected is not None else []
    if not as_json:
        _print_doctor(machine, findings, found, expect)
    if write_expect is not None:
        write_expectation(write_expect, expectation_of(machine))
    if as_json:
        print_json(_as_plain(machine, findings, found))
    if write_expect is not None:
        click.echo(f"expectation written to {write_expect}; read it, and leave out what may differ", err=as_json)
    sys.exit(1 if found else 0)


def _as_plain(machine: "Machine", findings: "list[Finding]", found: "list[Unexpected]") -> dict[str, Any]:
    from ..core.storage import to_plain

    return {
        "machine": to_plain(machine),
        "findings": [to_plain(finding) for finding in findings],
        "differences": [to_plain(difference) for difference in found],
    }


def _print_doctor(
    machine: "Machine", findings: "list[Finding]", found: "list[Unexpected]", expect: Path | None
) -> None:
    from ..report.machine import difference_lines, finding_lines, machine_lines

    for line in machine_lines(machine):
        click.echo(line)
    click.echo("")
    for line in finding_lines(findings, _width()):
        click.echo(line)
    if expect is not None:
        click.echo("")
        for line in difference_lines(found, str(expect)):
            click.echo(line)

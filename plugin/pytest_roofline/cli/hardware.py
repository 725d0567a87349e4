"""`roofline hardware list`, `show` and `check`: which products are known, and whether what is said of them can be."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.units import printable
from .help import InOrder
from .options import json_option, print_json, width

if TYPE_CHECKING:
    from ..hardware import Peak, Product


@click.group(cls=InOrder, short_help="Say which products are known, and what they can reach.")
def hardware() -> None:
    """Which products are known, what they can reach, and whether that can be true.

    What ships, and before it the hardware.json of ./baselines and of every `roofline --hardware DIR`.
    """


@hardware.command(name="list", short_help="List every known product.")
@json_option
@click.pass_obj
def list_products(folders: tuple[Path, ...], as_json: bool) -> None:
    """List every known product: memory, peaks, and how sure its figures are.

    Example: roofline --hardware site/ hardware list

    Exit status: 0 listed, 2 a file cannot be used.
    """
    from ..report.machine import product_table

    rows = sorted(_products(folders), key=lambda product: product.key)
    if as_json:
        print_json([_as_plain(product) for product in rows])
    else:
        click.echo(product_table(rows, width(), sys.stdout.isatty()))


@hardware.command(short_help="Show what is known of one product, with sources.")
@click.argument("name")
@json_option
@click.pass_obj
def show(folders: tuple[Path, ...], name: str, as_json: bool) -> None:
    """Show what is known of NAME: a product as `list` has it, or the exact name that a driver prints.

    Example: roofline hardware show "NVIDIA H100 80GB HBM3"

    Exit status: 0 it is known, 1 it is not, and what to write down is printed, 2 a file cannot be used.
    """
    from ..hardware.keys import how_to_add, is_slice, part_line
    from ..report.machine import product_lines

    found = [product for product in _products(folders) if _is_called(product, name)]
    if as_json:
        print_json([_as_plain(product) for product in found])
    elif found:
        click.echo("\n\n".join("\n".join(product_lines(product)) for product in found))
    elif is_slice(name):
        click.echo(part_line(printable(name)))
    else:
        click.echo(f"{printable(repr(name))} is not known. {how_to_add(name)}")
    sys.exit(0 if found else 1)


def _products(folders: tuple[Path, ...]) -> "tuple[Product, ...]":
    """What is in use with the hardware of these folders."""
    from ..hardware.lookup import hardware_files, merged

    return merged(hardware_files(folders)).catalogue.products


def _is_called(product: "Product", name: str) -> bool:
    """Whether a product goes by this: its key, the first word of it, or a name that is printed for it."""
    return name in (product.product, " ".join(product.key), *(alias.name for alias in product.names))


@hardware.command(short_help="Validate files of hardware.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@json_option
@click.pass_obj
def check(folders: tuple[Path, ...], files: tuple[Path, ...], as_json: bool) -> None:
    """Validate FILES of hardware, each beside the files in use; without FILES, all of these.

    Checked are the form, the names, the sources, and that every figure lies in the range of its unit.

    Example: roofline hardware check site/hardware.json

    Exit status: 0 nothing is wrong, 1 something is, 2 a file cannot be read.
    """
    from ..hardware.lookup import hardware_files, mistakes_in

    in_use = hardware_files(folders)
    found = [(str(path), mistake) for path in files or in_use for mistake in mistakes_in(path, in_use)]
    if as_json:
        print_json([{"file": file, **asdict(mistake)} for file, mistake in found])
    else:
        for file, mistake in found:
            click.echo(f"{printable(file)}: {mistake}")
        where = ", ".join(map(str, files or in_use)) or "no file of hardware: what ships is tested with the package"
        click.echo(f"{len(found) or 'nothing'} wrong in {printable(where)}")
    sys.exit(1 if found else 0)


def _as_plain(product: "Product") -> dict[str, Any]:
    from ..core.storage import to_plain

    return {**to_plain(product), "peaks": _figures(product.peaks), "facts": _figures(product.facts)}


def _figures(figures: "dict[str, Peak]") -> dict[str, Any]:
    """Every figure with all that there is to say of it, whether by default or not."""
    return {name: {**asdict(figure), "bounds": figure.trusted} for name, figure in figures.items()}

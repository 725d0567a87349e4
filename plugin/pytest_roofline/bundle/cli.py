"""`roofline bundle`: what a vendor's support asks for, in one archive without names."""

import contextlib
import getpass
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..cli.options import folder_option, json_option, print_json, say
from ..core.errors import BadInput, CannotStore
from ..core.units import format_amount, printable, slug

if TYPE_CHECKING:
    from ..baselines.runs import Run
    from .making import Bundle

# Of a label in the archive's name, so that every file system takes it.
LONGEST_NAME = 80


@click.command(short_help="Pack a run for a vendor's support, without names.")
@click.argument("run")
@click.option(
    "--test", "tests", multiple=True, metavar="TEST",
    help="Part of the name or id of a test (repeatable); default: the worst failure.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE.zip",
    help="The archive; default: roofline-bundle-TEST.zip in this folder.",
)  # fmt: skip
@click.option(
    "--keep", "keep", multiple=True, metavar="CATEGORIES",
    help="What not to redact, with commas between: hosts, users, paths, addresses, emails, devices, secrets, jobs, "
    "urls, values.",
)  # fmt: skip
@click.option(
    "--sources", type=click.Path(path_type=Path), metavar="DIR",
    help="pytest's root of the run, from which the test is copied; default: the folder above .roofline, or this one.",
)  # fmt: skip
@json_option
@folder_option
def bundle(
    run: str, tests: tuple[str, ...], output: Path | None, keep: tuple[str, ...], sources: Path | None, as_json: bool,
    folder: Path,
) -> None:  # fmt: skip
    """Pack RUN for a vendor's support: the run, explanations, and everything needed to measure the test again.

    RUN is a saved NAME or a PATH. Hosts, users, paths, addresses, devices and secrets are replaced by placeholders
    that are the same in every file; read the archive before you send it.

    Example: roofline bundle driver-570 --test all_reduce

    Exit status: 0 written, 2 the input cannot be used, or nothing failed and no test is named.
    """
    from ..baselines.run_files import resolve_run
    from ..baselines.runs import read_run
    from .making import make_bundle
    from .redacting import Redactor
    from .sources import zipped

    read = read_run(resolve_run(run, folder))
    redactor = Redactor(name.strip() for names in keep for name in names.split(",") if name.strip())
    for category, name in _names_here():
        redactor.learn(category, name)
    made = make_bundle(read, tests, redactor, (sources or _root_of(read)).resolve())
    path = output or Path(f"roofline-bundle-{slug(made.rows[0].label)[:LONGEST_NAME]}.zip")
    data = zipped(made.files)
    _write(path, data)
    if as_json:
        print_json(
            {
                "archive": str(path),
                "tests": [
                    {"test": row.test, "label": row.label, "verdict": row.verdict}
                    for row in made.rows
                ],
                "files": sorted(made.files),
                "commands": made.commands,
                "left_out": made.left_out,
                "notes": made.notes,
                "replaced": made.summary,
                "kept": sorted(redactor.keep),
            }
        )
        return
    for line in _lines(path, len(data), made, redactor.keep):
        say(printable(line))


def _names_here() -> Iterator[tuple[str, str]]:
    """This machine and who uses it: the tests are copied from here, wherever the run was made."""
    yield "hosts", platform.node()
    # A container may have a user without a name.
    with contextlib.suppress(KeyError, OSError):
        yield "users", getpass.getuser()


def _root_of(run: "Run") -> Path:
    """The folder above `.roofline`, where the run lies in it as a run leaves it there; else this one."""
    for parent in run.path.resolve().parents:
        if parent.name == ".roofline":
            return parent.parent
    return Path()


def _write(path: Path, data: bytes) -> None:
    """Write it; one that is there is not overwritten."""
    try:
        with path.open("xb") as file:
            try:
                file.write(data)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        if path.is_dir():
            raise BadInput(
                f"{path} is a folder; expected the archive's own name behind -o, as x.zip in it"
            ) from None
        raise BadInput(
            f"{path} exists already; choose another name with -o, or remove it"
        ) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise CannotStore(
            f"{path} cannot be written: {why}; choose another place with -o"
        ) from None


def _lines(path: Path, size_bytes: int, made: "Bundle", keep: frozenset[str]) -> Iterator[str]:
    from .redacting import summary_lines

    yield f"{path}: {len(made.files)} files, {format_amount(size_bytes)}"
    for row in made.rows:
        yield f"about {row.verdict} {row.label}"
    if made.tests:
        yield "to measure it again: unpack it, then in roofline-bundle"
        yield from (f"  {command}" for command in made.commands)
    for why in made.left_out:
        yield f"cannot be measured from it: {why}"
    for note in made.notes:
        yield f"note: {note}"
    yield from summary_lines(made.summary, keep)
    yield "read it before you send it: no rule finds every name"

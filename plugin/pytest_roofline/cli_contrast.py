"""`roofline contrast`: what one parameter makes of every test of a run."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .cli_options import folder_option, json_option, print_json, width
from .core.errors import BadInput

if TYPE_CHECKING:
    from .judging.contrasts import Contrast


@click.command(short_help="Show what one parameter makes of each test.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--by", "parameter", required=True, help="The parameter that differs: precision, execution, ….")
@click.option("--base", required=True, help="Its value to compare with: fp32.")
@click.option("--other", required=True, help="Its value that is compared: bf16_autocast.")
@click.option("-k", "part", default="", help="Only tests whose benchmark holds this text.")
@click.option("--across", help="In Markdown: the parameter whose values stand side by side: passes.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print a table of Markdown.")
@json_option
@folder_option
def contrast(
    runs: tuple[str, ...],
    parameter: str,
    base: str,
    other: str,
    part: str,
    across: str | None,
    as_markdown: bool,
    as_json: bool,
    folder: Path,
) -> None:
    """Show what a parameter makes of each test: fp32 against bf16, eager against compiled, with difference and percent.

    RUN is a saved name or a path. Tests are paired that differ in that parameter alone. This judges nothing.

    Example: roofline contrast steps --by precision --base fp32 --other bf16

    Exit status: 0 shown, 2 the input cannot be used, or holds no such pair.
    """
    if across is not None and not as_markdown:
        raise BadInput(f"--across={across} is for --markdown; expected both, or neither")
    if as_json and as_markdown:
        raise BadInput("--json and --markdown are both given; expected one of them")
    found = _found(runs, parameter, base, other, part, folder)
    if as_json:
        from .reporting.contrast import contrast_as_json

        print_json([contrast_as_json(one) for one in found])
        return
    _print(found, base, other, across, as_markdown)


def _found(runs: tuple[str, ...], parameter: str, base: str, other: str, part: str, folder: Path) -> "list[Contrast]":
    from .judging.contrasts import contrasts
    from .judging.runs import read_run, resolve_run

    read = [read_run(resolve_run(name, folder)) for name in runs]
    found = [one for one in contrasts(read, parameter, base, other) if part in one.benchmark]
    if not found:
        raise BadInput(
            f"no test with {parameter}={base} has a twin with {parameter}={other}"
            + (f" among those with {part!r} in their name" if part else "")
        )
    return found


def _print(found: "list[Contrast]", base: str, other: str, across: str | None, as_markdown: bool) -> None:
    from .reporting.contrast import NOTE, contrast_markdown, contrast_table, unsound_lines

    known = sorted({name for one in found for name in one.parameters})
    if across is not None and across not in known:
        raise BadInput(f"no pair has the parameter --across={across}; expected one of {', '.join(known) or 'none'}")
    if as_markdown:
        click.echo(contrast_markdown(found, base, other, across))
    else:
        click.echo(contrast_table(found, base, other, width(), colour=False))
    for text in (*unsound_lines(found, base, other), NOTE):
        # Markdown makes one paragraph of lines without a blank one between them.
        click.echo(f"\n{text}")

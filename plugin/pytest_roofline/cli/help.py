"""The group behind `roofline`: its commands by what people come for, and our errors as one sentence."""

import io
import sys
from typing import Any

import click

from ..core.errors import CannotStore, RooflineError
from ..core.units import printable

# In the order in which people need them; a command that stands in none is listed at the end.
SECTIONS = {
    "Begin here": ("init", "doctor", "selftest"),
    "One run against another": ("compare", "explain", "drill"),
    "What runs are held against": ("baseline", "hardware"),
    "Many runs, many machines": ("history", "fleet"),
    "For others to read": ("report", "bundle", "export", "import"),
}
_OTHERS = "Others"
# As pyproject.toml asks for it. What reads files works without, what looks at a device does not.
TORCH = "torch>=2.10"


class InOrder(click.Group):
    """Lists its commands in the order in which a person comes to them, and not by their letters."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, as they were added."""
        del ctx
        return list(self.commands)


class Commands(click.Group):
    """Lists its commands in sections, and turns our own errors into one sentence and exit status 2."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Every command that is not hidden, one line each."""
        del ctx
        left = {name: command for name, command in self.commands.items() if not command.hidden}
        # One width for all sections, so that they line up.
        widest = max(map(len, left), default=0)
        room = formatter.width - widest - 6
        sections = {title: [name for name in names if name in left] for title, names in SECTIONS.items()}
        known = {name for names in sections.values() for name in names}
        sections[_OTHERS] = sorted(left.keys() - known)
        for title, names in sections.items():
            rows = [(name.ljust(widest), left[name].get_short_help_str(room)) for name in names]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def main(self, *args: Any, **more: Any) -> Any:
        """As click has it, with a question mark for what the encoding of standard output lacks."""
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="replace")
        return super().main(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            if sys.stdout is None:
                raise CannotStore("standard output is closed; expected one that can be written, such as /dev/null")
            return super().invoke(ctx)
        except RooflineError as error:
            click.echo(f"roofline: {printable(str(error))}", err=True)
            ctx.exit(2)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            click.echo(f"roofline: torch is not installed; expected {TORCH}: pip install '{TORCH}'", err=True)
            ctx.exit(2)
        except BrokenPipeError:
            # Whoever reads has seen enough, as `head` has: click ends quietly.
            raise
        except OSError as error:
            # What fails without a name is a stream, mostly standard output.
            where = "" if error.filename is None else f"{error.filename}: "
            click.echo(f"roofline: {printable(f'{where}{error.strerror or error}')}", err=True)
            ctx.exit(2)

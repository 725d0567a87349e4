"""Commands that were taken away, which for one version say what to use instead."""

import click

from ..core.errors import BadInput

GONE = {
    "qualify": "use `roofline compare BEFORE AFTER --control KEPT_BEFORE KEPT_AFTER`, each of them runs or a folder",
    "contrast": "read results.csv of `roofline report` with pandas; docs/suite.md has the lines",
}


def gone(name: str) -> click.Command:
    """A hidden command that takes whatever the old one took, and ends with status 2 and the sentence."""

    def refuse() -> None:
        raise BadInput(f"`roofline {name}` is gone; {GONE[name]}")

    return click.Command(
        name,
        callback=refuse,
        hidden=True,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )

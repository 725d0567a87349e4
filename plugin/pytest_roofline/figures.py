"""One figure of a test: from the call of `roofline.figure` to the record in the run file."""

from .core.checks import shown
from .core.errors import BadInput
from .core.figures import UNITS, Figure, Unit
from .planned import encodable
from .subject import Subject


def note_figure(subject: Subject, name: str, value: float, unit: Unit) -> Figure:
    """Write a number of a test down.

    Raises:
        BadInput: another unit, no finite number, or a name that the test gave before.
    """
    if not (isinstance(name, str) and name):
        raise BadInput(f"figure was given the name {name!r}; expected text that says what it is")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(f"the figure {name!r} is {shown(value)}; expected a number in one of {', '.join(UNITS)}")
    figure = Figure(
        test_id=subject.test_id,
        label=subject.label(""),
        process=subject.session.process,
        name=encodable(name),
        value=float(value),
        unit=unit,
    )
    subject.fresh_figure(figure.name)
    subject.session.note(figure)
    return figure

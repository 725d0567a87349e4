"""The test that measures: its name in the run, its marker, and the names that it gave to its measurements."""

from collections.abc import Callable

import pytest

from ..core.errors import BadInput
from .planned import Planned, benchmark_name, encodable, parameters_of
from .session import RooflineSession
from .settings import Marks


class CurrentTest:
    """One test of a run.

    Args:
        session: the run.
        item: the test.
        marks: what its marker says.
    """

    def __init__(self, session: RooflineSession, item: pytest.Item, marks: Marks) -> None:
        self.session = session
        self.item = item
        self.marks = marks
        self._names: set[tuple[str, str]] = set()
        self._figures: set[str] = set()
        self._memories: set[str] = set()

    @property
    def test_id(self) -> str:
        """Its node id, as files hold it."""
        return encodable(self.item.nodeid)

    @property
    def planned(self) -> Planned:
        """Its benchmark and parameters."""
        known = self.session.planned.get(self.item.nodeid)
        return known or Planned(self.item, benchmark_name(self.item), parameters_of(self.item), self.marks)

    def label(self, name: str) -> str:
        """The benchmark with the test's own id text and the measurement's name: `TestCopies.d2d[64MiB].cold`."""
        spec = getattr(self.item, "callspec", None)
        label = self.planned.benchmark + (f"[{encodable(spec.id)}]" if spec is not None else "")
        return label + (f".{name}" if name else "")

    def fresh_name(self, name: str | None, target: str = "") -> str:
        """The name of a measurement, or of a kernel that is compiled for a target.

        Raises:
            BadInput: it is no text, or the test used it before.
        """
        if name is not None and not (isinstance(name, str) and name):
            raise BadInput(f"name is {name!r}; expected text, or None for the only measurement of a test")
        fresh = encodable(name or "")
        if (fresh, target) in self._names:
            called = f"the name {fresh!r}" if fresh else "no name"
            what = f"compiles twice for {target}" if target else "measures twice"
            raise BadInput(f"this test {what} under {called}; give each measurement a name of its own")
        self._names.add((fresh, target))
        return fresh

    def fresh_figure(self, name: str) -> None:
        """Take the name of a figure, which a measurement of the test may have too.

        Raises:
            BadInput: the test gave it to another figure.
        """
        if name in self._figures:
            raise BadInput(f"this test gives the figure {name!r} twice; give each figure a name of its own")
        self._figures.add(name)

    def fresh_memory(self, name: str | None) -> str:
        """The name of a call whose memory is followed, which a measurement of the test may have too.

        Raises:
            BadInput: it is no text, or the test gave it to another.
        """
        if name is not None and not (isinstance(name, str) and name):
            raise BadInput(f"name is {name!r}; expected text, or None for the only call whose memory is followed")
        fresh = encodable(name or "")
        if fresh in self._memories:
            called = f"the name {fresh!r}" if fresh else "no name"
            raise BadInput(f"this test follows memory twice under {called}; give each call a name of its own")
        self._memories.add(fresh)
        return fresh

    def require_open(self) -> None:
        """Refuse a measurement that nobody would judge, and a note that nobody would show.

        Raises:
            BadInput: the test's verdicts are out.
        """
        if self.item.nodeid in self.session.ended:
            raise BadInput("roofline was used in a teardown, after the verdict; expected it in the test or its set-up")

    def replacement(self, name: str, fn: Callable[..., object]) -> Callable[..., object] | None:
        """What a hook gives to be measured in place of `fn`; None leaves it as it is."""
        hook = self.item.config.hook.pytest_roofline_function
        return hook(item=self.item, name=name, fn=fn)  # type: ignore[no-any-return]

"""The hook that leaves our frames out of printed failures."""

import contextlib
from collections.abc import Generator

import pytest

from ..core.errors import RooflineError, without_our_frames
from .planned import measures, uses_ranks


class UsersFramesFirst:
    """The hook that leaves our frames out of printed failures, unless `--full-trace` asks for them."""

    def __init__(self, config: pytest.Config) -> None:
        self._shows_all = config.getoption("fulltrace", False)

    # This wrapper is the innermost, so that those of other plugins see the whole traceback.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Remove our frames and error classes from a report.

        pytest cuts the lines of its summary, and the name of the class would use up their room.
        """
        # The error of a unittest.TestCase is kept at the item, until a hook within this one moves it to the call.
        raised = next(iter(getattr(item, "_excinfo", None) or ()), call.excinfo)
        raised = raised if measures(item) or uses_ranks(item) else None
        error = raised.value if raised is not None else None
        with _users_frames(None if self._shows_all else raised):
            report = yield
        crash = getattr(report.longrepr, "reprcrash", None)
        if isinstance(error, RooflineError) and crash is not None:
            crash.message = crash.message.removeprefix(
                f"{type(error).__module__}.{type(error).__qualname__}: "
            )
        return report


@contextlib.contextmanager
def _users_frames(raised: pytest.ExceptionInfo[BaseException] | None) -> Generator[None]:
    """Leave our frames out of an exception within this block.

    It also works for an exception whose frames somebody has looked at before.
    """
    if raised is None:
        yield
        return
    whole_trace = raised.traceback
    with without_our_frames(raised.value):
        # pytest keeps the frames from their first use on, so they are read anew.
        raised.traceback = type(whole_trace)(raised.tb)
        try:
            yield
        finally:
            raised.traceback = whole_trace

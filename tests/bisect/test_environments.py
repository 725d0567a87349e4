"""The environments of a search: what they need of the disk."""

import pytest

from pytest_roofline.bisect import environments
from pytest_roofline.bisect.environments import Environments
from pytest_roofline.bisect.state import BisectState
from pytest_roofline.core.errors import CannotStore


def test_a_disk_that_is_too_full_for_a_candidate_is_named_before_it_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "RESERVE_BYTES", 2**62)
    state = BisectState("one", (".", "."), (".",), arguments=(), cwd=str(tmp_path), seed=1)
    sides = Environments(state).sides({"M": (0,)})
    expected = r"has .* free; expected .* for a candidate; free disk space, or set TMPDIR to"
    with pytest.raises(CannotStore, match=expected), sides:
        pass

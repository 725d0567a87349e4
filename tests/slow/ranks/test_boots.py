"""Ranks that start as processes of their own and find something there that ends one of them."""

import os
import re

import pytest

from pytest_roofline.core.errors import RanksFailed
from pytest_roofline.ranks.local import Local
from pytest_roofline.ranks.pool import Pool

from ...ranks import rank_functions as ranks
from ...ranks.real_ranks import PATIENCE_S, end_within
from ...ranks.test_pool import HOST, failed_boot, run


class Spoiled(Local):
    """Ranks that find something at their start which ends one of them."""

    def __init__(self, folder, text):
        super().__init__()
        (folder / "sitecustomize.py").write_text(text)
        self._path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.pids = []

    def start(self, size, variables):
        super().start(size, variables | {"PYTHONPATH": self._path})
        self.pids = [process.pid for process in self._processes.values()]


def test_a_rank_that_ends_before_it_has_come_is_told_with_its_last_words(tmp_path):
    placement = Spoiled(
        tmp_path,
        "import os\nif os.environ.get('RANK') == '1':\n    os.write(2, b'no libcuda\\n')\n    os._exit(7)\n",
    )
    text = failed_boot(placement)

    assert "rank 1 ended during its start: exit code 7" in text.splitlines()[0]
    assert "no libcuda" in text
    assert end_within(PATIENCE_S, placement.pids)


BETTER = """
from pathlib import Path
import pytest_roofline.engine.host as environment
environment.ACCELERATOR_NODES = (Path("/"),)
"""


def test_the_cpu_that_nobody_asked_for_is_refused_on_a_host_with_an_accelerator(tmp_path):
    placement = Spoiled(tmp_path, BETTER)
    pool = Pool(placement, 2, "cpu", explicit=False)
    with pytest.raises(
        RanksFailed, match=rf"^rank 0 on {re.escape(HOST)}: this machine has an accelerator"
    ):
        run(pool, ranks.echo)
    assert end_within(PATIENCE_S, placement.pids)


LOST_AFTER_HELLO = """
import os, sys


class Ends:
    def find_spec(self, name, path=None, target=None):
        if name == "pytest_roofline.ranks.facts":
            os._exit(5)


if os.environ.get("RANK") == "1":
    sys.meta_path.insert(0, Ends())
"""


def test_a_rank_that_is_lost_while_it_tells_what_it_is_is_named_with_the_cause(tmp_path):
    placement = Spoiled(tmp_path, LOST_AFTER_HELLO)
    text = failed_boot(placement)

    # Rank 0 may not have come by then.
    assert re.search(r"rank 1 .*during its start: exit code 5", text.splitlines()[0])
    assert end_within(PATIENCE_S, placement.pids)

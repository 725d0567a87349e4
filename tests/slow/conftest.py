"""What the slow tests share."""

import tempfile
from pathlib import Path

import pytest

from ..slurm import TOOLS, two_nodes
from ..tools import require_tools


@pytest.fixture(scope="session")
def slurm():
    """Two Slurm nodes on this host, for the whole session."""
    require_tools(*TOOLS)
    # Sockets lie in the folder, and their paths may not be long.
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, two_nodes(Path(folder)) as nodes:
        yield nodes

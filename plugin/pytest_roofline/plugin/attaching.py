"""A pytest that was launched as ranks: rank 0 runs the tests, the others start ranks for it.

`torchrun|mpirun|srun … -m pytest` starts this plugin in every process. Rank 0 is the only pytest that goes on; when it
has no test of ours, the others go on too, since the launch is then somebody else's.
"""

import os

import pytest

from ..core.errors import BadInput, RanksFailed
from ..core.features import FEATURES, require
from ..settings.options import RANK_VARIABLES

# With these, pytest tells something about itself and runs no test.
_INFORMING_OPTIONS = ("help", "version", "showfixtures", "show_fixtures_per_test", "markers")


def attach(config: pytest.Config) -> int | None:
    """Serve rank 0 of a launch, or lead the launch.

    The launcher is MPI, torchrun or Slurm.

    Returns:
        The exit status of a process that served rank 0; None where pytest goes on here.

    Raises:
        pytest.UsageError: the launcher's variables cannot be used, or rank 0 was not joined by the others.
    """
    if any(config.getoption(name, False) for name in _INFORMING_OPTIONS):
        return None
    if "ranks" not in FEATURES and os.environ.keys().isdisjoint(RANK_VARIABLES):
        # Only SLURM_STEP_ID is set, as in any step of Slurm. Without the feature nobody can tell whether it has ranks.
        return None
    try:
        require("ranks")
        from .leading import follow_or_lead

        return follow_or_lead(config)
    except (BadInput, RanksFailed) as error:
        raise pytest.UsageError(
            f"{error}. To run separate tests on these ranks, give -p no:roofline"
        ) from None

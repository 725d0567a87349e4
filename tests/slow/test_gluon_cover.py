"""FlashAttention's forward pass in Gluon against float64, on many problems that nobody has chosen."""

import pytest
from threadpoolctl import threadpool_limits

from ..kernels.attention_cases import beyond
from ..kernels.gluon_cases import results, runs

pytest.importorskip("triton.experimental.gluon", reason="needs Triton with Gluon, found none")


def test_results_are_as_near_to_float64_as_pytorch_is():
    with threadpool_limits(1):
        far = {
            run: distances
            for run in runs(180, seed=2)
            if (distances := beyond(run.case, results(run)))
        }
    assert far == {}

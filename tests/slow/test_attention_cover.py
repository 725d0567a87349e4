"""FlashAttention in Triton's interpreter against float64, over every case of the cover: half a minute."""

import pytest
from threadpoolctl import threadpool_limits

from roofline_kernels.attention import flash_attention

from ..kernels.attention_cases import beyond, pairwise_cover, results


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_results_are_as_near_to_float64_as_pytorch_is():
    with threadpool_limits(1):
        far = {
            case: found
            for case in pairwise_cover()
            if (found := beyond(case, results(case, flash_attention)))
        }
    assert far == {}

"""Matrix products as a user starts them."""

from .benchmarks import short_run_of


def test_a_processor_multiplies_one_small_cube_of_two_types(tmp_path):
    _, run = short_run_of(tmp_path, "perf_tests/test_gemm.py")
    found = {one.label: (one.key.metric, one.verified) for one in run.measurements}
    assert found == {
        "gemm_cpu[fp32]": ("fp32_TFLOPS", True),
        "gemm_cpu[bf16]": ("bf16_TFLOPS", True),
    }

"""`roofline profiler`: what nsys and rocprofv3 saw beside what was measured. The excerpts are output of these tools."""

import json
import os

import pytest

from pytest_roofline.core.errors import BadFile, BadInput
from pytest_roofline.core.profiles import Profile
from pytest_roofline.observe.vendor import read_tables, totals

# nsys 2024.6, from dotLLM-prefill-profiling.md of LittleLittleCloud/dotLLM-Optimization.
NSYS = """\
Processing [dotllm_nsys_run.sqlite] with [cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
50.1,99385786,32,3105805.8,3041179.0,2987340,3777790,216832.4,flash_attention_prefill_f16
19.0,37727461,193,195479.1,93278.0,22207,3320037,266509.9,dequant_q4_k_f16
"""
NSYS_API = """\
Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
65.1,1417580893,293,4838160.0,2514360.0,6311,125393723,9731274.4,cuMemcpyHtoD_v2
"""
# nsys 2024.5, from issue 7599 of vllm-project/vllm.
NSYS_COPIES = """\
Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
96.6,2472025475,27260,90683.3,1152.0,703,157221749,1705417.2,[CUDA memcpy Host-to-Device]
0.6,16075754,16975,947.0,928.0,704,3264,193.4,[CUDA memset]
"""
# nsys names sizes so, and decimal units; its documentation has no output of a run.
NSYS_SIZES = """\
Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation
402.653,48,8.389,8.389,8.389,8.389,0.000,[CUDA memcpy Host-to-Device]
"""
# rocprofv3, from Rocprofv3/HIP/README.md and MLExamples/PyTorch_Profiling/rocprofv3/README.md of
# amd/HPCTrainingExamples, and from source/docs/data of ROCm/rocprofiler-sdk.
ROCM = """\
"Name","Calls","TotalDurationNs","AverageNs","Percentage"
"__amd_rocclr_copyBuffer",7084,17229993,2432.240683,8.38
"void at::native::vectorized_elementwise_kernel<4, at::detail::Array<char*, 2> >(int)",3402,12535732,3684.8,6.10
"""
ROCM_API = """\
"Name","Calls","TotalDurationNs","AverageNs","Percentage"
"hipMemcpy",2,583182462,291591231,99.78
"__hipPushCallConfiguration",4,1200,300.000000,0.02
"""
ROCM_TRACE = """\
"Kind","Agent_Id","Queue_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp",\
"End_Timestamp"
"KERNEL_DISPATCH",8,1,252734,1,10,"__amd_rocclr_fillBufferAligned",15,4484384343929154,4484384343935074
"KERNEL_DISPATCH",8,2,252734,2,18,"NormKernel1(int, double, double, double const*, double*)",33,4484384527705139,\
4484384528106260
"""
# The same columns as rocprofv3's traces of HIP, with our range as ROCTX has it.
MARKERS = """\
"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
"MARKER_CORE_RANGE_API","roofline call",1,1,14,4484384527000000,4484384529000000
"MARKER_CORE_RANGE_API","attention",1,1,15,4484384343000000,4484384344000000
"""


def test_tables_of_the_device_are_summed_and_those_of_the_host_passed_over():
    def seen(*texts):
        return totals([table for text in texts for table in read_tables(text, "x.csv")], "step")

    found = seen(NSYS + "\n" + NSYS_API, NSYS_COPIES, NSYS_SIZES)
    assert (99385786e-9 + 37727461e-9, 225) == (pytest.approx(found.kernels_s), found.launches)
    assert (2472025475e-9 + 16075754e-9, 402.653e6) == (
        pytest.approx(found.copies_s),
        pytest.approx(found.copied_bytes),
    )
    assert (32, 193) == tuple(launches for _, launches in found.kernels.values())
    # A name with commas is one name; milliseconds, and kernels and copies in one table, are read too.
    assert 12535732e-9 == pytest.approx(list(seen(ROCM).kernels.values())[1][0])
    both = (
        "Time (%),Total Time (ms),Instances,Avg (ms),Category,Operation\n"
        "60,3.5,7,0.5,CUDA_KERNEL,gemm\n40,2.5,5,0.5,MEMORY_OPER,[CUDA memcpy DtoH]\n"
        "0,9.0,7,1.3,CUDA_API,cudaLaunchKernel\n"
    )
    assert (0.0035, 0.0025, 7) == (
        seen(both).kernels_s,
        pytest.approx(seen(both).copies_s),
        seen(both).launches,
    )
    # Of a trace only what began in our calls counts, and their number is known.
    assert (407041e-9, None) == (pytest.approx(seen(ROCM_TRACE).seconds), seen(ROCM_TRACE).calls)
    assert (401121e-9, 1) == (
        pytest.approx(seen(ROCM_TRACE, MARKERS).seconds),
        seen(ROCM_TRACE, MARKERS).calls,
    )
    with pytest.raises(BadInput, match="two tables of one kind"):
        seen(NSYS, NSYS)
    for text, sentence in (
        (ROCM_API, "has no table of kernels or copies; expected the CSV of"),
        (NSYS_API, "has no table"),
        (NSYS.replace(",Name", ",Source,Name"), "has no table"),
        ("", "has no table"),
        (
            NSYS.replace("99385786", '"99,385"'),
            "line 4: could not convert string to float: '99,385'; expected digits",
        ),
        (NSYS + "1,2\n", "line 6 has 2 cells; expected 9"),
    ):
        with pytest.raises(BadFile, match=r"^x.csv") as raised:
            seen(text)
        assert sentence in str(raised.value)


def test_both_times_of_a_call_stand_beside_each_other_by_size(
    command, refused, saved, make, tmp_path
):
    sizes = {"small": 0.05, "large": 0.2}
    steps = {
        size: make.measurement(
            seconds, key=make.key("step", metric="TFLOPS", parameters={"size": size})
        )
        for size, seconds in sizes.items()
    }
    small = steps["small"]
    saved(
        "r", *steps.values(), Profile(small.test_id, small.label, "p", "cuda:0", 3, tool="external")
    )
    (tmp_path / "small_kern.csv").write_text(NSYS)
    (tmp_path / "small_mem.csv").write_text(NSYS_SIZES)
    (tmp_path / "large.csv").write_text(ROCM)
    text = command("profiler", "r", "small=small_*.csv", "large=large.csv", "--calls", "1").stdout
    # 137 ms of 1 call as asked for, where the run knows of 3.
    assert ["step[small]", "50.0", "ms", "137", "ms", "274.2", "%"] == text.splitlines()[2].split()[
        :7
    ]
    assert (
        "step[large], 1 call: __amd_rocclr_copyBuffer 57.9 % (7084 launches); void at::native"
        in text
    )
    (one,) = json.loads(command("profiler", "r", "small=small_kern.csv", "--json").stdout)
    assert (3, 75.0, 0.05) == (one["calls"], one["launches"], one["time_s"])
    assert pytest.approx((99385786 + 37727461) * 1e-9 / 3) == one["profiler_s"]
    assert "the number of calls of step[large] in large.csv is unknown" in refused(
        "profiler", "r", "large=large.csv"
    )
    assert "measured 2 tests of 'step'; name one of: step[small], step[large]" in refused(
        "profiler", "r", "step=x.csv"
    )
    assert "names no test; expected TEST=FILE" in refused("profiler", "r", "large.csv")
    assert "file no.csv does not exist" in refused("profiler", "r", "small=no.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    assert "file pipe.csv is a device or a pipe; expected a file" in refused(
        "profiler", "r", "small=pipe.csv"
    )

"""Profiles and uses of memory in words."""

from dataclasses import replace

from pytest_roofline.baselines.runs import encode_line, read_run
from pytest_roofline.core.memory import AllocatorPoint, MemoryPoint, MemoryUse
from pytest_roofline.core.profiles import (
    AttentionTime,
    ClassTime,
    KernelTime,
    OperatorTime,
    PartTime,
    Profile,
)
from pytest_roofline.report.inside import (
    kernel_cells,
    memory_lines,
    profile_lines,
    short_name,
    use_lines,
)

MIB = 2**20
HOSTILE = "x\x1b[31m\r\ny[bold]|<b>"
KERNEL = KernelTime(
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, T2)", "elementwise",
    4e-3, 0.1, 8,
)  # fmt: skip
PROFILE = Profile(
    "test.py::test_step", "step", "p", "cuda:0", 2, on_device=True, measured_s=12e-3, profiled_s=14e-3, span_s=26e-3,
    busy_s=20e-3, host_s=13e-3,
    classes=(ClassTime("matrix product", 14e-3, 0.5389, 4, ("sgemm",)), ClassTime("idle", 6e-3, 0.2308)),
    kernels=(KERNEL,), distinct=31, parts=(PartTime("blocks.*.attention", 6e-3, 8e-3), PartTime("", 1e-3, 0.0)),
    attention=(AttentionTime("forward", 4e-3, 20e-3, 6e-3, 0.0, 2e-3, 2_000_000, 200_000_000, 4_000_000),),
    trace="/somewhere/step.trace.json.gz", missing=("the moon",),
)  # fmt: skip
USE = MemoryUse(
    "test_transformer.py::test_step", "transformer[512]", "p", "cuda:0", "", 1024 * MIB, "backward",
    {"parameters": 300 * MIB, "activations": 720 * MIB, "buffers": 4 * MIB}, 304 * MIB,
    {"forward": 1000 * MIB, "backward": 1024 * MIB}, 1100 * MIB, 310 * MIB, ("the moon",),
)  # fmt: skip


def test_a_profile_in_the_terminal_is_of_one_call():
    assert profile_lines([PROFILE], 80) == [
        "profile of step on cuda:0, 2 calls; never judged, in no baseline",
        "  a call: 12.0 ms measured, 14.0 ms under the profiler, operators at work on the host for 50.0 % of the span",
        "  the profiler made a call 1.17 times as long, so the profiler causes a part of "
        "the idle time and of the operators' times on the host",
        "  matrix product 53.9 %, idle 23.1 % of the span",
        "  kernel                                             time   share  calls    mean",
        "  vectorized_elementwise_kernel<4, CUDAFunctor_…  2.00 ms  10.0 %      4  500 µs",
        "  parts: blocks.*.attention 3.00 ms forward 4.00 ms backward, (in no part) 500 µs forward",
        "  attention, forward: softmax 2.00 ms (1.00 MFLOP), products of scores and values 10.0 ms (100 MFLOP), "
        "1 : 5.00 in time and 1 : 100 in FLOPs, products with weights 3.00 ms (2.00 MFLOP), else 1.00 ms",
        "  not in this profile: the moon",
        "  trace: /somewhere/step.trace.json.gz (open it at https://ui.perfetto.dev)",
    ]


def test_operators_stand_below_the_kernels_and_on_a_cpu_in_their_place():
    rows = (
        OperatorTime(
            "autograd::engine::evaluate_function: BmmBackward0", 2e-3, 0.1, 40e-3, 650, 0.0, 476e-3
        ),
        OperatorTime("cudaLaunchKernel", 18e-3, 0.0707, 20e-3, 4121),
    )
    lines = profile_lines([replace(PROFILE, operators=rows)], 100)
    at = next(number for number, line in enumerate(lines) if line.startswith("  operator"))
    assert lines[at - 2].startswith("  kernel ")
    assert [
        "operator",
        "self",
        "CPU",
        "share",
        "CPU",
        "total",
        "calls",
        "self",
        "GPU",
        "GPU",
        "total",
    ] == lines[at].split()
    assert lines[at + 1].endswith("  1.00 ms  10.0 %    20.0 ms     325         0     238 ms")
    assert "  launches: cudaLaunchKernel 2060.5 a call, 7.1 % of the host's time" == lines[at + 3]
    lines = profile_lines([replace(PROFILE, operators=rows[:1], on_device=False)], 80)
    assert 1 == sum(line.startswith("  operator ") for line in lines)
    assert not any("GPU" in line or "launches" in line for line in lines)


def test_the_table_of_kernels_fits_and_no_number_of_it_is_cut():
    wide = KernelTime("k" * 300, "other", 99.9e-3, 0.999, 2223)
    bare = replace(
        PROFILE, kernels=(KERNEL, *[wide] * 9), measured_s=None, profiled_s=None, span_s=0.0
    )
    for width in (60, 81, 200):
        rows = profile_lines([bare], width)[3:11]
        assert all(len(line) <= width for line in rows), width
        for row, kernel in zip(rows, (KERNEL, *[wide] * 7), strict=True):
            assert "".join(kernel_cells(kernel, 2)).replace(" ", "") in row.replace(" ", "")
    # A kernel keeps what tells it apart.
    for name, short in (
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        (
            "void at::native::reduce_kernel<512, at::native::ReduceOp<float>>(T3)",
            "reduce_kernel<512, ReduceOp<float>>",
        ),
        ("Memcpy DtoH (Device -> Pageable)", "Memcpy DtoH (Device -> Pageable)"),
        ("(anonymous namespace)::thing(int)", "thing"),
        ("k" * 50, "k" * 39 + "…"),
    ):
        assert short == short_name(name, 40)


def test_what_is_special_about_a_profile_is_said():
    fused = replace(
        PROFILE, attention=(AttentionTime("forward", fused_s=10e-3, projections_s=6e-3),)
    )
    text = "\n".join(profile_lines([fused], 80))
    assert (
        "forward: fused 5.00 ms (softmax and products cannot be separated), products with weights 3.00 ms"
        in text
    )
    assert "1 :" not in text
    over = replace(
        PROFILE, classes=(ClassTime("copy", 1.0, 0.8), ClassTime("communication", 1.0, 0.4))
    )
    assert "streams overlap, so the classes add up to more than the span" in "\n".join(
        profile_lines([over], 80)
    )
    external = Profile("t", "step", "p", "cuda:0", 1, tool="external", measured_s=1e-3)
    assert ["  a call: 1.00 ms measured"] == profile_lines([external], 80)[1:]


def test_of_what_was_repeated_the_last_stands_and_of_many_a_path_alone():
    many = [
        replace(PROFILE, test_id=str(n), label=f"step[{n}]", trace=f"/runs/a/{n}.json")
        for n in range(10)
    ]
    lines = profile_lines([*many, replace(many[0], label="again")], 80)
    heads = [line for line in lines if line.startswith("profile of")]
    assert (8, True) == (len(heads), "again" in heads[0])
    assert "and 2 more profiles, in the run file and /runs/a" in lines
    uses = [replace(USE, test_id=str(number)) for number in range(10)]
    lines = memory_lines([*uses, replace(uses[0], label="again")])
    assert (8, True) == (
        sum(line.startswith("memory of") for line in lines),
        lines[0].startswith("memory of again"),
    )
    assert lines[-1] == "… and the memory of 2 more calls in the run file"


def test_a_use_of_memory_has_its_peak_its_categories_and_what_the_device_counted():
    assert use_lines(USE) == [
        "memory of transformer[512]: peak 1.00 GiB in backward",
        "  activations 720 MiB (70 %), parameters 300 MiB (29 %), buffers 4.00 MiB (<1 %)",
        "  peaks: forward 1000 MiB, backward 1.00 GiB",
        "  by the device's own counter 1.07 GiB, 70.0 MiB beyond the allocations of operators",
        "  missing: the moon",
    ]
    over = [
        MemoryPoint(0.1 * n, "forward", {"activations": size * MIB})
        for n, size in enumerate((304, 512, 1024, 0))
    ]
    told = use_lines(
        replace(USE, over_time=tuple(over), allocator=(AllocatorPoint(0.0, 5 * MIB, 6 * MIB),))
    )
    assert told[3:5] == [
        "  over time: 304 MiB ▃▄█▁ 0 B", "  by torch's allocator: at most 5.00 MiB allocated, 6.00 MiB reserved"
    ]  # fmt: skip
    assert (
        "-6.00 MiB beyond the allocations"
        in use_lines(replace(USE, device_peak_bytes=1024 * MIB))[3]
    )
    assert use_lines(replace(USE, device_peak_bytes=1030 * MIB))[3].endswith("1.01 GiB, the same")
    assert "counter" not in "".join(use_lines(replace(USE, device_peak_bytes=None)))


def test_nothing_in_a_name_reaches_the_terminal():
    hostile = replace(
        PROFILE, label=HOSTILE, missing=(HOSTILE,), trace=HOSTILE, parts=(PartTime(HOSTILE, 1.0, 0.0),),
        kernels=(KernelTime(HOSTILE, "other", 1.0, 0.1, 1),), operators=(OperatorTime(HOSTILE, 1.0, 0.1, 1.0, 1),),
    )  # fmt: skip
    lines = profile_lines([hostile], 80) + memory_lines(
        [replace(USE, label=HOSTILE, missing=(HOSTILE,))]
    )
    assert not {"\x1b", "\r", "\n"} & set("".join(lines))


def test_a_run_file_gives_back_what_was_written(make, tmp_path):
    full = replace(
        USE, over_time=(MemoryPoint(0.0, "forward", {}),), allocator=(AllocatorPoint(0.0, 1, 2),)
    )
    host = replace(PROFILE, operators=(OperatorTime("aten::mm", 1.0, 0.1, 1.0, 1),))
    assert (host, full) == _read(make, tmp_path / "new.jsonl", encode_line(host), encode_line(full))


def _read(make, path, *lines):
    path.write_text(encode_line(make.header()) + "".join(lines))
    run = read_run(path)
    return run.profiles[0], run.memory_uses[0]

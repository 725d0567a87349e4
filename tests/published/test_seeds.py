"""Every table of the five documents is in: by its number of figures, and by values read from the texts."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_roofline.baselines.pruning import unused
from pytest_roofline.cli.upkeep import _collect
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.keys import Key
from pytest_roofline.core.work import Work
from pytest_roofline.stats.published import published_s

ROOT = Path(__file__).parents[2]
MEMCPY, PEER, FIRST, SECOND, THIRD = (
    "mi300x-memcpy", "mi300x-memcpy-peer", "cs336-report-1", "cs336-report-2", "cs336-report-3",
)  # fmt: skip
SPECS, SUMS, TYPES = "the plugin's data of products", "test_accumulation", "test_autocast"
# Document, table, figures as counted in the text; and where they stand instead, if they are no performance.
TABLES = [
    (MEMCPY, "the plotted curve, by the ranges of its text", 2, ""),
    (MEMCPY, "specifications", 4, SPECS),
    (PEER, "specifications", 2, SPECS),
    (PEER, "the plotted curve of PyTorch", 3, ""),
    (PEER, "the plotted curve of MPI", 5, ""),
    (FIRST, "benchmarking_script, 5 warm-up steps", 10, ""),
    (FIRST, "benchmarking_script, 0 warm-up steps", 10, ""),
    (FIRST, "benchmarking_script, 1 warm-up steps", 10, ""),
    (FIRST, "nsys_profile a, forward passes", 5, ""),
    (FIRST, "nsys_profile c, kernels", 13, ""),
    (FIRST, "nsys_profile d and e, shares and times", 4, ""),
    (FIRST, "mixed_precision_accumulation", 4, SUMS),
    (FIRST, "benchmarking_mixed_precision a, types", 6, TYPES),
    (FIRST, "benchmarking_mixed_precision c, steps", 20, ""),
    (FIRST, "memory_profiling b and c", 4, ""),
    (FIRST, "pytorch_attention", 16 * 4 + 4, ""),
    (FIRST, "torch_compile a, attention", 20 * 4, ""),
    (FIRST, "torch_compile b, steps", 20, ""),
    (FIRST, "leaderboard", 5, ""),
    (FIRST, "all_reduce, Gloo", 12, ""),
    (FIRST, "all_reduce, MI300X", 18, ""),
    (FIRST, "all_reduce, V100", 21, ""),
    (FIRST, "all_reduce, H100", 4, ""),
    (SECOND, "model specifications, parameters", 5, "the number of parameters"),
    # Of 30 cells two are "TBD" and one is empty.
    (SECOND, "model specifications, times", 27, ""),
    (SECOND, "effect of warm-up, first steps", 2, ""),
    (SECOND, "effect of warm-up, ten steps", 4, ""),
    # 25 rows and two sums below them.
    (SECOND, "PyTorch profiler, forward", 27, ""),
    (SECOND, "PyTorch profiler, forward and backward", 27, ""),
    (SECOND, "nsys_profile a", 1, ""),
    (SECOND, "nsys_profile b, kernels", 7 + 6, ""),
    (SECOND, "shares and times of attention", 3 + 5, ""),
    (SECOND, "mixed precision", 16 * 4, ""),
    (THIRD, "benchmarking_script", 8, ""),
    (THIRD, "nsys_profile, by Nsight Systems", 3, ""),
    (THIRD, "nsys_profile, by Python", 3, ""),
    (THIRD, "nsys_profile c, kernels", 3, ""),
    (THIRD, "nsys_profile e, attention", 2, ""),
    (THIRD, "mixed_precision_accumulation", 4, SUMS),
    (THIRD, "benchmarking_mixed_precision a, types", 6, TYPES),
    (THIRD, "peak memory", 4, ""),
    # 12 rows of 3, and two lengths that ran out of memory at 4 widths.
    (THIRD, "pytorch_attention", 12 * 3 + 8, ""),
]


@pytest.fixture(scope="module")
def told(module):
    """Every figure of the documents, with its table."""
    seeds = module("seeds")
    return [(one, seeds.table_of(one)) for one in module("figures").told()]


@pytest.fixture(scope="module")
def entries_of(found, told):
    """The entries of a table."""
    by_record = {}
    for one in found.shipped:
        by_record.setdefault(one.record, []).append(one.entry)

    def entries(document, title):
        records = [one.id for one, table in told if (table.document, table.title) == (document, title)]
        return [entry for record in records for entry in by_record.get(record, [])]

    return entries


def test_every_table_is_listed(module):
    assert [(table.document, table.title) for table in module("seeds").TABLES] == [row[:2] for row in TABLES]


@pytest.mark.parametrize(("document", "title", "count", "elsewhere"), TABLES)
def test_a_table_is_in_whole(found, told, document, title, count, elsewhere):
    records = {one.id for one, table in told if (table.document, table.title) == (document, title)}
    assert len(records) == count
    entered = records & {one.record for one in found.shipped}
    left_out = {one.record: one.why for one in found.left_out if one.record in records}
    if elsewhere:
        assert not entered
        assert all(elsewhere in why for why in left_out.values())
    else:
        # The one kernel of the leaderboard that did not start has no time.
        failed = 1 if title == "leaderboard" else 0
        assert (len(entered), len(left_out)) == (count - failed, failed)


def values(entries, **wanted):
    """The values of the entries with these parameters."""
    return [
        entry.value for entry in entries if all(entry.parameters.get(name) == value for name, value in wanted.items())
    ]


def test_the_curve_of_memory_copies_is_traffic_and_its_plateau_cannot_be(entries_of):
    entries = entries_of(MEMCPY, "the plotted curve, by the ranges of its text")
    # "Below 1MB … under 100 GB/s"; "larger than about 10MB … 2000-3000 GB/s", of payload.
    assert values(entries, size_bytes=2**12) == [(0.0, 200.0)]
    assert values(entries, size_bytes=2**30) == [(4000.0, 6000.0)]
    assert {entry.implausible[:36] for entry in entries if entry.parameters["size_bytes"] > 2**20} == {
        "6000 GB/s is 113% of the datasheet's"
    }


def test_the_curves_between_peers_are_ranges(entries_of):
    torch_, mpi = (entries_of(PEER, f"the plotted curve of {way}") for way in ("PyTorch", "MPI"))
    assert values(torch_, size_bytes=100_000) == [(10.0, 15.0)]
    assert values(torch_, size_bytes=2**23) == [(40.0, 50.0)]
    assert values(torch_, size_bytes=2**29) == [(45.0, 50.0)]
    assert values(mpi, size_bytes=2**24, memory="device", pattern="one_way") == [(38.0, 42.0)]
    assert values(mpi, size_bytes=2**30) == [(48.0, 50.0)]


def test_sums_of_ten_steps_are_steps(entries_of):
    warm = entries_of(FIRST, "benchmarking_script, 5 warm-up steps")
    assert values(warm, size="small", passes="forward") == [0.0377]
    assert values(warm, size="2.7B", passes="forward_backward") == [1.3212]
    assert not any(entry.implausible for entry in warm)
    assert values(entries_of(FIRST, "benchmarking_script, 1 warm-up steps"), size="medium", passes="forward") == [
        0.0811
    ]
    cold = entries_of(FIRST, "benchmarking_script, 0 warm-up steps")
    assert values(cold, size="xl", passes="forward") == [0.3034]
    assert all("the first had to start everything" in entry.implausible for entry in cold)


def test_steps_that_the_profiler_did_not_see_whole_are_implausible(entries_of, module):
    entries = entries_of(FIRST, "nsys_profile a, forward passes")
    assert values(entries, size="large") == [0.148]
    flagged = {entry.parameters["size"]: entry for entry in entries if entry.implausible}
    assert set(flagged) == {"xl", "2.7B"}
    # By the datasheet alone as well: above the peak of single precision on the vector units.
    flags = module("flags")
    assert "it was not waited for" in flags.why_implausible("a100", flagged["2.7B"])
    assert flags.why_implausible("a100", next(entry for entry in entries if entry.parameters["size"] == "large")) == ""


def test_steps_in_mixed_precision_speak_of_both_types(entries_of):
    entries = entries_of(FIRST, "benchmarking_mixed_precision c, steps")
    a100 = [entry for entry in entries if entry.hardware.product is None]
    mi300x = [entry for entry in entries if entry.hardware.product == "mi300x-oam"]
    assert values(a100, size="medium", precision="fp32") == [0.2003]
    assert values(mi300x, size="2.7B", precision="fp32") == [0.4965]
    assert (
        values(mi300x, size="2.7B", precision="bf16_autocast")
        == values(mi300x, size="2.7B", precision="fp16_autocast")
        == [0.257]
    )
    assert values(a100, size="2.7B", precision="bf16_autocast") == ["out of memory"]


def test_compiled_steps(entries_of):
    entries = entries_of(FIRST, "torch_compile b, steps")
    assert values(entries, size="small", passes="forward", execution="compile") == [0.0178]
    assert values(entries, size="2.7B", passes="forward_backward", execution="eager") == [1.3212]


def test_attention_by_formula_and_compiled(entries_of):
    eager, compiled = entries_of(FIRST, "pytorch_attention"), entries_of(FIRST, "torch_compile a, attention")
    times = [entry for entry in eager if entry.metric == "time_s"]
    assert values(times, d_model=64, sequence=8192, passes="forward") == [0.04108]
    assert values(times, d_model=16, sequence=16384) == ["out of memory"]
    assert sum(entry.value == "out of memory" for entry in eager) == 4
    memory = [entry for entry in compiled if entry.metric == "peak_bytes"]
    assert values(memory, d_model=128, sequence=16384, passes="forward") == [18004.3e6]
    assert values(
        [entry for entry in compiled if entry.metric == "time_s"], d_model=128, sequence=16384, passes="backward"
    ) == [0.17877]
    assert not any(entry.implausible for entry in (*eager, *compiled))


def test_the_leaderboard(entries_of):
    entries = entries_of(FIRST, "leaderboard")
    assert [entry.value for entry in entries] == [0.0754004898071, 0.0716799316406, 0.0644224395752, 0.0581077384949]
    assert {(entry.benchmark, entry.name, entry.parameters["name"]) for entry in entries} == {
        ("flash_attention_leaderboard", "like do_bench", "triton")
    }


def test_times_of_whole_programs_are_held_against_those_of_whole_programs_only(entries_of):
    gloo, mi300x, v100, h100 = (entries_of(FIRST, f"all_reduce, {what}") for what in ("Gloo", "MI300X", "V100", "H100"))
    assert values(gloo, size_bytes=1_000_000, world_size=2) == [0.74]
    assert values(mi300x, size_bytes=150_000_000_000, world_size=8) == [216.45]
    assert values(v100, size_bytes=1_000_000_000, world_size=4) == [6.27]
    assert values(h100, size_bytes=1_000_000_000, world_size=8) == [10.04]
    hardware = HardwareKey("mi300x-oam", "192gb", "none", 2, "unknown")
    sum_of_one_mb = {"world_size": 2, "size_bytes": 1_000_000}
    job = Key("all_reduce_job", sum_of_one_mb, "job_wall_s", hardware, "warm", "wall", "job")
    steady = Key("all_reduce_job", sum_of_one_mb, "busbw_GBps", hardware, "warm", "pipelined", "steady")
    assert [entry.value for entry in mi300x if entry.matches(job)] == [11.62]
    assert [entry for entry in mi300x if entry.matches(steady)] == []
    assert all("not comparable with the steady time" in entry.note for entry in (*gloo, *mi300x, *v100, *h100))


def test_steps_of_the_second_report(entries_of):
    entries = entries_of(SECOND, "model specifications, times")
    assert values(entries, size="2.7B", passes="forward_backward") == [81.4465, 1.6165]
    assert values([entry for entry in entries if entry.hardware.product == "unnamed-mps"], size="xl") == [0.5185]
    mixed = entries_of(SECOND, "mixed precision")
    assert values(mixed, size="large", context=1024, precision="bf16_autocast", passes="forward") == [0.1988]
    assert values(mixed, size="small", context=128, precision="fp32", passes="forward_backward") == [0.0766]
    assert values(mixed, size="xl", context=1024) == ["out of memory"] * 4
    assert values(entries_of(SECOND, "nsys_profile a"), size="large") == [0.1418]


def test_single_steps_of_the_second_report_are_all_in_the_note(entries_of):
    first = entries_of(SECOND, "effect of warm-up, first steps")
    assert values(first, size="large", passes="forward") == [1.76326]
    series = entries_of(SECOND, "effect of warm-up, ten steps")
    assert [entry.note.split(";")[0].count(", ") for entry in series] == [10] * 4
    assert sorted(entry.value for entry in series if not entry.implausible) == [
        (0.13949538767, 0.13971225545), (0.51979393885, 0.59231639281),
    ]  # fmt: skip
    assert {entry.value[1] for entry in series if entry.implausible} == {1.76326469705, 0.92203254253}


def test_tables_of_kernels_and_profiles(entries_of):
    by_kernel = {entry.note.split(", ")[0]: entry.value for entry in entries_of(FIRST, "nsys_profile c, kernels")}
    assert by_kernel["ampere_sgemv_128x64_tn"] == 0.168334
    by_kernel = {entry.note.split(", ")[0]: entry.value for entry in entries_of(SECOND, "nsys_profile b, kernels")}
    assert by_kernel["ampere_sgemm_32x32_sliced1x4_nt"] == 0.056519
    forward = {entry.note.split(", ")[0]: entry.value for entry in entries_of(SECOND, "PyTorch profiler, forward")}
    assert (forward["aten::bmm"], forward["self CUDA time total"]) == (0.122976, 0.138042)
    both = {
        entry.note.split(", ")[0]: entry.value for entry in entries_of(SECOND, "PyTorch profiler, forward and backward")
    }
    assert (both["aten::bmm"], both["self CPU time total"]) == (0.360764, 0.948116)
    shares = [entry.value for entry in entries_of(FIRST, "nsys_profile d and e, shares and times")]
    assert shares == [0.78, 0.63, 0.01066, 0.00198]
    assert 358.017e-6 in [entry.value for entry in entries_of(SECOND, "shares and times of attention")]
    assert [entry.value for entry in entries_of(THIRD, "nsys_profile e, attention")] == [0.000762, 0.0008]
    assert [entry.value for entry in entries_of(THIRD, "nsys_profile c, kernels")] == [0.002167, 0.007872, 0.006012]


def test_memory_peaks(entries_of):
    assert [entry.value for entry in entries_of(FIRST, "memory_profiling b and c")] == [37e9, 67e9, 43e9, 70e9]
    assert [entry.value for entry in entries_of(THIRD, "peak memory")] == [3.4e9, 4.7e9, 3e9, 4.5e9]


def test_the_third_report_and_what_was_not_waited_for(entries_of):
    steps = entries_of(THIRD, "benchmarking_script")
    assert values(steps, size="small", passes="backward") == [0.106601, 0.067038]
    assert values(entries_of(THIRD, "nsys_profile, by Python"), context=512) == [0.070388]
    nsys = entries_of(THIRD, "nsys_profile, by Nsight Systems")
    assert {entry.parameters["context"] for entry in nsys if entry.implausible} == {512}
    attention = entries_of(THIRD, "pytorch_attention")
    times = [entry for entry in attention if entry.metric == "time_s"]
    assert values(times, d_model=64, sequence=1024) == [0.0005135, 0.0020453]
    assert values(times, d_model=128, sequence=16384) == ["out of memory"]
    forward = [entry for entry in times if entry.parameters["passes"] == "forward" and entry.value != "out of memory"]
    assert len(forward) == 12
    assert all("was not synchronised" in entry.implausible for entry in forward)
    assert not any(entry.implausible for entry in times if entry.parameters["passes"] == "backward")
    memory = [entry for entry in attention if entry.metric == "before_backward_bytes"]
    assert values(memory, d_model=16, sequence=4096) == [3139.76e6]


def test_every_time_that_is_said_to_be_steady_could_be(found, module):
    """No figure that is shown as a target is above a peak of its hardware, by program."""
    flags = module("flags")
    checked = 0
    for one in found.shipped:
        if one.entry.metric == "time_s" and isinstance(one.entry.value, float) and not one.entry.implausible:
            flops, peak = flags.flops_of(one.entry.benchmark, one.entry.parameters)
            checked += bool(flops and flags.peak_of(one.family, one.entry.hardware, peak))
            assert flags.why_implausible(one.family, one.entry) == ""
    assert checked > 200


def test_a_time_that_cannot_be_is_found(found, module):
    one = next(one for one in found.shipped if one.entry.parameters.get("size") == "2.7B" and one.entry.value == 0.4169)
    why = module("flags").why_implausible(one.family, replace(one.entry, value=0.1))
    # Forward, 1024 tokens of 3.38 billion parameters: 7 TFLOP, which single precision does in 0.36 s at best.
    assert why.endswith("of the datasheet's 19.5 TFLOP/s: it was not waited for")


def test_a_figure_without_a_table_is_refused(module):
    figures = module("figures")
    strange = figures.Told("document-9999", FIRST, "A100", "something", {}, "step_ms", 1.0, "ms", "mean", "")
    with pytest.raises(ValueError, match=r"something in cs336-report-1 stands in none; expected one table"):
        module("seeds").table_of(strange)


# What our own tests have not, although they have the benchmark: sizes, worlds and shapes of others.
OTHERS = {
    "all_reduce": lambda p: p["world_size"] not in (2, 4, 6, 8),
    "all_reduce_job": lambda p: p["size_bytes"] > 10**9,
    "memcpy_h2d": lambda p: p["size_bytes"] == 20 * 2**30,
    # A machine without GPUs collects one size of them.
    "peer_copy_one_way": lambda p: p["size_bytes"] != 2**29,
    "transformer": lambda p: p.get("execution") == "compile" or p["batch"] == 16,
}


def test_the_names_and_parameters_are_those_of_our_own_tests(found):
    planned = _collect((str(ROOT / "perf_tests"),))
    # As if people had written them: those of a program are never unused.
    rest = unused([replace(one.entry, provenance={}) for one in found.shipped], planned)
    assert [one.entry.label for one in rest if not one.benchmark_known] == []
    unexplained = [
        f"{one.entry.label} {one.entry.parameters}"
        for one in rest
        if not OTHERS.get(one.entry.benchmark, lambda _: False)(one.entry.parameters)
    ]
    assert unexplained == []


def test_a_range_from_nothing_has_no_slowest_time(entries_of):
    (entry,) = (one for one in entries_of(*TABLES[0][:2]) if one.parameters["size_bytes"] == 2**12)
    work = Work(read_bytes=4096, write_bytes=4096, payload_bytes=4096)
    assert published_s(entry, entry.value[0], work) is None
    assert published_s(entry, entry.value[1], work) == pytest.approx(8192 / 200e9)

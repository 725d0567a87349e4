"""Every table of the five documents is in: by its number of figures, and by values read from the texts."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_roofline.baselines.files import unused_entries
from pytest_roofline.cli.pruning import collect
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.keys import Key

ROOT = Path(__file__).parents[3]
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
def entries_of(found, module):
    """The entries of a table."""
    tables = {one.id: module("seeds").table_of(one) for one in module("figures").told()}
    placed = [(tables[one.record], one.entry) for one in found.entries if one.record in tables]

    def entries(document, title):
        return [
            entry for table, entry in placed if (table.document, table.title) == (document, title)
        ]

    return entries


def test_every_table_is_in_whole(found, module):
    seeds = module("seeds")
    assert [(table.document, table.title) for table in seeds.TABLES] == [row[:2] for row in TABLES]
    told = [(one, seeds.table_of(one)) for one in module("figures").told()]
    entered, left_out = (
        {one.record for one in found.entries},
        {one.record: one.why for one in found.left_out},
    )
    for document, title, count, elsewhere in TABLES:
        records = {
            one.id for one, table in told if (table.document, table.title) == (document, title)
        }
        # The one kernel of the leaderboard that did not start has no time.
        out = count if elsewhere else int(title == "leaderboard")
        assert (len(records), len(records & entered), len(records & left_out.keys())) == (
            count,
            count - out,
            out,
        ), title
        assert all(elsewhere in left_out[record] for record in records & left_out.keys()), title


def values(entries, **wanted):
    """The values of the entries with these parameters."""
    return [
        one.value
        for one in entries
        if all(one.parameters.get(name) == value for name, value in wanted.items())
    ]


def test_values_are_those_of_the_texts(entries_of):
    cases = [
        # "Below 1MB … under 100 GB/s"; "larger than about 10MB … 2000-3000 GB/s", of payload.
        ((MEMCPY, "the plotted curve, by the ranges of its text"), {"size_bytes": 2**12}, [(0.0, 200.0)]),
        ((MEMCPY, "the plotted curve, by the ranges of its text"), {"size_bytes": 2**30}, [(4000.0, 6000.0)]),
        ((PEER, "the plotted curve of PyTorch"), {"size_bytes": 2**23}, [(40.0, 50.0)]),
        ((PEER, "the plotted curve of MPI"), {"size_bytes": 2**30}, [(48.0, 50.0)]),
        # Sums of ten steps are steps.
        ((FIRST, "benchmarking_script, 5 warm-up steps"), {"size": "small", "passes": "forward"}, [0.0377]),
        ((FIRST, "benchmarking_script, 0 warm-up steps"), {"size": "xl", "passes": "forward"}, [0.3034]),
        ((FIRST, "nsys_profile a, forward passes"), {"size": "large"}, [0.148]),
        ((FIRST, "torch_compile b, steps"), {"size": "2.7B", "passes": "forward_backward", "execution": "eager"},
         [1.3212]),
        ((FIRST, "pytorch_attention"), {"d_model": 16, "sequence": 16384}, ["out of memory"]),
        ((FIRST, "leaderboard"), {}, [0.0754004898071, 0.0716799316406, 0.0644224395752, 0.0581077384949]),
        ((FIRST, "nsys_profile d and e, shares and times"), {}, [0.78, 0.63, 0.01066, 0.00198]),
        ((FIRST, "memory_profiling b and c"), {}, [37e9, 67e9, 43e9, 70e9]),
        ((FIRST, "all_reduce, Gloo"), {"size_bytes": 1_000_000, "world_size": 2}, [0.74]),
        ((FIRST, "all_reduce, MI300X"), {"size_bytes": 150_000_000_000, "world_size": 8}, [216.45]),
        ((FIRST, "all_reduce, V100"), {"size_bytes": 1_000_000_000, "world_size": 4}, [6.27]),
        ((FIRST, "all_reduce, H100"), {"size_bytes": 1_000_000_000, "world_size": 8}, [10.04]),
        ((SECOND, "model specifications, times"), {"size": "2.7B", "passes": "forward_backward"}, [81.4465, 1.6165]),
        ((SECOND, "mixed precision"), {"size": "xl", "context": 1024}, ["out of memory"] * 4),
        ((SECOND, "nsys_profile a"), {"size": "large"}, [0.1418]),
        ((SECOND, "effect of warm-up, first steps"), {"size": "large", "passes": "forward"}, [1.76326]),
        ((THIRD, "benchmarking_script"), {"size": "small", "passes": "backward"}, [0.106601, 0.067038]),
        ((THIRD, "nsys_profile, by Python"), {"context": 512}, [0.070388]),
        ((THIRD, "nsys_profile e, attention"), {}, [0.000762, 0.0008]),
        ((THIRD, "nsys_profile c, kernels"), {}, [0.002167, 0.007872, 0.006012]),
        ((THIRD, "peak memory"), {}, [3.4e9, 4.7e9, 3e9, 4.5e9]),
    ]  # fmt: skip
    for table, wanted, expected in cases:
        assert values(entries_of(*table), **wanted) == expected, (table, wanted)


def test_steps_in_mixed_precision_speak_of_both_types_and_series_are_in_the_note(entries_of):
    mixed = [
        e
        for e in entries_of(FIRST, "benchmarking_mixed_precision c, steps")
        if e.hardware.product == "mi300x-oam"
    ]
    assert values(mixed, size="2.7B", precision="fp32") == [0.4965]
    types = [values(mixed, size="2.7B", precision=f"{kind}_autocast") for kind in ("bf16", "fp16")]
    assert types == [[0.257], [0.257]]
    series = entries_of(SECOND, "effect of warm-up, ten steps")
    assert [entry.note.split(";")[0].count(", ") for entry in series] == [10] * 4
    by_kernel = {
        one.note.split(", ")[0]: one.value
        for one in entries_of(SECOND, "PyTorch profiler, forward")
    }
    assert (by_kernel["aten::bmm"], by_kernel["self CUDA time total"]) == (0.122976, 0.138042)


def test_times_of_whole_programs_are_held_against_those_of_whole_programs_only(entries_of):
    entries = entries_of(FIRST, "all_reduce, MI300X")
    hardware = HardwareKey("mi300x-oam", "192gb", "none", 2, "unknown")
    sum_of_one_mb = {"world_size": 2, "size_bytes": 1_000_000}
    job = Key("all_reduce_job", sum_of_one_mb, "job_wall_s", hardware, "warm", "wall", "job")
    steady = Key(
        "all_reduce_job", sum_of_one_mb, "busbw_GBps", hardware, "warm", "pipelined", "steady"
    )
    assert [entry.value for entry in entries if entry.matches(job)] == [11.62]
    assert [entry for entry in entries if entry.matches(steady)] == []
    assert all("not comparable with the steady time" in entry.note for entry in entries)


def test_what_cannot_be_is_implausible_and_nothing_else(entries_of, found, module):
    flagged = {
        (FIRST, "benchmarking_script, 0 warm-up steps"): (10, "the first had to start everything"),
        (FIRST, "benchmarking_script, 5 warm-up steps"): (0, ""),
        (FIRST, "nsys_profile a, forward passes"): (2, "the profiler did not see all of it"),
        (FIRST, "pytorch_attention"): (0, ""),
        (MEMCPY, "the plotted curve, by the ranges of its text"): (
            7,
            "6000 GB/s is 113% of the datasheet's",
        ),
        (THIRD, "pytorch_attention"): (12, "was not synchronised"),
    }
    for table, (count, why) in flagged.items():
        implausible = [one.implausible for one in entries_of(*table) if one.implausible]
        assert (len(implausible), all(why in one for one in implausible)) == (count, True), table
    # No figure that is shown as a target is above a peak of its hardware, by program.
    flags, checked = module("flags"), 0
    for one in found.entries:
        if (
            one.entry.metric == "time_s"
            and isinstance(one.entry.value, float)
            and not one.entry.implausible
        ):
            flops, peak = flags.flops_of(one.entry.benchmark, one.entry.parameters)
            checked += bool(flops and flags.peak_of(one.family, one.entry.hardware, peak))
            assert flags.why_implausible(one.family, one.entry) == ""
    assert checked > 200
    one = next(
        one
        for one in found.entries
        if one.entry.parameters.get("size") == "2.7B" and one.entry.value == 0.4169
    )
    # Forward, 1024 tokens of 3.38 billion parameters: 7 TFLOP, which single precision does in 0.36 s at best.
    why = flags.why_implausible(one.family, replace(one.entry, value=0.1))
    assert why.endswith("of the datasheet's 19.5 TFLOP/s: it was not waited for")


# What our own tests have not, although they have the benchmark: sizes, worlds and shapes of others.
OTHERS = {
    "all_reduce": lambda p: p["world_size"] not in (2, 4, 6, 8),
    "memcpy_h2d": lambda p: p["size_bytes"] == 20 * 2**30,
    # A machine without GPUs collects one size of them.
    "peer_copy_one_way": lambda p: p["size_bytes"] != 2**29,
    "transformer": lambda p: p["batch"] == 16,
}


def test_the_names_and_parameters_are_those_of_our_own_tests(found):
    planned = collect((str(ROOT / "perf_tests"),))
    # As if people had written them: those of a program are never unused.
    rest = unused_entries([replace(one.entry, provenance={}) for one in found.entries], planned)
    assert [entry.label for entry, reason in rest if "no such test" in reason] == []
    unexplained = [
        f"{entry.label} {entry.parameters}"
        for entry, _ in rest
        if not OTHERS.get(entry.benchmark, lambda _: False)(entry.parameters)
    ]
    assert unexplained == []

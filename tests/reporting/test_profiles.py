"""Profiles in words: a few lines in the terminal, all of it on a page."""

from dataclasses import replace

import pytest

from pytest_roofline.core.profiles import AttentionTime, ClassTime, KernelTime, PartTime, Profile, Timers
from pytest_roofline.reporting.profile_pages import markdown
from pytest_roofline.reporting.profile_table import cells_of, short_name
from pytest_roofline.reporting.profiles import attention_text, profile_lines, slowed_text, timers_text

HOSTILE = "x\x1b[31m\r\ny[bold]|<b>"
TIMERS = Timers(12e-3, 11e-3, 14e-3, 13e-3, 10e-3)
KERNEL = KernelTime(
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, T2)", "elementwise",
    4e-3, 0.1, 8, 0.4e-3, 0.3e-3, 0.9e-3, 0.1e-3, 2e-3, (20, 40, 1), 3, (256, 1, 1), 1,
)  # fmt: skip
FORWARD = AttentionTime("forward", 4e-3, 20e-3, 6e-3, 0.0, 2e-3, 2_000_000, 200_000_000, 4_000_000)


def profile(**changes):
    facts = {
        "label": "step", "timers": TIMERS, "on_device": True, "span_s": 26e-3, "busy_s": 20e-3, "streams": 1,
        "kernels": (KERNEL,),
        "classes": (
            ClassTime("matrix product", 14e-3, 0.5389, 4, 5_000_000_000, ("ampere_sgemm_128x64_tn",)),
            ClassTime("idle", 6e-3, 0.2308),
        ),
        "distinct": 31, "parts": (PartTime("blocks.*.attention", 6e-3, 8e-3), PartTime("", 1e-3, 0.0)),
        "attention": (FORWARD,), "trace": "/somewhere/step.trace.json.gz", "missing": ("the moon",),
    }  # fmt: skip
    return Profile(test_id="test.py::test_step", process="p", device="cuda:0", calls=2, **(facts | changes))


def test_the_terminal_has_clocks_classes_kernels_and_attention_of_one_call():
    text = "\n".join(profile_lines([profile()], 80, colour=False))
    assert "profile of step on cuda:0, 2 calls; never judged, in no baseline" in text
    assert "host 12.0 ms, device 11.0 ms; profiled: host 14.0 ms, span 13.0 ms, busy 10.0 ms" in text
    assert "matrix product 53.9 %, idle 23.1 % of the span" in text
    # 4 ms in 8 launches of two calls.
    assert "2.00 ms" in text
    assert "softmax 2.00 ms (1.00 MFLOP), products of scores and values 10.0 ms (100 MFLOP)" in text
    assert "1 : 5.00 in time and 1 : 100 in FLOPs" in text
    assert "not told: the moon" in text
    assert "trace: /somewhere/step.trace.json.gz" in text


@pytest.mark.parametrize("width", [50, 60, 72, 80, 81, 90, 100, 120, 150, 152, 200])
def test_the_table_fits_and_no_number_of_it_is_cut(width):
    wide = KernelTime("k" * 300, "other", 99.9e-3, 0.999, 2223, 373e-6, 81.6e-6, 4e-3, 111e-6, 21.5e-3)
    table = profile_lines([profile(kernels=(KERNEL, *[wide] * 9), timers=None)], width, colour=False)[2:12]
    assert all(len(line) <= width for line in table)
    heading, _, *rows = table
    columns = heading.split()[1:]
    for row, kernel in zip(rows, (KERNEL, *[wide] * 7), strict=True):
        expected = [cells_of(kernel, 2)[name] for name in columns]
        assert "".join(expected).replace(" ", "") in row.replace(" ", "")
    assert 8 == sum("k" * 10 in line or "vectorized_" in line for line in rows)
    assert ("time" in columns, "share" in columns) == (True, True)


def test_what_tells_least_gives_way_first():
    def columns(width):
        return profile_lines([profile(timers=None)], width, colour=False)[2].split()[1:]

    assert ["time", "share", "calls", "median", "min", "max"] == columns(80)
    assert ["time", "share", "calls", "median"] == columns(62)
    assert ["mean", "dev", "CPU", "grid", "block"] == [name for name in columns(200) if name not in columns(80)]


def test_of_a_repeated_measurement_the_last_stands_and_of_many_a_path_alone():
    def named(number):
        return replace(profile(label=f"step[{number}]", trace=f"/runs/a/{number}.json"), test_id=str(number))

    again = replace(named(0), label="again")
    lines = profile_lines([*(named(number) for number in range(10)), again], 80, colour=False)
    heads = [line for line in lines if line.startswith("profile of")]
    assert 8 == len(heads)
    assert "again" in heads[0]
    assert "and 2 more profiles, in the run file and /runs/a" in lines


def test_a_host_that_the_profiler_slowed_down_is_told_with_both_times():
    timers = Timers(21e-6, profiled_host_s=38.7e-6)
    expected = "the profiler slowed the host down: 38.7 µs a call, 1.84 times the 21.0 µs without it"
    assert slowed_text(timers).startswith(expected)
    assert expected in "\n".join(profile_lines([profile(timers=timers)], 80, colour=False))
    assert expected[1:] in markdown(profile(timers=timers))
    assert "" == slowed_text(Timers(21e-6, profiled_host_s=23e-6)) == slowed_text(Timers(1.0))


def test_without_a_profile_there_is_no_line():
    assert [] == profile_lines([], 80, colour=False)


def test_an_external_profile_has_its_clocks_alone():
    found = profile(tool="external", classes=(), kernels=(), attention=(), trace="", timers=Timers(1e-3), missing=())
    assert ["  a call: host 1.00 ms"] == profile_lines([found], 80, colour=False)[1:-1]


def test_overlapping_streams_are_said_to_be():
    text = "\n".join(profile_lines([profile(overlap_s=2.6e-3, streams=3)], 80, colour=False))
    assert "3 streams overlap, so that classes hold 10.0 % more than the span" in text


def test_fused_attention_has_no_ratio():
    fused = AttentionTime("forward", 0.0, 0.0, 6e-3, 10e-3, 2e-3)
    text = attention_text(fused, 2)
    assert "forward: fused 5.00 ms (softmax and products cannot be told apart), products with weights 3.00 ms" in text
    assert "1 :" not in text


def test_a_clock_that_is_not_known_is_left_out():
    assert "host 1.00 ms" == timers_text(Timers(1e-3))
    assert "host 1.00 ms; profiled: busy 2.00 ms" == timers_text(Timers(1e-3, busy_s=2e-3))


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("void at::native::reduce_kernel<512, at::native::ReduceOp<float>>(T3)", "reduce_kernel<512, ReduceOp<float>>"),
        ("Memcpy DtoH (Device -> Pageable)", "Memcpy DtoH (Device -> Pageable)"),
        ("(anonymous namespace)::thing(int)", "thing"),
        ("k" * 50, "k" * 39 + "…"),
    ],
)  # fmt: skip
def test_a_kernel_keeps_what_tells_it_apart(name, short):
    assert short == short_name(name, 40)


def test_the_page_has_every_table_and_says_how_things_are_counted():
    page = markdown(profile())
    assert "| host, unprofiled | 12.0 ms |" in page
    assert "| matrix product | 7.00 ms | 53.9 % | 2 | 2.50 GFLOP | ampere_sgemm_128x64_tn |" in page
    assert "| 500 µs | 400 µs | 300 µs | 900 µs | 100 µs | 1.00 ms | 20×40×1, several | 256×1×1 |" in page
    assert "And 30 more." in page
    assert "| forward | softmax | 2.00 ms | 1.00 MFLOP |" in page
    assert "5 a score forward" in page
    assert "| blocks.\\*.attention | 3.00 ms | 4.00 ms |" in page
    assert "| (in no part) | 500 µs | 0 ns |" in page
    assert "* the moon" in page
    assert "add up to it" in page


def test_every_row_of_the_page_has_as_many_cells_as_its_heading():
    kernel = KernelTime(HOSTILE, "other", 1e-3, 0.1, 1, 1e-3, 1e-3, 1e-3, 0.0)
    page = markdown(profile(label=HOSTILE, kernels=(KERNEL, kernel), parts=(PartTime(HOSTILE, 1.0, 1.0),)))
    tables = [block.split("\n") for block in page.split("\n\n") if block.startswith("|")]
    assert 5 == len(tables)
    for rows in tables:
        assert 1 == len({row.replace("\\|", "").count("|") for row in rows})


def test_nothing_in_a_name_reaches_the_terminal_or_the_page():
    found = profile(label=HOSTILE, missing=(HOSTILE,), trace=HOSTILE)
    text = "".join(profile_lines([found], 80, colour=False)) + markdown(found)
    assert "\x1b" not in text
    assert "\r" not in text
    assert "<b>" not in markdown(found)

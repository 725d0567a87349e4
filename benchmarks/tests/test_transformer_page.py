"""The page of transformer steps: what it takes from run files, what it refuses to show, and what others published."""

import json

import pytest

from pytest_roofline.core.memory import FailedAllocation, MemoryUse, OutOfMemory
from pytest_roofline.core.profiles import ClassTime, Figure, Profile
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.work import Work

CASE = {"size": "small", "passes": "forward", "context": 128, "precision": "fp32"}
FLOPS, TOKENS = 10**11, 512
PEAK = Ceiling("fp32_TFLOPS", 80e9, "measured", "product of 1024 x 1024, best of 9")


@pytest.fixture(scope="module")
def transformer(program):
    return program("transformer_page")


@pytest.fixture
def step(make):
    """Makes a measurement of a step in so many seconds, or of another benchmark by its parameters."""

    def measure(seconds, benchmark="transformer", name="", **parameters):
        facts = {
            field: parameters.pop(field)
            for field in ("peak_bytes", "invalid", "samples", "ceiling", "compile_s", "process")
            if field in parameters
        }
        key = make.key(
            benchmark, parameters=CASE | parameters, metric="fp32_TFLOPS", cache="warm", name=name
        )
        return make.measurement(seconds, key=key, work=Work(flops=FLOPS, tokens=TOKENS), **facts)

    return measure


@pytest.fixture
def shown(transformer, make, tmp_path, capsys):
    """The page of one run with these records."""

    def show(*records, footer=True):
        ending = (make.footer(),) if footer else ()
        run = make.save(tmp_path / "quiet.jsonl", *records, *ending)
        assert transformer.main([str(run)]) == 0
        return capsys.readouterr().out

    return show


def test_a_step_has_its_time_its_rates_its_share_of_the_peak_and_its_memory(shown, step, rows_of):
    text = shown(step(2.0, ceiling=PEAK, peak_bytes=3 * 2**30))
    assert rows_of(text, "Steps") == [
        ["transformer[small-forward-128-fp32]", "2000", "256", "50.0", "62.5%", "3.00 GiB", "–"]
    ]
    assert "`fp32_TFLOPS` 80.0 GFLOP/s, measured (product of 1024 x 1024, best of 9)" in text


def test_a_time_that_must_not_be_trusted_is_not_shown(shown, step, rows_of):
    text = shown(step(2.0, invalid="busy neighbours"))
    assert rows_of(text, "Steps")[0][1:] == ["not sound", "–", "–", "–", "–", "–"]
    assert "1 of 1 measurements are not sound" in text
    assert "busy neighbours" in text


@pytest.mark.parametrize(
    ("phase", "told"),
    [
        ("calls", "out of memory, asked for 1.00 GiB beside a peak of 2.00 GiB"),
        # Before its measurement began, the counter may still hold the peak of another test.
        (None, "out of memory, asked for 1.00 GiB"),
    ],
)
def test_what_ran_out_of_memory_stands_with_what_it_asked_for(shown, step, phase, told, rows_of):
    record = OutOfMemory(
        test_id="t", benchmark="transformer", parameters=CASE | {"size": "xl"}, label="transformer[xl]",
        device="cuda:0", recorded=True, phase=phase,
        allocation=FailedAllocation("CUDA out of memory", asked_bytes=2**30, peak_bytes=2**31),
    )  # fmt: skip
    rows = rows_of(shown(step(1.0), record), "Steps")
    assert rows[1][:2] == ["transformer[xl]", told]


def test_how_long_compiling_took_stands_apart_from_the_time(shown, step, rows_of):
    text = shown(step(1.0, execution="eager"), step(0.5, execution="compile", compile_s=41.0))
    assert [row[1:2] + row[6:] for row in rows_of(text, "Steps")] == [
        ["1000", "–"],
        ["500", "41.0 s"],
    ]
    assert rows_of(text, "execution: compile against eager")[0][1:] == [
        "1.00 s",
        "500 ms",
        "-500 ms",
        "-50.0 %",
    ]


def test_precisions_stand_beside_each_other_with_difference_and_percent(shown, step, rows_of):
    cases = (("fp32", "forward", 0.1398), ("bf16_autocast", "forward", 0.0965))
    text = shown(
        *(step(seconds, precision=precision, passes=passes) for precision, passes, seconds in cases)
    )
    rows = rows_of(text, "precision: bf16_autocast against fp32")
    assert rows == [["transformer[small-128]", "140 ms", "96.5 ms", "-43.3 ms", "-31.0 %"]]


def test_memory_and_profiles_stand_as_the_run_has_them(shown, step):
    use = MemoryUse(
        "t", "transformer_memory[small]", "p", "cpu", "", 1000, "backward", {"activations": 1000}
    )
    profile = Profile(
        "t", "transformer[small]", "p", "cpu", 1, measured_s=2.0, span_s=2.0, busy_s=1.0,
        classes=(ClassTime("matrix product", 1.0, 0.5), ClassTime("idle", 1.0, 0.5)),
    )  # fmt: skip
    text = shown(step(1.0), use, profile)
    assert "activations 1000 B (100 %)" in text.partition("### Where memory goes")[2]
    assert "matrix product 50.0 %" in text.partition("### Profile of transformer[small]")[2]


def test_worlds_stand_with_the_figures_of_their_tests(shown, step, rows_of):
    worlds = [
        step(seconds, "transformer_ranks", name)
        for name, seconds in (("alone", 1.0), ("together", 1.25))
    ]
    figure = Figure(worlds[0].test_id, "transformer_ranks[ddp-2]", "p", "efficiency", 0.8, "share")
    text = shown(*worlds, figure)
    assert [row[1] for row in rows_of(text, "Over ranks")] == ["1000", "1250"]
    assert "* transformer_ranks[ddp-2]: efficiency 80.0 %" in text


def test_a_run_without_the_transformer_is_refused(transformer, make, tmp_path, capsys):
    run = make.save(tmp_path / "other.jsonl", make.measurement(1e-3))
    assert transformer.main([str(run)]) == 2
    assert "holds nothing of the transformer" in capsys.readouterr().err


def test_every_published_table_names_its_hardware_and_has_whole_rows(transformer):
    sources = json.loads(transformer.PUBLISHED.read_text(encoding="utf-8"))
    assert len(sources) == 22
    for source in sources:
        assert source["hardware"]
        assert {len(row) for row in source["rows"]} == {len(source["columns"])}


def test_the_page_begins_with_the_steps_that_are_sound_and_what_they_reach(shown, step):
    # A step of 100 GFLOP beside a peak of 80 GFLOP/s.
    peak = {"ceiling": PEAK, "context": 256}
    text = shown(step(2.0, **peak), step(2.5, ceiling=PEAK), step(2.0, invalid="busy", context=512))
    assert text.split("\n\n")[1] == (
        "Of 3 steps that were measured 2 are sound; they reach 50.0% to 62.5% of the peak."
    )
    assert "Of 1 steps that were measured 1 are sound." in shown(step(2.0))

"""The tables of the report's page, cell by cell."""

from dataclasses import replace

import pytest

from pytest_roofline.baselines.rows import rows_of, rows_of_run
from pytest_roofline.core.memory import OutOfMemory
from pytest_roofline.core.profiles import Figure
from pytest_roofline.core.records import Ceiling, Outcome
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.core.work import Work
from pytest_roofline.report import page_steps
from pytest_roofline.report.page import page
from pytest_roofline.report.page_machine import (
    MOST_ENDED,
    changed_lines,
    ended_lines,
    figures_of,
    machine_table,
    published_of,
)
from pytest_roofline.report.page_red import reds
from pytest_roofline.report.page_results import exhausted_table, kernels_table, results_table
from pytest_roofline.report.page_steps import memory_of, memory_table, profiles_of, steps_table

from .page_runs import everything, judged

DATASHEET = Ceiling("TFLOPS", 1e14, "datasheet", "datasheet")


@pytest.fixture(scope="module")
def run(make, tmp_path_factory):
    return everything(make, tmp_path_factory.mktemp("parts") / "full.jsonl")


def texts(table):
    """Rows as dictionaries from heading to text, without what is empty."""
    names = [column.name for column in table.columns]
    return [{name: cell.text for name, cell in zip(names, row, strict=True) if cell.text} for row in table.rows]


def row_of(make, tmp_path, *records):
    return rows_of_run(make.run(tmp_path / "run.jsonl", *records))


def results(make, tmp_path, *records):
    return texts(results_table(row_of(make, tmp_path, *records), several=False))


def test_a_measurement_with_a_verdict_fills_every_column(make, tmp_path):
    one = make.measurement(1.25e-3, ceiling=Ceiling("traffic_GBps", 4.8e11, "datasheet", "datasheet"))
    times = (1.24e-3, 1.25e-3, 1.26e-3)
    told = judged(make, *times, test_id=one.test_id, label=one.label)
    found = results(make, tmp_path, one, told)[0]
    assert found.pop("99 % interval").endswith(" %")
    assert {
        "test": "memcpy_d2d[64MiB]", "size": "64 MiB", "time": "1.25 ms", "rate": "107 GB/s", "roofline": "22 %",
        "baseline": "1.00 ms", "difference": "+25.0 %", "processes": "3 : 15", "verdict": "REGRESSED",
    } == found  # fmt: skip


def test_a_share_of_a_measured_roofline_has_a_star_and_one_out_of_a_cache_is_none(make, tmp_path):
    measured = Ceiling("traffic_GBps", 2.68e11, "measured", "triad")
    cached = Samples((1e-3,), 10, 1e-9, labels=("cache_resident",))
    records = [
        make.measurement(1e-3, ceiling=measured),
        make.measurement(key=make.key("cached"), samples=cached, ceiling=measured),
        make.measurement(1e-3, key=make.key("beyond"), ceiling=replace(measured, value=1e9)),
    ]
    assert ["50 %*", "cache", ">999 %*"] == [row["roofline"] for row in results(make, tmp_path, *records)]


def test_processes_that_do_not_count_are_not_counted(make, tmp_path):
    fine = make.measurement(1e-3, process="a")
    late, spoiled = replace(fine, process="b"), replace(fine, process="c", invalid="busy neighbours")
    assert "2" == results(make, tmp_path, fine, late, spoiled)[0]["processes"]
    assert "processes" not in results(make, tmp_path, spoiled)[0]


def test_a_time_below_the_clocks_resolution_has_no_rate(make, tmp_path):
    short = Samples((2e-8,), 1, 1e-8, labels=("unresolved",))
    assert "rate" not in results(make, tmp_path, make.measurement(samples=short))[0]


def test_the_model_steps_have_tokens_mfu_warm_up_and_memory(run):
    eager, compiled = texts(steps_table(rows_of_run(run)))
    assert {
        "step": "transformer[small-eager]", "time": "140 ms", "tokens/s": "58514", "MFU": "4.3 %",
        "first call": "1.68 s", "steady from": "call 1", "peak": "9.00 GiB", "held": "1.00 GiB",
        "verdict": "NO BASELINE",
    } == eager  # fmt: skip
    assert ("38.0 s", "91022") == (compiled["compiling"], compiled["tokens/s"])


def test_a_run_without_tokens_has_no_table_of_steps(make, tmp_path):
    assert steps_table(row_of(make, tmp_path, make.measurement())) is None


def test_a_share_of_a_measured_product_is_no_mfu_without_a_star(make, tmp_path):
    key, work = make.key("step", metric="TFLOPS"), Work(flops=10**12, tokens=100)
    one = make.measurement(0.1, key=key, work=work, ceiling=replace(DATASHEET, source="measured"))
    assert "10.0 %*" == texts(steps_table(row_of(make, tmp_path, one)))[0]["MFU"]


def test_a_step_that_never_got_steady_says_so_with_its_calls(make, tmp_path):
    samples = Samples((0.1,) * 3, 1, 1e-9, first_calls_s=(1.0, 0.5))
    work = Work(flops=10**12, tokens=100)
    table = steps_table(
        row_of(make, tmp_path, make.measurement(key=make.key(metric="TFLOPS"), samples=samples, work=work))
    )
    steady = next(cell for cell in table.rows[0] if cell.text == "not yet")
    assert "not steady within 2 calls" in steady.why


def test_a_profile_tells_its_classes_and_its_kernels_of_one_call(run):
    (told,) = profiles_of([run])
    classes, kernels = told.tables
    assert [{"class": "matrix product", "time": "6.00 ms", "share of the span": "60.0 %"}] == texts(classes)[:1]
    assert ("softmax_kernel<float>", "2.00 ms", "4") == tuple(
        texts(kernels)[0][name] for name in ("kernel", "time", "calls")
    )
    assert told.says.startswith("matrix product 60.0 %")


def test_memory_has_a_column_for_each_category_that_there_is(run):
    (found,) = texts(memory_table([run]))
    assert {"call", "peak", "in", "parameters", "activations"} == set(found)
    assert ("1.00 GiB", "300 MiB") == (found["peak"], found["parameters"])


def test_kernels_have_their_figures_and_what_changed(run):
    worse, fine = sorted(texts(kernels_table(rows_of_run(run))), key=lambda row: -len(row))
    assert "registers 198 → 255, spill_stores 0 → 12" == worse["changed"]
    assert ("sm_80", "198", "112 KiB", "0", "24") == tuple(
        fine[n] for n in ("target", "registers", "shared", "spills", "matrix")
    )


def test_a_figure_that_was_not_read_is_no_zero(make, tmp_path, run):
    unread = replace(run.resources[0], figures={"registers": 10}, unread="no disassembler")
    row = texts(kernels_table(row_of(make, tmp_path, unread)))[0]
    assert ("10", "not read", "not read") == (row["registers"], row["spills"], row["matrix"])


def test_what_ran_out_of_memory_says_what_it_asked_for_and_where(run):
    table = exhausted_table(rows_of_run(run))
    assert ("64.0 GiB", "40.0 GiB") == tuple(texts(table)[0][name] for name in ("asked for", "free"))
    assert any("in its calls" in cell.why for cell in table.rows[0])


def test_the_environment_has_units_and_leaves_out_what_is_unknown(run):
    facts = {row["fact"]: row["full"] for row in texts(machine_table([run]))}
    assert ("64.0 GiB", "570.86", "2.13.0") == tuple(
        facts[f] for f in ("host memory", "device driver", "software torch")
    )
    assert "device power limit" not in facts
    assert "2026-01-02T03:04:05Z, exit status 0" == facts["finished"]


def test_how_very_many_runs_ended_is_cut_short(make, tmp_path):
    runs = [make.run(tmp_path / f"{number}.jsonl", make.footer(measured=number)) for number in range(12)]
    lines = ended_lines(runs)
    assert ("0: 0 measured", "7: 7 measured", "… and 4 more lines of this kind") == (lines[0], lines[7], lines[8])
    assert 9 == len(lines)


def test_two_runs_of_one_file_name_are_told_apart_wherever_they_are_named(make, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    runs = [make.run(tmp_path / folder / "n.jsonl", make.measurement(), make.footer(measured=1)) for folder in "ab"]
    assert ["a/n", "b/n"] == [column.name for column in machine_table(runs).columns][1:3]
    assert ["a/n: 1 measured", "b/n: 1 measured"] == ended_lines(runs)
    assert ["a/n", "b/n"] == [row["run"] for row in texts(results_table(rows_of(runs), several=True))]


def test_one_more_line_is_no_lines(make, tmp_path):
    runs = [make.run(tmp_path / f"{number}.jsonl", make.footer()) for number in range(MOST_ENDED + 1)]
    assert "… and 1 more line of this kind" == ended_lines(runs)[-1]


def test_what_changed_is_told_once_with_how_many_results_say_so(run):
    lines = changed_lines(rows_of_run(run))
    assert ["driver 550.54 → 570.86 (16 of 17 results)", "triton 3.8.0 → 3.9.0 (1 of 17 results)"] == lines


def test_figures_and_published_numbers_stand_beside_their_tests(make, tmp_path):
    one = make.measurement()
    told = replace(judged(make, 1e-3, test_id=one.test_id, label=one.label), published=("a vendor's 4000 GB/s",))
    run = make.run(tmp_path / "run.jsonl", one, told, Figure("t", "ranks[2]", "p", "efficiency", 0.5, "share"))
    assert ["ranks[2]: efficiency 50.0 %"] == figures_of([run])
    assert ["memcpy_d2d[64MiB]: a vendor's 4000 GB/s"] == published_of(rows_of_run(run))


def test_a_failed_test_without_a_number_has_its_message_and_a_command_and_no_processes(run):
    red = next(one for one in reds(rows_of_run(run)) if one.row.verdict == "FAILED")
    assert "AssertionError: the copy differs in 3 of 4096 values" == red.message
    assert ("python -m pytest test_own.py::test_data",) == red.commands


def commands(make, tmp_path, *records, **changes):
    run = make.run(tmp_path / "run.jsonl", *records)
    return [red.commands for red in reds(rows_of_run(replace(run, header=replace(run.header, **changes))))]


def test_the_device_is_looked_at_again_by_the_run_that_it_failed_in_under_another_name(make, tmp_path):
    ended = Outcome("device health", "failed", reason="DEGRADED: power limit")
    for saved in (["--roofline-save", "n"], ["--roofline-save=n"]):
        command = ("pytest", "perf tests", *saved, "-k", "copy")
        assert [("python -m pytest 'perf tests' -k copy",)] == commands(make, tmp_path, ended, command=command)


def test_what_holds_no_number_is_not_explained(make, tmp_path):
    test_id = "test_big.py::test_big"
    ran_out = OutOfMemory(test_id, "big", {}, "big[9]", "p", "cuda:0", "tried to allocate", name="")
    found = commands(make, tmp_path, ran_out, Outcome(test_id, "failed", reason="out of memory"))
    assert [("python -m pytest test_big.py::test_big",)] == found


def test_a_name_that_nobody_can_type_is_in_no_command(make, tmp_path):
    one = make.measurement(test_id="test_a.py::test_\x07", label="copy")
    (found,) = commands(make, tmp_path, one, make.outcome(one, "failed"))
    assert [f"roofline explain {tmp_path / 'run.jsonl'} copy"] == list(found)


def test_one_block_is_no_blocks(make, tmp_path):
    samples = Samples((1e-3, 2e-3), 1, 1e-9, blocks=(Block(1, excluded="cores taken"), Block(1)))
    one = make.measurement(samples=samples)
    (red,) = reds(row_of(make, tmp_path, one, make.outcome(one, "failed")))
    assert "      blocks left out: 1 by cores taken" in red.explained


def test_what_is_folded_away_is_cut_short_with_a_word(run, monkeypatch):
    monkeypatch.setattr(page_steps, "MOST_TOLD", 2)
    several = replace(
        run,
        profiles=tuple(replace(run.profiles[0], test_id=f"t{number}") for number in range(3)),
        memory_uses=tuple(replace(run.memory_uses[0], test_id=f"t{number}") for number in range(4)),
    )
    assert ("… and 1 more profile", "in the run file") == (
        profiles_of([several])[2].title,
        profiles_of([several])[2].says,
    )
    assert (3, "… and 2 more calls") == (len(memory_of([several])), memory_of([several])[-1].title)
    text = page([several])
    assert '<p class="told"><b>… and 1 more profile</b> in the run file</p>' in text


def test_every_process_of_a_red_test_stands_beside_the_sessions_behind_the_baseline(run):
    red = next(one for one in reds(rows_of_run(run)) if one.row.label == "memcpy_d2d[512KiB]")
    assert 3 == sum(line.startswith("  round ") for line in red.explained)
    assert 3 == sum("5 processes" in line for line in red.explained if line.startswith("  session of"))

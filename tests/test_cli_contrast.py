"""`roofline contrast` as a user types it."""

import json

import pytest
from click.testing import CliRunner

from pytest_roofline.cli import main
from pytest_roofline.core.work import Work


@pytest.fixture
def run(make, tmp_path):
    """A saved run of two passes in two precisions, one of them unsound."""

    def step(seconds, passes, precision, **changes):
        parameters = {"size": "small", "passes": passes, "precision": precision}
        key = make.key("transformer", parameters=parameters, metric=f"{precision}_TFLOPS")
        return make.measurement(seconds, key=key, work=Work(flops=10**9), test_id=f"t[{passes}-{precision}]", **changes)

    records = [
        step(0.1398, "forward", "fp32"),
        step(0.0965, "forward", "bf16"),
        step(0.5132, "step", "fp32"),
        step(0.6000, "step", "bf16", invalid="busy neighbours"),
    ]
    return make.save(tmp_path / "seed.jsonl", *records)


@pytest.fixture
def contrast(run):
    def command(*arguments):
        call = ["contrast", str(run), "--by", "precision", "--base", "fp32", "--other", "bf16", *arguments]
        return CliRunner().invoke(main, call)

    return command


def test_the_table_has_both_times_the_difference_and_the_percent(contrast):
    done = contrast()
    assert done.exit_code == 0
    (row,) = [line for line in done.output.splitlines() if "forward" in line]
    assert row.split() == ["transformer[small-forward]", "140", "ms", "96.5", "ms", "-43.3", "ms", "-31.0"]
    row, why = [line for line in done.output.splitlines() if "step" in line]
    assert row.split() == ["transformer[small-step]", "513", "ms", "not", "sound"]
    assert why == "transformer[small-step], bf16: not sound: busy neighbours"
    assert "no interval" in done.output


def test_markdown_can_have_the_values_of_a_parameter_side_by_side(contrast):
    lines = contrast("--markdown", "--across", "passes").output.splitlines()
    assert lines[0] == (
        "| test | forward: fp32 | forward: bf16 | forward: difference | forward: change "
        "| step: fp32 | step: bf16 | step: difference | step: change |"
    )
    assert lines[2] == "| transformer[small] | 140 ms | 96.5 ms | -43.3 ms | -31.0 % | 513 ms | not sound |  |  |"


def test_json_is_in_seconds_and_says_why_a_side_has_no_time(contrast):
    first, second = json.loads(contrast("--json").output)
    assert (first["base_s"], first["other_s"]) == (0.1398, 0.0965)
    assert first["change"] == pytest.approx(-0.3097, abs=1e-4)
    assert (second["other_s"], second["other_is"]) == (None, "not sound: busy neighbours")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-k", "memcpy"), "no test with precision=fp32 has a twin with precision=bf16 among those with 'memcpy'"),
        (("--across", "passes"), "--across=passes is for --markdown"),
        (("--markdown", "--json"), "--json and --markdown are both given; expected one of them"),
        (("--markdown", "--across", "pases"), "no pair has the parameter --across=pases; expected one of passes, size"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_status_2(contrast, arguments, told):
    done = contrast(*arguments)
    assert done.exit_code == 2
    assert told in done.output


@pytest.mark.parametrize("form", [(), ("--markdown",)], ids=["terminal", "Markdown"])
def test_pairs_of_two_machines_have_a_row_each_that_names_the_machine(make, tmp_path, form):
    runs = []
    for product in ("h200-sxm", "a100-sxm4"):
        keys = [
            make.key("transformer", parameters={"precision": p}, hardware=make.hardware(product=product))
            for p in ("fp32", "bf16")
        ]
        records = [make.measurement(1e-3, key=key, test_id=f"t[{key.label}]") for key in keys]
        runs.append(str(make.save(tmp_path / f"{product}.jsonl", *records)))
    call = ["contrast", *runs, "--by", "precision", "--base", "fp32", "--other", "bf16", *form]
    rows = [line for line in CliRunner().invoke(main, call).output.splitlines() if "1.00 ms" in line]
    assert ["h200-sxm" in row for row in rows] == [True, False]
    assert ["a100-sxm4" in row for row in rows] == [False, True]


def test_a_hostile_id_cannot_leave_its_cell(make, tmp_path):
    records = []
    for precision in ("fp32", "bf16"):
        parameters = {"size": "a|b\x1b[31m", "precision": precision}
        key = make.key("transformer", parameters=parameters)
        records.append(make.measurement(1e-3, key=key))
    run = make.save(tmp_path / "r.jsonl", *records)
    call = ["contrast", str(run), "--by", "precision", "--base", "fp32", "--other", "bf16", "--markdown"]
    row = CliRunner().invoke(main, call).output.splitlines()[2]
    assert "a\\|b" in row
    assert "\x1b" not in row

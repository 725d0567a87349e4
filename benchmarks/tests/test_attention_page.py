"""The page of the attention sweep: what it takes from run files, and what it refuses to show."""

import json

import pytest

from pytest_roofline.core.memory import OutOfMemory
from pytest_roofline.core.work import Work

SIZE = {"d_model": 64, "sequence": 1024}


@pytest.fixture(scope="module")
def attention(program):
    return program("attention_page")


@pytest.fixture
def measured(make):
    """Makes a measurement of the sweep, or of another benchmark by its parameters."""

    def measure(*seconds, benchmark="attention", flops=10**9, **parameters):
        if benchmark == "attention":
            parameters = {"implementation": "eager", "passes": "forward"} | SIZE | parameters
        fields = ("peak_bytes", "held_bytes", "invalid", "round", "samples")
        facts = {name: parameters.pop(name) for name in fields if name in parameters}
        key = make.key(benchmark, parameters=parameters, metric="fp32_TFLOPS", cache="warm")
        return make.measurement(*seconds, key=key, work=Work(flops=flops), **facts)

    return measure


@pytest.fixture
def saved(make, tmp_path):
    """Saves a run with these records, whose tests all passed."""

    def save(*records, name="quiet", footer=True):
        ending = (make.footer(),) if footer else ()
        return make.save(tmp_path / f"{name}.jsonl", *records, *ending)

    return save


@pytest.fixture
def shown(attention, saved, capsys):
    """The page of one run with these records."""

    def show(*records, **options):
        assert attention.main([str(saved(*records, **options))]) == 0
        return capsys.readouterr().out

    return show


def rows_of(text, title):
    """The rows of the table below a title, each as its cells."""
    lines = text.partition(f"### {title}\n")[2].partition("\n#")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")][2:]


def ran_out(test_id, asked=8 * 2**30, benchmark="attention", **parameters):
    parameters = {"implementation": "eager", "passes": "forward"} | SIZE | parameters
    message = "CUDA out of memory. Tried to allocate 8.00 GiB."
    return OutOfMemory(test_id, benchmark, parameters, "label", "p", "cuda:0", message, asked_bytes=asked)


def test_the_sweep_is_printed_as_the_assignment_asks(measured, shown):
    text = shown(
        measured(2e-3, held_bytes=30_000_000, peak_bytes=50_000_000),
        measured(5e-3, passes="backward", peak_bytes=40_000_000),
        measured(1e-3, implementation="compiled"),
    )
    # Inputs: 3 tensors of 8 x 1024 x 64 float32 numbers, 6.3 MB.
    assert rows_of(text, "The sweep, eager") == [["64", "1024", "2.00", "5.00", "36.3", "76.3"]]
    assert rows_of(text, "The sweep, compiled") == [["64", "1024", "1.00", "–", "–", "–"]]


def test_eager_stands_beside_compiled_with_the_ratio_of_one_run(measured, shown):
    text = shown(
        measured(3e-3), measured(2e-3, implementation="compiled"),
        measured(8e-3, passes="backward"),
    )  # fmt: skip
    assert rows_of(text, "The sweep, eager over compiled") == [
        ["64", "1024", "3.00", "2.00", "1.50 ×", "8.00", "–", "–"],
    ]


def test_out_of_memory_stands_where_the_number_would(measured, shown):
    failed = measured(1e-3, sequence=16384, invalid="raised OutOfMemoryError: CUDA out of memory")
    text = shown(
        measured(1e-3), failed, ran_out(failed.test_id, sequence=16384),
        ran_out("t.py::test_b", asked=None, sequence=16384, passes="backward"),
    )  # fmt: skip
    (_, large) = rows_of(text, "The sweep, eager")
    assert large == ["64", "16384", "out of memory, asked for 8.00 GiB", "out of memory", "–", "–"]
    assert "not sound" not in text


def test_what_a_run_says_must_not_be_trusted_has_no_number(measured, shown):
    text = shown(
        measured(3e-3, invalid="other processes kept 1.5 of 2 cores busy"),
        measured(2e-3, implementation="compiled"),
    )
    assert rows_of(text, "The sweep, eager over compiled")[0][2:5] == ["not sound", "2.00", "–"]
    assert "1 of 2 measurements are not sound" in text.replace("\n", " ")
    assert "other processes kept 1.5 of 2 cores busy" in text.replace("\n", " ")


def test_back_ends_are_rates_beside_the_plain_formula(measured, shown):
    key = {"benchmark": "flash_attention_fp32", "causal": True, "sequence": 512}
    text = shown(
        measured(4e-3, name="eager", passes="backward", **key),
        measured(1e-3, name="sdpa_flash", passes="backward", **key),
        measured(5e-3, name="sdpa_math", passes="forward", **key),
        measured(1e-3, name="compiled", passes="forward", **key),
    )
    assert "| pass | mask | sequence | eager, GFLOP/s | sdpa_flash, GFLOP/s | over eager | sdpa_math, GFLOP/s |" in text
    assert rows_of(text, "PyTorch's back ends, float32, 8 heads of 64") == [
        ["forward", "causal", "512", "–", "–", "–", "200", "–"],
        ["backward", "causal", "512", "250", "1000", "4.00 ×", "–", "–"],
    ]
    assert "The sweep, eager" not in text


def test_the_numbers_of_others_name_their_hardware_and_claim_nothing(attention, measured, shown):
    text = shown(measured(1e-3))
    flat = text.replace("\n", " ")
    assert "there is no claim that they are comparable" in flat
    a100 = rows_of(text, "NVIDIA A100; which of them is not said")
    assert a100[4] == ["16", "16384", "out of memory", "–", "–", "–", "76.4", "152.45", "17534.6", "344.2"]
    small = rows_of(text, "An NVIDIA GPU of the Ampere generation with 8 GB, not named")
    assert small[11] == ["64", "1024", "0.5135", "2.0453", "239.36"]
    assert "those times are of launches" in flat


def test_every_published_row_is_whole(attention):
    for source in json.loads(attention.PUBLISHED.read_text(encoding="utf-8")):
        assert {len(row) for row in source["rows"]} == {len(source["columns"])}
        assert [tuple(row[:2]) for row in source["rows"]] == [
            (d_model, sequence) for d_model in (16, 32, 64, 128) for sequence in (256, 1024, 4096, 8192, 16384)
        ]
        assert source["hardware"]


def test_runs_that_cannot_be_used_are_refused(attention, measured, saved, capsys, tmp_path):
    other = saved(measured(1e-3, benchmark="memcpy_d2d", size_bytes=4096))
    assert attention.main([str(other)]) == 2
    assert "holds nothing of attention or flash_attention_fp32" in capsys.readouterr().err
    assert attention.main([str(tmp_path / "none.jsonl")]) == 2
    assert "does not exist" in capsys.readouterr().err

"""What may go out, and what may not."""

from dataclasses import replace

import pytest

from pytest_roofline.baselines.runs import encode_line, read_run
from pytest_roofline.core.errors import BadInput, OtherHardware
from pytest_roofline.core.memory import OutOfMemory
from pytest_roofline.core.records import Outcome
from pytest_roofline.core.resources import ResourceKey, Resources
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.exchange import read
from pytest_roofline.exchange.building import build, save
from pytest_roofline.exchange.export import NAMES, export
from pytest_roofline.exchange.export.choosing import exportable
from pytest_roofline.exchange.records import Given


@pytest.fixture
def kept(make, tmp_path):
    """What a run of these records gives out, and what it keeps, each by label."""

    def kept(*records, **changes):
        fit, left_out = exportable([make.run(tmp_path / "run.jsonl", *records, **changes)])
        return {one.row.label: one for one in fit}, {one.label: one for one in left_out}

    return kept


LABEL = "memcpy_d2d[64MiB]"


def labelled(make, *labels):
    return make.measurement(samples=Samples((1e-3,), iterations=10, tick_s=1e-9, labels=labels))


@pytest.mark.parametrize("label", ["oversubscribed", "replaced", "profiled"])
def test_what_was_not_measured_as_it_runs_stays_at_home(kept, make, label):
    fit, left_out = kept(labelled(make, label))
    assert ({}, True) == (fit, left_out[LABEL].measured)
    words = {"oversubscribed": "more ranks than cores", "replaced": "had been replaced", "profiled": "a profiler"}
    assert words[label] in left_out[LABEL].reason


def test_an_invalid_number_stays_at_home_with_its_reason(kept, make):
    fit, left_out = kept(make.measurement(invalid="above the datasheet's peak"))
    assert ({}, "above the datasheet's peak") == (fit, left_out[LABEL].reason)


def test_a_number_that_its_verdict_calls_invalid_stays_at_home(kept, make, judged):
    measurement = make.measurement()
    fit, left_out = kept(measurement, judged(measurement, "INVALID", reason="this is host-bound, the baseline is not"))
    assert ({}, "this is host-bound, the baseline is not") == (fit, left_out[LABEL].reason)


def test_a_test_with_wrong_data_stays_at_home(kept, make):
    measurement = make.measurement()
    fit, left_out = kept(measurement, make.outcome(measurement, "failed", reason="WrongData: element 7 is 0"))
    assert ({}, "its test failed: WrongData: element 7 is 0") == (fit, left_out[LABEL].reason)


def test_a_test_that_is_only_slower_goes_out(kept, make, judged):
    measurement = make.measurement(2e-3)
    ended = make.outcome(measurement, "failed", verdicts=("REGRESSED",), reason="slower", by_verdict=True)
    fit, left_out = kept(measurement, judged(measurement, "REGRESSED"), ended)
    assert (2e-3, {}) == (fit[LABEL].seconds, left_out)


def test_a_test_that_a_killed_run_did_not_end_stays_at_home(kept, make):
    fit, left_out = kept(make.measurement(), ended=False)
    assert ({}, "its test did not come to its end") == (fit, left_out[LABEL].reason)


def test_a_process_that_cannot_be_trusted_is_behind_no_number(kept, processes, make):
    sound = processes([1e-3], [1.1e-3])
    broken = make.measurement(9.0, process="process-9", invalid="busy neighbours")
    fit, left_out = kept(*sound, broken)
    assert ((1e-3, 1.1e-3), {}) == (fit[LABEL].rounds_s, left_out)


def test_of_the_attempts_of_a_process_the_slowest_counts(kept, make):
    fit, _ = kept(make.measurement(1e-3), make.measurement(1.2e-3))
    assert (1.2e-3,) == fit[LABEL].rounds_s


def test_blocks_that_do_not_count_are_behind_no_number(kept, make):
    samples = Samples((1.0, 1e-3, 2e-3), 10, 1e-9, blocks=(Block(1, "neighbours"), Block(1), Block(1)))
    fit, _ = kept(make.measurement(samples=samples))
    assert (1e-3, 2e-3) == fit[LABEL].rounds_s


def test_bounds_are_the_medians_of_processes_and_hold_the_centre(kept, processes, judged):
    measurements = processes([1e-3, 5e-3, 1e-3], [1.2e-3], [1.1e-3])
    fit, _ = kept(*measurements, judged(measurements[0], processes=3, new_s=1.3e-3))
    assert (1.3e-3, (1e-3, 1.3e-3)) == (fit[LABEL].seconds, fit[LABEL].bounds_s)


def test_bounds_of_a_single_process_are_the_medians_of_its_blocks(kept, make):
    samples = Samples((1e-3, 3e-3, 2e-3, 5e-3), 10, 1e-9, blocks=(Block(3), Block(1)))
    fit, _ = kept(make.measurement(samples=samples))
    assert (2e-3, 5e-3) == fit[LABEL].bounds_s


def test_a_single_median_has_no_bounds(kept, make):
    fit, _ = kept(make.measurement(1e-3))
    assert fit[LABEL].bounds_s is None


def test_what_has_no_time_is_said_and_not_counted_as_a_number(kept):
    key = ResourceKey("flash", {}, "sm_90")
    kernel = Resources(key, "test_f.py::test_flash", "flash@sm_90", "process-1", {"registers": 40})
    ran_out = OutOfMemory("test_o.py::test_o", "o", {}, "o", "process-1", "cpu", "tried to allocate 2.00 GiB")
    skipped = Outcome("test_s.py::test_s", "skipped", reason="needs 2 GPUs, found 1")
    failed = Outcome("test_e.py::test_e", "failed", reason="ValueError")
    _, left_out = kept(kernel, ran_out, skipped, failed)
    reasons = {label: (one.reason, one.measured) for label, one in left_out.items()}
    assert {
        "flash@sm_90": ("a compiled kernel has no time", False),
        "o": ("memory ran out: tried to allocate 2.00 GiB", False),
        "test_s": ("its test was skipped: needs 2 GPUs, found 1", False),
        "test_e": ("its test failed: ValueError", False),
    } == reasons


def test_a_test_that_measures_nothing_and_passes_is_not_missed(kept):
    assert ({}, {}) == kept(Outcome("test_x.py::test_plain", "passed"))


@pytest.mark.parametrize(
    ("names", "endings"),
    [
        (("", "backward"), ("", ".backward")),
        # The first goes by the test whatever its name, as pytest-benchmark has it live.
        (("forward", "backward"), ("", ".backward")),
        (("forward", "", "backward"), ("", ".2", ".backward")),
    ],
)
def test_every_measurement_of_a_test_but_the_first_has_its_name_behind_the_node_id(kept, make, names, endings):
    test_id = "test_m.py::test_m[64MiB]"
    fit, _ = kept(*(make.measurement(key=make.key(name=name), test_id=test_id) for name in names))
    assert [test_id + ending for ending in endings] == [one.name for one in fit.values()]


def test_the_first_is_that_of_the_test_also_where_it_stays_at_home(kept, make):
    test_id = "test_m.py::test_m"
    broken = make.measurement(key=make.key(name="forward"), test_id=test_id, invalid="busy neighbours")
    fit, _ = kept(broken, make.measurement(key=make.key(name="backward"), test_id=test_id))
    assert [f"{test_id}.backward"] == [one.name for one in fit.values()]


@pytest.mark.parametrize("name", NAMES)
def test_runs_of_several_hardware_are_refused(make, tmp_path, name):
    other = make.measurement(key=make.key(hardware=make.hardware(product="h100-sxm")))
    runs = [make.run(tmp_path / "a.jsonl", make.measurement()), make.run(tmp_path / "b.jsonl", other)]
    with pytest.raises(OtherHardware, match=r"a\.jsonl of h200-sxm, 141gb; .*b\.jsonl of h100-sxm.*into its own file"):
        export(runs, name)


@pytest.mark.parametrize("name", NAMES)
def test_a_test_in_two_runs_is_refused(make, tmp_path, name):
    runs = [make.run(tmp_path / f"{letter}.jsonl", make.measurement()) for letter in "ab"]
    with pytest.raises(BadInput, match=r"stands twice in .*a\.jsonl and .*b\.jsonl; expected each measurement once"):
        export(runs, name)


@pytest.mark.parametrize("name", NAMES)
def test_tests_of_several_runs_go_out_together(make, tmp_path, name):
    runs = [
        make.run(tmp_path / f"{size}.jsonl", make.measurement(key=make.key(size_bytes=size * 2**20)))
        for size in (1, 64)
    ]
    assert 2 == len(export(runs, name).names)


def test_what_is_left_out_of_one_run_may_stand_in_another(make, tmp_path):
    broken = make.run(tmp_path / "a.jsonl", make.measurement(invalid="busy neighbours"))
    done = export([broken, make.run(tmp_path / "b.jsonl", make.measurement())], "bencher")
    assert ((LABEL,), [LABEL]) == (done.names, [one.label for one in done.left_out])


def test_a_format_that_is_none_is_refused_with_those_that_are(make, tmp_path):
    with pytest.raises(BadInput, match=r"--to is 'junit'; expected one of pytest-benchmark, github-action-benchmark, "):
        export([make.run(tmp_path / "a.jsonl", make.measurement())], "junit")


STREAM = """Using HIP device AMD Instinct MI300X
Driver: 60241133
function,num_times,n_elements,sizeof,max_mbytes_per_sec,min_runtime,max_runtime,avg_runtime
Triad,50,268435456,8,3.94806e+06,0.0016318,0.0018,{mean}
"""


def test_two_files_of_another_tool_are_two_processes_under_one_name(tmp_path):
    given = Given()
    read_files = [
        one
        for name, mean in (("a.csv", 0.00166), ("b.csv", 0.0017))
        for one in read(STREAM.format(mean=mean).encode(), name, given)
    ]
    path = tmp_path / "imported.jsonl"
    save(build(read_files, given, "imported", "pytest-roofline", ("roofline", "import", "a.csv", "b.csv")), path)
    fit, left_out = exportable([read_run(path)])
    mean = next(one for one in fit if one.measurement.key.name == "mean")
    assert ("babelstream.triad[2GiB-fp64].mean", (0.00166, 0.0017)) == (mean.name, mean.rounds_s)
    assert ((0.00166, 0.0017), 3, []) == (mean.bounds_s, len(fit), left_out)
    assert 3 == len(export([read_run(path)], "bencher").document)


def test_a_file_of_another_tool_with_wrong_data_stays_at_home_and_the_other_goes_out(make, tmp_path):
    right, wrong = (make.measurement(test_id=f"{name}.log::x", process=name, verified=None) for name in "ab")
    wrong = replace(wrong, invalid="5 elements are wrong")
    header = replace(make.header(), command=("roofline", "import", "a.log", "b.log"))
    path = tmp_path / "imported.jsonl"
    path.write_text("".join(map(encode_line, (header, right, wrong, make.outcome(right), make.outcome(wrong)))))
    fit, left_out = exportable([read_run(path)])
    assert [("a",)] == [tuple(process.process for process in one.processes) for one in fit]
    assert ["5 elements are wrong"] == [one.reason for one in left_out]

import errno
import io
import json
import os
from pathlib import Path

import pytest

from pytest_roofline.baselines.run_files import RunWriter, make_run_folder, refuse_existing, run_path
from pytest_roofline.baselines.runs import encode_line, new_run_id, read_run
from pytest_roofline.core.errors import BadFile, BadInput, CannotStore
from pytest_roofline.core.records import Judgement, SessionRecord, SpreadRecord
from pytest_roofline.core.samples import Block, Calibration, Samples

# Runs of before there were blocks, calibrations and modes; they are read like any other.
OLD_RUNS = sorted((Path(__file__).parent / "data").glob("run-before-*.jsonl"))
JUDGEMENT = Judgement(
    test_id="test_memcpy.py::test_memcpy_d2d[64MiB]",
    label="memcpy_d2d[64MiB]",
    verdict="INCONCLUSIVE",
    tolerance=0.05,
    reason="may be -1.0 to +9.0 % after 3 processes",
    estimate=0.04,
    interval=(-0.01, 0.09),
    error=0.02,
    freedom=12.0,
    p=0.2,
    p_adjusted=0.4,
    mde=0.07,
    reach=0.06,
    processes=3,
    new_s=1.04e-3,
    reference_s=1e-3,
    source="h200.json",
    reference=(SessionRecord((1e-3, 1.1e-3), "GPU-1", "2026-01-02T03:04:05Z"), SessionRecord((9e-4,))),
    process_spread=SpreadRecord(0.01, "estimated", 12.0),
    session_spread=SpreadRecord(0.005, "prior, 1 session"),
    device_spread=SpreadRecord(0.04, "prior, 1 device"),
    unequal=True,
    remarks=("driver 550.54 → 570.86",),
)
CALIBRATION = Calibration("cuda:0", 5e-7, 1e-6, 2e-6, 1e-7, spin_hz=1.9e9, queue_depth=1023, process="process-1")


class FullDisk(io.StringIO):
    """A file on a disk that has no room left."""

    def flush(self):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def _temporary_files_stay_in_the_test(tmp_path, monkeypatch):
    (tmp_path / "system-tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "system-tmp"))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / ".roofline"


def test_a_run_reads_back_as_it_was_written(make, tmp_path):
    measurement = make.measurement(1.0, 2.0)
    run = make.run(tmp_path / "r.jsonl", measurement, make.outcome(measurement), make.footer())
    assert (measurement,) == run.measurements
    assert (make.outcome(measurement),) == run.outcomes
    assert make.footer() == run.footer
    assert make.header("r") == run.header
    assert not run.cut


def test_a_line_is_on_disk_as_soon_as_it_is_written(make, folder):
    writer = RunWriter(folder, "r")
    writer.write(make.header())
    for count in (1, 2, 3):
        writer.write(make.measurement())
        assert count == len(read_run(writer.path).measurements)
    writer.close()


def test_a_line_holds_the_rates_that_a_reader_would_work_out(make):
    line = json.loads(encode_line(make.measurement(1e-3)))
    assert line["derived"]["traffic_GBps"] == pytest.approx(2 * 64 * 2**20 / 1e-3 / 1e9)


def test_a_record_takes_one_line_whatever_its_texts(make):
    assert encode_line(make.measurement(label="two\nlines\r\u2028")).count("\n") == 1


def expected_measurements(lines, cut):
    """How many measurements a file cut after `cut` bytes still holds whole; a missing newline loses nothing."""
    end = whole = 0
    for line in lines:
        end += len(line)
        whole += cut >= end - 1 and b'"type": "measurement"' in line
    return whole


@pytest.mark.parametrize("label", ["memcpy_d2d[64MiB]", "cópia[µ…64MiB]"])
def test_a_run_cut_at_any_byte_keeps_every_finished_measurement(make, tmp_path, label):
    one, other = make.measurement(1.0, label=label), make.measurement(2.0, 3.0, label=label, process="process-2")
    path = make.save(tmp_path / "r.jsonl", one, make.outcome(one), other, make.footer())
    lines = path.read_bytes().splitlines(keepends=True)
    whole = b"".join(lines)
    lost = {}
    for cut in range(len(lines[0]) - 1, len(whole) + 1):
        path.write_bytes(whole[:cut])
        try:
            found = len(read_run(path).measurements)
        except BadFile as error:
            found = str(error)
        if found != expected_measurements(lines, cut):
            lost[cut] = found
    assert lost == {}


def test_a_run_cut_inside_its_header_is_refused_at_any_byte(make, tmp_path):
    path = make.save(tmp_path / "r.jsonl", make.measurement())
    header = path.read_bytes().splitlines()[0]
    for cut in range(len(header)):
        path.write_bytes(header[:cut])
        with pytest.raises(BadFile) as error:
            read_run(path)
        assert str(path) in str(error.value)


def test_a_cut_last_line_is_said(make, tmp_path):
    path = make.save(tmp_path / "r.jsonl", make.measurement())
    path.write_bytes(path.read_bytes()[:-10])
    assert read_run(path).cut


def test_a_damaged_line_in_the_middle_names_file_and_line(make, tmp_path):
    path = make.save(tmp_path / "r.jsonl", make.measurement(), make.measurement())
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:-5], lines[2]]) + "\n")
    with pytest.raises(BadFile, match=f"run file {path}, line 2 is not JSON"):
        read_run(path)


def damaged(make, path, number, **changes):
    lines = make.save(path, make.measurement(), make.footer()).read_text().splitlines()
    lines[number] = json.dumps(json.loads(lines[number]) | changes)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(BadFile) as error:
        read_run(path)
    return str(error.value).replace(str(path), "FILE")


def test_an_unknown_field_names_file_line_and_field(make, tmp_path):
    said = damaged(make, tmp_path / "r.jsonl", 1, surprise=1)
    assert said == "run file FILE, line 2: Object contains unknown field `surprise`"


def test_another_schema_version_of_a_run_is_refused(make, tmp_path):
    said = damaged(make, tmp_path / "r.jsonl", 0, schema=99, future_field=1)
    assert said == "run file FILE, line 1 has schema version 99; this pytest-roofline reads version 1"


@pytest.mark.parametrize("kind", ["surprise", None, 1, [], {}])
def test_a_line_of_unknown_type_is_refused(make, tmp_path, kind):
    assert damaged(make, tmp_path / "r.jsonl", 1, type=kind).startswith(f"run file FILE, line 2 has type {kind!r};")


def test_a_second_header_is_refused(make, tmp_path):
    path = make.save(tmp_path / "r.jsonl", make.header("again"))
    with pytest.raises(BadFile, match="has two headers; expected one run a file"):
        read_run(path)


def test_a_run_without_its_header_is_refused(make, tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text(encode_line(make.measurement()))
    with pytest.raises(BadFile, match="starts with a measurement; expected its header"):
        read_run(path)


def test_a_run_with_no_number_for_a_sample_is_refused(make, tmp_path):
    path = make.save(tmp_path / "r.jsonl", make.measurement(1.25))
    path.write_text(path.read_text().replace('"seconds": [1.25]', '"seconds": [NaN]'))
    with pytest.raises(BadFile, match="line 2 holds NaN, which is no number"):
        read_run(path)


def test_a_rerun_that_passes_does_not_undo_a_failure(make, tmp_path):
    measurement = make.measurement()
    failed = make.outcome(measurement, "failed")
    run = make.run(tmp_path / "r.jsonl", failed, make.outcome(measurement))
    assert run.not_passed == {measurement.test_id: failed}


def test_a_measurement_whose_test_never_ended_is_unfit(make, tmp_path):
    # Killed between its measuring and its last assertion: nobody knows whether it would have passed.
    measurement = make.measurement()
    run = make.run(tmp_path / "r.jsonl", measurement, ended=False)
    assert run.unfit(measurement, accept_slower=True) == "its test did not come to its end"


def test_a_measurement_whose_test_failed_for_having_no_baseline_is_fit(make, tmp_path):
    measurement = make.measurement()
    failed = make.outcome(measurement, "failed", verdicts=("NO BASELINE",), by_verdict=True)
    run = make.run(tmp_path / "r.jsonl", measurement, failed)
    assert run.unfit(measurement, accept_slower=False) == ""


def test_a_measurement_whose_test_was_skipped_after_all_is_unfit(make, tmp_path):
    measurement = make.measurement()
    run = make.run(tmp_path / "r.jsonl", measurement, make.outcome(measurement, "skipped"))
    assert run.unfit(measurement, accept_slower=True) == "its test was skipped"


def test_a_measurement_whose_test_failed_is_unfit(make, tmp_path):
    measurement = make.measurement()
    run = make.run(tmp_path / "r.jsonl", measurement, make.outcome(measurement, "failed", reason="wrong data"))
    assert run.unfit(measurement, accept_slower=True) == "its test failed: wrong data"


def test_an_invalid_measurement_is_unfit_for_its_own_reason(make, tmp_path):
    measurement = make.measurement(invalid="wrong data")
    run = make.run(tmp_path / "r.jsonl", measurement, make.outcome(measurement))
    assert run.unfit(measurement, accept_slower=True) == "wrong data"


@pytest.mark.parametrize(("accept_slower", "why"), [(True, ""), (False, "its test failed: slower")])
def test_a_test_that_was_only_slower_is_fit_where_a_person_accepts_it(make, tmp_path, accept_slower, why):
    measurement = make.measurement()
    outcome = make.outcome(measurement, "failed", reason="slower", by_verdict=True)
    assert why == make.run(tmp_path / "r.jsonl", outcome).unfit(measurement, accept_slower)


@pytest.mark.parametrize("name", ["./r", "a/r.jsonl", "/tmp/r", "r.json", "r.jsonl"])
def test_what_has_a_slash_or_a_suffix_of_ours_is_a_path(folder, name):
    assert name.removeprefix("./") == str(run_path(name, folder))


def test_anything_else_is_the_name_of_a_saved_run(folder):
    assert folder / "runs" / "driver-550.jsonl" == run_path("driver-550", folder)


@pytest.mark.parametrize("name", ["", "..", "a b", ".r"])
def test_a_name_that_no_run_can_have_is_refused(folder, name):
    with pytest.raises(BadInput, match="run name is"):
        run_path(name, folder)


def test_two_runs_at_once_do_not_share_a_name():
    assert str(os.getpid()) in new_run_id()


def test_the_folder_of_runs_ignores_itself_in_git(folder):
    make_run_folder(folder)
    assert (folder / "runs" / ".gitignore").read_text() == "*\n"


def test_a_gitignore_of_the_users_own_is_kept(folder):
    folder.mkdir()
    (folder / ".gitignore").write_text("mine\n")
    make_run_folder(folder)
    assert (folder / ".gitignore").read_text() == "mine\n"


def test_a_name_that_is_taken_is_refused_with_the_run_that_has_it(make, folder):
    path = make.save(folder / "runs" / "r.jsonl")
    with pytest.raises(CannotStore, match=f"a run named 'r' is already saved as {path}; choose another name"):
        refuse_existing(folder, "r")


def test_a_name_that_is_free_is_not_refused(folder):
    refuse_existing(folder, "r")


def test_a_run_that_appears_meanwhile_is_never_overwritten(make, folder):
    path = make.save(folder / "runs" / "r.jsonl", make.measurement())
    before = path.read_bytes()
    writer = RunWriter(folder, "r")
    writer.write(make.header())
    writer.close()
    assert before == path.read_bytes()
    assert f"the run could not be saved as {path}: File exists; saved as {writer.path} instead" in writer.trouble


def test_a_run_whose_folder_is_a_file_goes_on_under_the_systems_temporary_folder(make, folder, tmp_path):
    folder.write_text("not a folder")
    writer = RunWriter(folder, "r")
    for record in (make.header(), make.measurement(), make.measurement()):
        writer.write(record)
    writer.close()
    assert tmp_path / "system-tmp" == writer.path.parent.parent
    assert len(read_run(writer.path).measurements) == 2
    assert writer.trouble.endswith(f"saved as {writer.path} instead, choose another place with --roofline-dir")


def test_a_disk_that_fills_up_moves_the_whole_run_elsewhere(make, folder, tmp_path):
    writer = RunWriter(folder, "r")
    for record in (make.header(), make.measurement(1.0)):
        writer.write(record)
    writer._file.close()
    writer._file = FullDisk()
    writer.write(make.measurement(2.0))
    writer.close()
    assert [measurement.median_s for measurement in read_run(writer.path).measurements] == [1.0, 2.0]
    assert tmp_path / "system-tmp" in writer.path.parents
    assert "No space left on device" in writer.trouble


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which only Linux has")  # noqa: PTH110
def test_a_disk_that_is_full_from_the_start_moves_the_run_elsewhere(make, folder, monkeypatch):
    writer = RunWriter(folder, "r")
    writer.write(make.header())
    writer._file.close()
    writer._file = open("/dev/full", "w", encoding="utf-8", buffering=1)  # noqa: PTH123, SIM115
    writer.write(make.measurement())
    assert len(read_run(writer.path).measurements) == 1
    writer.close()


def test_a_run_that_can_be_saved_nowhere_says_so_and_goes_on(make, folder, tmp_path, monkeypatch):
    folder.write_text("not a folder")
    (tmp_path / "system-tmp").rmdir()
    writer = RunWriter(folder, "r")
    for record in (make.header(), make.measurement()):
        writer.write(record)
    writer.close()
    assert writer.path is None
    assert writer.trouble.endswith(
        "its measurements are printed here and nowhere else, choose another place with --roofline-dir"
    )


def test_a_second_failure_ends_in_memory_without_a_second_folder(make, folder, tmp_path):
    folder.write_text("not a folder")
    writer = RunWriter(folder, "r")
    writer.write(make.header())
    writer._file.close()
    writer._file = FullDisk()
    writer.write(make.measurement())
    writer.close()
    assert writer.path is None
    assert len(list((tmp_path / "system-tmp").iterdir())) == 1


def test_what_stamps_cost_reads_back_as_it_was_written(make, tmp_path):
    bare = Calibration("cpu", 1e-9, 0.0, 1e-7, 1e-7, process="process-2")
    run = make.run(tmp_path / "r.jsonl", CALIBRATION, make.measurement(), bare)
    assert run.calibrations == (CALIBRATION, bare)


def test_blocks_and_the_way_of_timing_read_back_as_they_were_written(make, tmp_path):
    blocks = (Block(2, "host gap", 1.9e9, True), Block(1), Block(1, power_capped=False))
    how = {"mode": "graph", "overhead_s": 1e-7, "wall_s": 3.0, "neighbours": "seen", "throttle_known": True}
    samples = Samples((1.0, 2.0, 3.0, 4.0), 10, 1e-9, blocks=blocks, **how)
    assert make.run(tmp_path / "r.jsonl", make.measurement(samples=samples)).measurements[0].samples == samples


@pytest.mark.parametrize("mode", ["events", "graph", "host"])
def test_the_way_of_timing_reads_back_whatever_it_is(make, tmp_path, mode):
    samples = Samples((1.0,), 1, 1e-9, mode=mode)
    assert make.run(tmp_path / "r.jsonl", make.measurement(samples=samples)).measurements[0].samples.mode == mode


def refused(make, path, record, where=(), **changes):
    """What is said of a run whose second line is `record` with changes at the path `where`; None removes a field."""
    raw = json.loads(encode_line(record))
    place = raw
    for name in where:
        place = place[name]
    place.update(changes)
    for name in [name for name, value in changes.items() if value is None]:
        del place[name]
    header = make.save(path).read_text()
    path.write_text(header + json.dumps(raw) + "\n")
    with pytest.raises(BadFile) as error:
        read_run(path)
    assert "\n" not in str(error.value)
    return str(error.value).replace(str(path), "FILE")


@pytest.mark.parametrize("field", ["device", "tick_s", "event_pair_s", "record_host_s", "call_host_s"])
def test_a_calibration_that_lacks_a_field_is_refused_with_its_name(make, tmp_path, field):
    said = refused(make, tmp_path / "r.jsonl", CALIBRATION, **{field: None})
    assert said.startswith("run file FILE, line 2: ")
    assert f"`{field}`" in said


@pytest.mark.parametrize(
    ("field", "value"),
    [("surprise", 1), ("tick_s", "1e-9"), ("spin_hz", "fast"), ("queue_depth", 1.5), ("process", 7), ("device", [])],
)
def test_a_calibration_with_a_field_of_another_kind_is_refused_with_its_name(make, tmp_path, field, value):
    assert field in refused(make, tmp_path / "r.jsonl", CALIBRATION, **{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tick_s", -1e-9),
        ("event_pair_s", -1e-9),
        ("record_host_s", -1e-9),
        ("call_host_s", -1e-9),
        ("spin_hz", 0.0),
        ("spin_hz", -1e9),
        ("queue_depth", -1),
    ],
)
def test_a_calibration_that_cannot_be_is_refused(make, tmp_path, field, value):
    assert field in refused(make, tmp_path / "r.jsonl", CALIBRATION, **{field: value})


def test_blocks_that_do_not_add_up_are_refused_with_file_and_line(make, tmp_path):
    measurement = make.measurement(samples=Samples((1.0, 2.0), 1, 1e-9, blocks=(Block(2),)))
    said = refused(make, tmp_path / "r.jsonl", measurement, ["samples"], blocks=[{"samples": 3}])
    assert said.startswith("run file FILE, line 2: the blocks hold 3 samples; expected the 2 that were taken")


@pytest.mark.parametrize(
    ("field", "value"), [("mode", "guess"), ("neighbours", "maybe"), ("blocks", [{"samples": 1, "surprise": 1}])]
)
def test_a_way_of_timing_that_is_unknown_is_refused(make, tmp_path, field, value):
    assert field in refused(make, tmp_path / "r.jsonl", make.measurement(1.0), ["samples"], **{field: value})


def test_a_judgement_reads_back_as_it_was_written(make, tmp_path):
    bare = Judgement("test_id", "label", "NO BASELINE", 0.05)
    run = make.run(tmp_path / "r.jsonl", make.measurement(), JUDGEMENT, bare, make.footer())
    assert run.judgements == (JUDGEMENT, bare)
    assert (len(run.measurements), run.footer) == (1, make.footer())


def test_a_judgement_is_a_line_of_its_own_type():
    """In the file's words: nothing that JSON does not know."""
    line = json.loads(encode_line(JUDGEMENT))
    assert (line["type"], line["verdict"], line["interval"]) == ("judgement", "INCONCLUSIVE", [-0.01, 0.09])
    # A spread that is taken as known has no degrees of freedom in the file.
    assert "freedom" not in line["session_spread"] or line["session_spread"]["freedom"] is None


def test_a_run_of_before_there_were_judgements_has_none():
    assert all(read_run(path).judgements == () for path in OLD_RUNS)


@pytest.mark.parametrize("field", ["test_id", "label", "verdict", "tolerance"])
def test_a_judgement_that_lacks_a_field_is_refused_with_its_name(make, tmp_path, field):
    said = refused(make, tmp_path / "r.jsonl", JUDGEMENT, **{field: None})
    assert said.startswith("run file FILE, line 2: ")
    assert f"`{field}`" in said


@pytest.mark.parametrize(
    ("field", "value"),
    [("surprise", 1), ("interval", [1.0]), ("estimate", "slow"), ("reference", [{"surprise": 1}]), ("remarks", "x")],
)
def test_a_judgement_with_a_field_of_another_kind_is_refused_with_its_name(make, tmp_path, field, value):
    assert field in refused(make, tmp_path / "r.jsonl", JUDGEMENT, **{field: value})


def test_a_judgement_does_not_make_a_measurement_unfit(make, tmp_path):
    """The outcome of its test does; a verdict alone says nothing of the number."""
    measurement = make.measurement()
    run = make.run(tmp_path / "r.jsonl", measurement, JUDGEMENT)
    assert run.unfit(measurement, accept_slower=False) == ""


def test_a_run_of_before_there_were_blocks_reads_with_the_medians_that_it_had():
    for path in OLD_RUNS:
        told = [json.loads(line) for line in path.read_text().splitlines()]
        medians = [line["derived"]["median_s"] for line in told if line["type"] == "measurement"]
        run = read_run(path)
        assert [measurement.median_s for measurement in run.measurements] == medians, path
        assert (run.cut, run.calibrations) == (False, ()), path


def test_there_are_runs_of_before_there_were_blocks():
    assert OLD_RUNS


def test_a_run_of_before_there_were_modes_claims_none():
    """Or a regression against it would be told as `timed by events → host`, where nothing has changed."""
    assert {m.samples.comparable().get("timed by") for m in read_run(OLD_RUNS[0]).measurements} == {None}


def test_a_test_of_which_most_processes_were_invalid_is_unfit_as_a_whole(make, tmp_path):
    """As the run itself judged it: the few sound ones stand for nothing."""
    key = make.key()
    sound = [make.measurement(key=key, process=f"sound-{index}") for index in range(2)]
    bad = [make.measurement(key=key, process=f"bad-{index}", invalid="neighbours") for index in range(3)]
    few = make.run(tmp_path / "few.jsonl", *sound, *bad)
    assert few.unfit(sound[0], accept_slower=False) == "3 of its 5 processes were invalid"
    many = make.run(tmp_path / "many.jsonl", *sound, *bad[:2])
    assert many.unfit(sound[0], accept_slower=False) == ""

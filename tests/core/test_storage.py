import copy
import dataclasses
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_roofline.core.entries import OUT_OF_MEMORY, Baseline, Entry, Session
from pytest_roofline.core.errors import BadFile, BadInput
from pytest_roofline.core.facts import DeviceFacts, Environment, HardwareKey, HostFacts
from pytest_roofline.core.keys import CACHES, TIMINGS, Key
from pytest_roofline.core.records import Ceiling, Footer, Header, Measurement, Outcome
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.storage import check_name, decode_json, read_bytes, to_plain, to_record
from pytest_roofline.core.work import Work

WHERE = "run file r.jsonl, line 2"
KINDS = {"header": Header, "measurement": Measurement, "outcome": Outcome, "footer": Footer, "baseline": Baseline}


def records(make):
    measurement = make.measurement(ceiling=Ceiling("traffic_GBps", 4.8e12, "datasheet", "vendor"), verified=True)
    return {
        "header": make.header(),
        "measurement": measurement,
        "outcome": make.outcome(measurement),
        "footer": make.footer(not_measured={"needs a GPU": 2}),
        "baseline": Baseline("h200", (make.measured(tolerance=0.1), make.published(value=(1.0, 2.0)))),
    }


def plain(make, kind):
    return json.loads(json.dumps(to_plain(records(make)[kind])))


def at(raw, path):
    for step in path:
        raw = raw[step]
    return raw


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_reads_back_as_it_was_written(make, kind):
    assert records(make)[kind] == to_record(plain(make, kind), KINDS[kind], WHERE)


@pytest.mark.parametrize(
    ("kind", "path", "shown"),
    [
        ("header", [], ""),
        ("header", ["environment"], "$.environment"),
        ("header", ["environment", "device"], "$.environment.device"),
        ("header", ["environment", "host"], "$.environment.host"),
        ("measurement", [], ""),
        ("measurement", ["key"], "$.key"),
        ("measurement", ["key", "hardware"], "$.key.hardware"),
        ("measurement", ["work"], "$.work"),
        ("measurement", ["samples"], "$.samples"),
        ("measurement", ["ceiling"], "$.ceiling"),
        ("outcome", [], ""),
        ("footer", [], ""),
        ("baseline", [], ""),
        ("baseline", ["entries", 1], "$.entries[1]"),
        ("baseline", ["entries", 0, "hardware"], "$.entries[0].hardware"),
        ("baseline", ["entries", 0, "work"], "$.entries[0].work"),
        ("baseline", ["entries", 0, "sessions", 0], "$.entries[0].sessions[0]"),
    ],
)
def test_an_unknown_field_is_refused_at_every_level(make, kind, path, shown):
    raw = plain(make, kind)
    at(raw, path)["surprise"] = 1
    with pytest.raises(BadFile) as error:
        to_record(raw, KINDS[kind], WHERE)
    place = f" - at `{shown}`" if shown else ""
    assert str(error.value) == f"{WHERE}: Object contains unknown field `surprise`{place}"


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("header", ["run_id"], 1),
        ("header", ["command"], "pytest"),
        ("header", ["environment"], None),
        ("header", ["environment", "device", "pcie_width"], "16"),
        ("header", ["environment", "host", "cores"], 1.5),
        ("header", ["environment", "software"], ["torch"]),
        ("measurement", ["key", "parameters"], [1]),
        ("measurement", ["key", "parameters", "size_bytes"], [1]),
        ("measurement", ["key", "cache"], "cold"),
        ("measurement", ["key", "timing"], "cpu"),
        ("measurement", ["key", "hardware", "devices"], "1"),
        ("measurement", ["work", "read_bytes"], "1"),
        ("measurement", ["work", "read_bytes"], -1),
        ("measurement", ["work", "read_bytes"], 1.5),
        ("measurement", ["samples", "seconds"], "1"),
        ("measurement", ["samples", "seconds"], 1.0),
        ("measurement", ["samples", "seconds"], [None]),
        ("measurement", ["samples", "seconds"], [-1.0]),
        ("measurement", ["samples", "seconds"], [0]),
        ("measurement", ["samples", "seconds"], []),
        ("measurement", ["samples", "iterations"], 0),
        ("measurement", ["gate"], "yes"),
        ("measurement", ["gate"], 1),
        ("measurement", ["ceiling", "source"], "guess"),
        ("measurement", ["ceiling", "value"], -1.0),
        ("outcome", ["outcome"], "broken"),
        ("outcome", ["verdicts"], "PASSED"),
        ("footer", ["exit_status"], "0"),
        ("footer", ["not_measured"], {"why": "one"}),
        ("baseline", ["family"], 1),
        ("baseline", ["entries"], {}),
        ("baseline", ["entries", 0], None),
        ("baseline", ["entries", 0, "kind"], "guessed"),
        ("baseline", ["entries", 0, "tolerance"], 0),
        ("baseline", ["entries", 0, "tolerance"], "5%"),
        ("baseline", ["entries", 0, "sessions"], []),
        ("baseline", ["entries", 0, "sessions", 0, "process_medians"], []),
        ("baseline", ["entries", 0, "sessions", 0, "process_medians"], [-1.0]),
        ("baseline", ["entries", 1, "value"], -1.0),
        ("baseline", ["entries", 1, "value"], [1.0, 2.0, 3.0]),
        ("baseline", ["entries", 1, "value"], "fast"),
        ("baseline", ["entries", 1, "value"], None),
        ("baseline", ["entries", 1, "confidence"], "sure"),
    ],
)
def test_a_value_that_cannot_be_names_the_file_and_the_field(make, kind, path, value):
    raw = plain(make, kind)
    at(raw, path[:-1])[path[-1]] = value
    # An impossible value may be noticed by the record that holds it, so the path ends there or at the value itself.
    shown = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path[:-1])
    with pytest.raises(BadFile) as error:
        to_record(raw, KINDS[kind], WHERE)
    assert str(error.value).startswith(f"{WHERE}: ")
    assert f"${shown}" in str(error.value) or path[-1] in str(error.value)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("header", ["run_id"]),
        ("header", ["environment"]),
        ("header", ["environment", "device", "type"]),
        ("measurement", ["key"]),
        ("measurement", ["samples", "seconds"]),
        ("outcome", ["test_id"]),
        ("footer", ["exit_status"]),
        ("baseline", ["entries"]),
        ("baseline", ["entries", 0, "sessions", 0, "run_id"]),
    ],
)
def test_a_missing_field_is_named(make, kind, path):
    raw = plain(make, kind)
    del at(raw, path[:-1])[path[-1]]
    with pytest.raises(BadFile, match=f"missing required field `{path[-1]}`"):
        to_record(raw, KINDS[kind], WHERE)


def test_a_record_that_is_no_object_is_refused():
    for kind, raw in itertools.product(KINDS, [None, 1, "text", [], [{}], True]):
        with pytest.raises(BadFile, match="Expected `object`"):
            to_record(raw, KINDS[kind], WHERE)


def test_a_value_that_is_no_number_is_named():
    for number in ["NaN", "Infinity", "-Infinity"]:
        with pytest.raises(BadFile) as error:
            decode_json(f'{{"value": {number}}}', WHERE)
        assert str(error.value) == f"{WHERE} holds {number}, which is no number; expected finite values", number


def test_a_number_beyond_every_range_is_refused():
    for number in ["1e999", "-1e999", "1" * 5000]:
        with pytest.raises(BadFile, match=WHERE):
            decode_json(f'{{"value": {number}}}', WHERE)


def test_a_field_given_twice_is_named():
    with pytest.raises(BadFile) as error:
        decode_json('{"a": 1, "b": {"tolerance": 1, "tolerance": 2}}', WHERE)
    assert str(error.value) == f"{WHERE} gives 'tolerance' twice in one object; expected it once"


def test_what_is_not_json_names_the_place():
    for text in ["", "{", '{"a": 1', '{"a": 1}}', "{'a': 1}", "a: 1", '{"a": 1,}', "\x00", '"\x1b"']:
        with pytest.raises(BadFile, match=f"{WHERE} is not JSON: .* at line 1, column"):
            decode_json(text, WHERE)


def test_json_nested_without_end_is_refused():
    with pytest.raises(BadFile, match="is nested too deeply"):
        decode_json("[" * 200_000, WHERE)


def test_half_a_character_is_refused_since_it_could_not_be_written_again(make):
    raw = plain(make, "baseline")
    raw["entries"][0]["benchmark"] = json.loads('"\\ud800"')
    with pytest.raises(BadFile, match=WHERE):
        to_record(decode_json(json.dumps(raw), WHERE), Baseline, WHERE)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(BadFile) as error:
        read_bytes(tmp_path / "gone.json", "baseline")
    assert str(error.value) == f"baseline {tmp_path / 'gone.json'} does not exist"


def test_a_folder_in_place_of_a_file_is_named(tmp_path):
    with pytest.raises(BadFile) as error:
        read_bytes(tmp_path, "baseline")
    assert str(error.value) == f"baseline {tmp_path} is a directory; expected a file"


@pytest.mark.parametrize("text", ["", " \n\t\n"])
def test_an_empty_file_is_named(tmp_path, text):
    path = tmp_path / "empty.json"
    path.write_text(text)
    with pytest.raises(BadFile) as error:
        read_bytes(path, "run file")
    assert str(error.value) == f"run file {path} is empty; expected JSON"


def test_a_file_that_is_no_text_is_named_with_the_byte(tmp_path):
    path = tmp_path / "binary.json"
    path.write_bytes(b"\x80\x04\x95")
    with pytest.raises(BadFile) as error:
        decode_json(read_bytes(path, "run file"), f"run file {path}")
    assert str(error.value) == f"run file {path} is not UTF-8 text (byte 0); expected JSON"


def test_a_file_behind_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadFile, match="cannot be read: Not a directory"):
        read_bytes(tmp_path / "file" / "run.jsonl", "run file")


def test_a_plain_name_stands():
    for name in ["a", "driver-570", "r1.2+x_Y", "0", "a..b", "x" * 120]:
        assert name == check_name(name, "run name"), name


def test_a_name_that_could_leave_its_folder_is_refused():
    for name in [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/etc/passwd",
        "a\\b",
        ".hidden",
        "-x",
        "a b",
        "a\n",
        "a\x00",
        "é",
        "x" * 121,
        "<b>",
        "~",
    ]:
        with pytest.raises(BadInput) as error:
            check_name(name, "run name")
        assert str(error.value).startswith(f"run name is {name!r}; expected up to 120 letters, digits and ._+-")


@given(st.text(st.characters()))
def test_every_name_that_stands_is_a_file_of_its_folder(name):
    try:
        check_name(name, "name")
    except BadInput:
        return
    assert (Path("folder") / f"{name}.json").parent == Path("folder")


def test_values_at_their_default_stay_out_of_the_file(make):
    written = to_plain(make.measurement())
    assert not {"invalid", "gate", "round", "tolerance", "ceiling", "verified"} & set(written)


def test_the_schema_version_is_always_written(make):
    assert to_plain(Baseline("cpu", ()))["schema"] == 1


# Property: whatever a record may hold, its file holds it too.
texts = st.text(max_size=8)
positive = st.floats(min_value=1e-12, max_value=1e12)
counts = st.integers(0, 2**50)
scalars = st.one_of(
    texts, st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none()
)
parameters = st.dictionaries(texts, scalars, max_size=3)
medians = st.lists(positive, min_size=1, max_size=3).map(tuple)
strings = st.dictionaries(texts, texts, max_size=2)
works = st.builds(Work, st.integers(1, 2**50), counts, counts, counts, counts)
some_hardware = st.builds(HardwareKey, *[st.none() | texts] * 3, st.none() | st.integers(1, 64), st.none() | texts)
all_hardware = st.builds(HardwareKey, texts, texts, texts, st.integers(1, 64), texts)
keys = st.builds(Key, texts, parameters, texts, all_hardware, st.sampled_from(CACHES), st.sampled_from(TIMINGS), texts)
measurements = st.builds(
    Measurement,
    key=keys,
    test_id=texts,
    label=texts,
    process=texts,
    work=works,
    samples=st.builds(Samples, medians, st.integers(1, 2**40), positive, labels=st.lists(texts, max_size=2).map(tuple)),
    round=st.integers(1, 12),
    gate=st.booleans(),
    tolerance=st.none() | positive,
    ceiling=st.none() | st.builds(Ceiling, texts, positive, st.sampled_from(["datasheet", "measured"]), texts),
    verified=st.none() | st.booleans(),
    invalid=texts,
)
devices = st.builds(
    DeviceFacts, texts, texts, counts, st.none() | texts, st.none() | counts, clock_mhz=st.none() | positive
)
hosts = st.builds(HostFacts, texts, texts, counts, counts, counts, counts, texts, cgroup_cpus=st.none() | positive)
headers = st.builds(
    Header, texts, texts, st.lists(texts, max_size=3).map(tuple), texts, st.builds(Environment, devices, hosts, strings)
)
sessions = st.builds(Session, texts, texts, medians, st.none() | texts, strings)
measured = st.builds(
    Entry,
    texts,
    texts,
    st.just("measured"),
    all_hardware,
    texts,
    parameters,
    st.sampled_from(CACHES),
    st.sampled_from(TIMINGS),
    works,
    st.none() | st.floats(0.001, 0.5),
    strings,
    st.lists(sessions, min_size=1, max_size=2).map(tuple),
)
published = st.builds(
    Entry,
    benchmark=texts,
    metric=st.sampled_from(["traffic_GBps", "triton_payload_GBps"]),
    kind=st.sampled_from(["threshold", "reference"]),
    hardware=some_hardware,
    parameters=parameters,
    value=positive | st.tuples(positive, positive).map(sorted).map(tuple) | st.just(OUT_OF_MEMORY),
    unit=st.just("GB/s"),
    convention=texts,
    source=texts,
    confidence=st.sampled_from(["high", "medium", "low", "recalled"]),
)
baselines = st.builds(Baseline, texts, st.lists(measured | published, max_size=3).map(tuple))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.one_of(measurements, headers, baselines))
def test_every_record_survives_its_file(record):
    text = json.dumps(to_plain(record), ensure_ascii=False, allow_nan=False)
    assert record == to_record(decode_json(text, WHERE), type(record), WHERE)


def test_reading_changes_nothing_in_what_was_read(make):
    raw = plain(make, "baseline")
    before = copy.deepcopy(raw)
    to_record(raw, Baseline, WHERE)
    assert before == raw


def test_records_at_every_level_are_rebuilt_as_themselves(make):
    entry = to_record(plain(make, "baseline"), Baseline, WHERE).entries[0]
    assert (Entry, Session, HardwareKey) == (type(entry), type(entry.sessions[0]), type(entry.hardware))
    assert dataclasses.is_dataclass(entry.work)


def test_a_measurement_from_before_tokens_and_first_calls_reads_as_one_without(make):
    raw = plain(make, "measurement")
    assert not {"tokens", "first_calls_s", "compile_s"} & {*raw, *raw["work"], *raw["samples"]}
    measurement = to_record(raw, Measurement, WHERE)
    assert (measurement.work.tokens, measurement.samples.first_calls_s, measurement.compile_s) == (0, (), None)


def test_tokens_first_calls_and_compiling_survive_their_file(make):
    samples = Samples((1.0,), 1, 1e-9, first_calls_s=(2.5, 1.0))
    measurement = make.measurement(work=Work(flops=8, tokens=5), samples=samples, compile_s=1.5)
    assert to_record(json.loads(json.dumps(to_plain(measurement))), Measurement, WHERE) == measurement

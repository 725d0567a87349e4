import json

import pytest

from pytest_roofline.baselines.files import BaselineFolders, Entries, nearest, read_baseline, write_baseline
from pytest_roofline.core.entries import Baseline
from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.storage import to_plain


def write(path, raw):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(raw if isinstance(raw, str) else json.dumps(raw), encoding="utf-8")
    return path


def baseline(make, *entries):
    return to_plain(Baseline("h200", entries or (make.measured(),)))


def complaint(path):
    with pytest.raises(BadFile) as error:
        read_baseline(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value).replace(str(path), "FILE")


def test_a_baseline_reads_back_as_it_was_written(make, tmp_path):
    written = Baseline("h200", (make.measured(),))
    write_baseline(tmp_path / "h200.json", written)
    assert written == read_baseline(tmp_path / "h200.json")


@pytest.mark.parametrize(
    ("version", "said"), [(2, "schema version 2"), ("1", "schema version '1'"), (True, "schema version True")]
)
def test_another_schema_version_is_named_before_anything_else(make, tmp_path, version, said):
    path = write(tmp_path / "h200.json", baseline(make) | {"schema": version, "new_field": 1})
    assert complaint(path) == f"baseline FILE has {said}; this pytest-roofline reads version 1"


def test_a_file_without_schema_version_is_refused(make, tmp_path):
    path = write(tmp_path / "h200.json", {"family": "h200", "entries": []})
    assert complaint(path) == "baseline FILE has no schema version; this pytest-roofline reads version 1"


def test_a_baseline_that_is_no_object_is_refused(tmp_path):
    assert complaint(write(tmp_path / "h200.json", "[]")) == "baseline FILE is a list; expected an object"


def test_a_truncated_baseline_is_refused_at_every_byte(make, tmp_path):
    text = json.dumps(baseline(make))
    for cut in range(len(text)):
        complaint(write(tmp_path / "h200.json", text[:cut]))


def test_an_unknown_field_names_file_entry_and_field(make, tmp_path):
    raw = baseline(make)
    raw["entries"][0]["tolerence"] = 0.1
    said = complaint(write(tmp_path / "h200.json", raw))
    assert said == "baseline FILE: Object contains unknown field `tolerence` - at `$.entries[0]`"


def test_a_negative_value_names_file_entry_and_field(make, tmp_path):
    raw = baseline(make)
    raw["entries"][0]["sessions"][0]["process_medians"] = [1.0, -1.0]
    assert complaint(write(tmp_path / "h200.json", raw)) == (
        "baseline FILE: process_medians[1] is -1.0; expected a finite number above zero - at `$.entries[0].sessions[0]`"
    )


def test_an_entry_given_twice_names_both(make, tmp_path):
    path = write(tmp_path / "h200.json", baseline(make, make.measured(1.0), make.published(), make.measured(2.0)))
    assert complaint(path).startswith("baseline FILE: entries 0 and 2 are the same (memcpy_d2d {'size_bytes': ")


def test_two_measured_entries_of_different_source_are_still_the_same_one(make, tmp_path):
    twice = (make.measured(1.0, source="node 1"), make.measured(2.0, source="node 2"))
    assert "are the same" in complaint(write(tmp_path / "h200.json", baseline(make, *twice)))


@pytest.mark.parametrize("family", ["", "../h200", "a/b", ".h200", "h200\n"])
def test_a_family_that_is_no_file_name_is_refused(make, tmp_path, family):
    path = write(tmp_path / "h200.json", baseline(make) | {"family": family})
    assert complaint(path).startswith(f"baseline FILE: family is {family!r}")


def test_a_written_baseline_is_a_reviewable_diff(make, tmp_path):
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(),)))
    text = (tmp_path / "h200.json").read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def test_entries_are_sorted_by_benchmark_and_by_size_as_a_number(make, tmp_path):
    sizes = [("b", 9), ("a", 2**20), ("a", 4096), ("a", 100_000)]
    entries = tuple(make.measured(key=make.key(benchmark, size)) for benchmark, size in sizes)
    write_baseline(tmp_path / "h200.json", Baseline("h200", entries))
    written = read_baseline(tmp_path / "h200.json").entries
    expected = [("a", 4096), ("a", 100_000), ("a", 2**20), ("b", 9)]
    assert expected == [(entry.benchmark, entry.parameters["size_bytes"]) for entry in written]


def test_the_order_of_entries_changes_no_byte(make, tmp_path):
    entries = [make.measured(key=make.key(parameters={"kind": kind})) for kind in ("x", 3, None, 2.5, True)]
    write_baseline(tmp_path / "a.json", Baseline("h200", tuple(entries)))
    write_baseline(tmp_path / "b.json", Baseline("h200", tuple(reversed(entries))))
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_sites_own_entry_hides_the_shipped_one(make, tmp_path):
    write_baseline(tmp_path / "site" / "h200.json", Baseline("h200", (make.measured(1.0),)))
    write_baseline(tmp_path / "shipped" / "h200.json", Baseline("h200", (make.measured(2.0),)))
    entries = BaselineFolders([tmp_path / "site", tmp_path / "shipped"]).family("h200")
    assert [entry.medians for entry in entries] == [(1.0,)]


def test_a_site_leaves_the_other_shipped_entries_in_force(make, tmp_path):
    write_baseline(tmp_path / "site" / "h200.json", Baseline("h200", (make.measured(key=make.key("a")),)))
    write_baseline(tmp_path / "shipped" / "h200.json", Baseline("h200", (make.measured(key=make.key("b")),)))
    entries = BaselineFolders([tmp_path / "site", tmp_path / "shipped"]).family("h200")
    assert [entry.benchmark for entry in entries] == ["a", "b"]


def test_a_family_without_a_file_has_no_entries(tmp_path):
    assert len(BaselineFolders([tmp_path, tmp_path / "gone"]).family("h200")) == 0


def test_an_entry_knows_its_file(make, tmp_path):
    write_baseline(tmp_path / "h200.json", Baseline("h200", (make.measured(),)))
    entries = Entries.merged([tmp_path / "h200.json"])
    assert tmp_path / "h200.json" == entries.path_of(next(iter(entries)))


def test_the_names_of_a_benchmark_are_those_of_its_entries(make, tmp_path):
    both = (make.measured(), make.measured(key=make.key(name="second")), make.measured(key=make.key("b", name="third")))
    write_baseline(tmp_path / "h200.json", Baseline("h200", both))
    assert {"", "second"} == Entries.merged([tmp_path / "h200.json"]).names("memcpy_d2d")


def test_the_nearest_hardware_agrees_in_most_facts(make):
    wanted = make.hardware()
    near = make.hardware(devices=8)
    far = make.hardware(product="mi300x", memory="192gb", devices=8)
    assert [near, far] == nearest(wanted, [far, near, far])


def test_at_most_three_are_named_as_nearest(make):
    assert len(nearest(make.hardware(), [make.hardware(devices=count) for count in range(2, 9)])) == 3

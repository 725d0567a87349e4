"""Baseline files: read back as written, refused in one sentence, a reviewable diff, a site's own before what ships."""

import json

import pytest

from pytest_roofline.baselines.files import (
    Entries,
    entries_of,
    nearest,
    read_baseline,
    write_baseline,
)
from pytest_roofline.core.entries import Baseline
from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.storage import to_plain


def complaint(path, raw):
    path.write_text(raw if isinstance(raw, str) else json.dumps(raw), encoding="utf-8")
    with pytest.raises(BadFile) as error:
        read_baseline(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    return str(error.value).replace(str(path), "FILE")


def test_a_file_that_is_no_baseline_is_refused_in_one_sentence(make, tmp_path):
    path = tmp_path / "h200.json"
    plain = to_plain(Baseline("h200", (make.measured(),)))

    def with_entry(**changes):
        (entry,) = plain["entries"]
        return plain | {"entries": [entry | changes]}

    def of(*entries):
        return to_plain(Baseline("h200", entries))

    reads = "this pytest-roofline reads version 1"
    session = plain["entries"][0]["sessions"][0]
    for raw, told in [
        *(
            (plain | {"schema": v, "new": 1}, f"baseline FILE has schema version {v!r}; {reads}")
            for v in (2, "1", True)
        ),
        ({"family": "h200", "entries": []}, f"baseline FILE has no schema version; {reads}"),
        ("[]", "baseline FILE is a list; expected an object"),
        (
            with_entry(tolerence=0.1),
            "baseline FILE: Object contains unknown field `tolerence` - at `$.entries[0]`",
        ),
        (
            with_entry(sessions=[session | {"process_medians": [1.0, -1.0]}]),
            "baseline FILE: process_medians[1] is -1.0; expected a finite number above zero - at "
            "`$.entries[0].sessions[0]`",
        ),
    ]:
        assert complaint(path, raw) == (
            f"{told}; restore the file from version control, or remove it and record "
            "again (`pytest … --roofline-record`)"
        )
    run = make.save(tmp_path / "night.jsonl", make.measurement())
    with pytest.raises(BadFile) as error:
        read_baseline(run)
    assert str(error.value).endswith(
        f"this file is a run; make a proposal from the run: `roofline baseline propose {run} -o FILE`"
    )
    ini = tmp_path / "pytest.ini"
    ini.write_text("[pytest]\n")
    with pytest.raises(BadFile) as error:
        read_baseline(ini)
    assert str(error.value).endswith(
        "expected a baseline or a proposal, whose name ends in .json; make a proposal with `roofline baseline "
        "propose RUN -o FILE.json`"
    )
    twice = of(make.measured(1.0), make.published(), make.measured(2.0))
    assert complaint(path, twice).startswith(
        "baseline FILE: entries 0 and 2 are the same (memcpy_d2d {'size_bytes': "
    )
    sources = of(make.measured(1.0, source="node 1"), make.measured(2.0, source="node 2"))
    assert "are the same" in complaint(path, sources)
    for family in ("", "../h200", "a/b", ".h200", "h200\n"):
        assert complaint(path, plain | {"family": family}).startswith(
            f"baseline FILE: family is {family!r}"
        )
    complaint(path, json.dumps(plain)[:-1])


def test_a_written_baseline_reads_back_sorted_and_is_a_reviewable_diff(make, tmp_path):
    path = tmp_path / "h200.json"
    write_baseline(path, Baseline("h200", (make.measured(),)))
    assert read_baseline(path) == Baseline("h200", (make.measured(),))
    text = path.read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    # By benchmark, and by size as a number.
    sizes = [("b", 9), ("a", 2**20), ("a", 4096), ("a", 100_000)]
    write_baseline(
        path, Baseline("h200", tuple(make.measured(key=make.key(*one)) for one in sizes))
    )
    written = [
        (entry.benchmark, entry.parameters["size_bytes"]) for entry in read_baseline(path).entries
    ]
    assert written == [("a", 4096), ("a", 100_000), ("a", 2**20), ("b", 9)]
    # The order of entries changes no byte.
    entries = [
        make.measured(key=make.key(parameters={"kind": kind})) for kind in ("x", 3, None, 2.5, True)
    ]
    write_baseline(tmp_path / "a.json", Baseline("h200", tuple(entries)))
    write_baseline(tmp_path / "b.json", Baseline("h200", tuple(reversed(entries))))
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_sites_own_entry_hides_the_shipped_one_and_leaves_the_others_in_force(make, tmp_path):
    def family(site, shipped):
        for name, entry in (("site", site), ("shipped", shipped)):
            write_baseline(tmp_path / name / "h200.json", Baseline("h200", (entry,)))
        return entries_of("h200", [tmp_path / "site", tmp_path / "shipped"])

    assert [entry.medians for entry in family(make.measured(1.0), make.measured(2.0))] == [(1.0,)]
    both = family(make.measured(key=make.key("a")), make.measured(key=make.key("b")))
    assert [entry.benchmark for entry in both] == ["a", "b"]
    assert both.path_of(next(iter(both))) == tmp_path / "site" / "h200.json"
    assert len(entries_of("h200", [tmp_path, tmp_path / "gone"])) == 0
    names = (
        make.measured(),
        make.measured(key=make.key(name="second")),
        make.measured(key=make.key("b", name="third")),
    )
    write_baseline(tmp_path / "h200.json", Baseline("h200", names))
    assert Entries.from_files([tmp_path / "h200.json"]).names("memcpy_d2d") == {"", "second"}


def test_the_nearest_hardware_agrees_in_most_facts_and_at_most_three_are_named(make):
    near, far = make.hardware(devices=8), make.hardware(product="mi300x", memory="192gb", devices=8)
    assert nearest(make.hardware(), [far, near, far]) == [near, far]
    assert (
        len(nearest(make.hardware(), [make.hardware(devices=count) for count in range(2, 9)])) == 3
    )

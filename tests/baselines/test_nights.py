"""The runs that watched, found by the first and the last line of their files."""

import json

import pytest

from pytest_roofline.baselines.run_files import Watched, watched
from pytest_roofline.baselines.runs import ends_of, read_run
from pytest_roofline.hardware import key_of


@pytest.fixture
def save(make, tmp_path):
    """Saves a run as of a day, with what its gate would have failed."""

    def save(name, started, shadow, status=0, cut=False):
        path = make.save(tmp_path / "runs" / f"{name}.jsonl", make.measurement())
        records = [json.loads(line) for line in path.read_text().splitlines()]
        header, *between = [record for record in records if record["type"] != "footer"]
        footer = {"type": "footer", "finished": started, "exit_status": status, "measured": 1}
        footer |= {} if shadow is None else {"shadow": shadow}
        lines = [header | {"started": started}, *between, *([] if cut else [footer])]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return save


def hardware_of(path):
    return key_of(read_run(path).header.environment)


def test_only_runs_that_watched_to_their_end_are_nights_in_the_order_of_their_beginning(save, tmp_path):
    save("late", "2026-01-03T01:00:00Z", ["one: +20.0 % time (1 GB/s)"])
    path = save("early", "2026-01-02T23:00:00Z", [])
    save("own", "2026-01-04T01:00:00Z", [], status=1)
    save("plain", "2026-01-05T01:00:00Z", None)
    save("cut", "2026-01-06T01:00:00Z", ["never"], cut=True)
    (tmp_path / "runs" / "damaged.jsonl").write_text('{"type": "footer", "shadow": [}\n')
    found = watched(tmp_path, hardware_of(path))
    assert found == [
        Watched("2026-01-02", ()),
        Watched("2026-01-03", ("one: +20.0 % time (1 GB/s)",)),
        Watched("2026-01-04", (), failed=True),
    ]
    assert [run.red for run in found] == [False, True, True]
    assert [run.why for run in found[1:]] == ["one: +20.0 % time", "a test failed for itself"]


def test_runs_on_other_hardware_are_none(save, tmp_path):
    path = save("one", "2026-01-03T01:00:00Z", [])
    other = type(hardware_of(path))("another", "80gb", None, 1, "none")
    assert watched(tmp_path, other) == []


def test_a_folder_without_runs_has_none(tmp_path, save):
    path = save("one", "2026-01-03T01:00:00Z", [])
    assert watched(tmp_path / "elsewhere", hardware_of(path)) == []


def test_the_ends_of_a_run_are_those_that_reading_all_of_it_finds(save):
    path = save("one", "2026-01-03T01:00:00Z", ["a", "b"])
    run = read_run(path)
    assert ends_of(path) == (run.header, run.footer)
    assert run.footer.shadow == ("a", "b")

"""The program that writes the baselines of published figures: up to date, complete, and careful with the rest."""

import datetime
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_roofline.baselines.checks import check
from pytest_roofline.baselines.files import BaselineFolders, read_baseline, write_baseline
from pytest_roofline.core.entries import Entry, Session
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.work import Work
from pytest_roofline.hardware import catalogue

ROOT = Path(__file__).parents[2]
NOW = datetime.datetime.now(datetime.UTC)


@pytest.fixture
def copy(tmp_path):
    """A repository with nothing but the baselines and their page."""
    shutil.copytree(
        ROOT / "baselines", tmp_path / "baselines", ignore=shutil.ignore_patterns("published", "resources.json")
    )
    (tmp_path / "docs" / "results").mkdir(parents=True)
    for page in ("published.md", "floors.md"):
        shutil.copy(ROOT / "docs" / "results" / page, tmp_path / "docs" / "results")
    return tmp_path


def test_the_files_of_the_repository_are_what_the_data_give():
    done = subprocess.run(
        [sys.executable, str(ROOT / "baselines" / "published" / "build.py"), "--check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_every_record_is_an_entry_or_is_left_out_for_a_reason(module, found):
    figures = module("figures")
    raw = json.loads((figures.HERE / "published_figures.json").read_text(encoding="utf-8"))
    told = json.loads((figures.HERE / "seed_figures.json").read_text(encoding="utf-8"))
    results = [one for one in raw if one["kind"] != "datasheet_peak"]
    assert (len(raw), len(results), len(told)) == (549, 297, 585)
    assert len(found.records) == len(results) + len(told)
    entered, left_out = {one.record for one in found.shipped}, {one.record for one in found.left_out}
    assert not found.lost
    assert not entered & left_out
    assert len(entered) + len(left_out) == len(found.records)
    assert all(one.why for one in found.left_out)


def test_what_the_program_prints_adds_up(build, found):
    line = build.summary(found)[0]
    assert line.startswith(f"{len(found.records)} records: {len(found.records) - len(found.left_out)} in ")
    assert line.endswith(f"{len(found.left_out)} left out, 0 lost")
    counts = [int(line.split()[2]) for line in build.summary(found)[3:]]
    assert sum(counts) == len(found.left_out)


def test_a_record_that_is_lost_is_told(build, found, monkeypatch, capsys):
    lost = replace(found, left_out=found.left_out[1:])
    monkeypatch.setattr(build, "account", lambda: lost)
    assert build.main(["--check"]) == 2
    assert f"build: {found.left_out[0].record} is neither an entry nor left out" in capsys.readouterr().err


def test_a_record_that_no_rule_knows_ends_the_program_with_its_name(build, module, copy, monkeypatch, capsys):
    figures = module("figures")
    (first, *others) = figures.published()
    monkeypatch.setattr(figures, "published", lambda: [*others, replace(first, metric="l3_GBps")])
    assert build.main(["--root", str(copy)]) == 2
    assert capsys.readouterr() == (
        "",
        "build: published-0000: metric is 'l3_GBps', which no rule knows; expected one of conventions.py, or a new "
        "rule\n",
    )


def test_a_file_that_differs_is_named_and_written_anew(build, copy, capsys):
    assert build.main(["--root", str(copy), "--check"]) == 0
    path = copy / "baselines" / "h200.json"
    right = path.read_bytes()
    path.write_text(path.read_text(encoding="utf-8").replace("55.43", "65.43"), encoding="utf-8")
    assert build.main(["--root", str(copy), "--check"]) == 1
    assert "differs: baselines/h200.json" in capsys.readouterr().out
    assert build.main(["--root", str(copy)]) == 0
    assert path.read_bytes() == right


def test_a_page_whose_table_differs_is_noticed(build, copy, capsys):
    page = copy / "docs" / "results" / "published.md"
    page.write_text(page.read_text(encoding="utf-8").replace("| 1225 GB/s |", "| 1226 GB/s |"), encoding="utf-8")
    assert build.main(["--root", str(copy), "--check"]) == 1
    assert "differs: docs/results/published.md" in capsys.readouterr().out


def test_a_page_without_its_markers_is_refused(build, copy, capsys):
    page = copy / "docs" / "results" / "published.md"
    page.write_text(page.read_text(encoding="utf-8").replace("<!-- end of gating -->", ""), encoding="utf-8")
    assert build.main(["--root", str(copy)]) == 2
    assert "expected each once" in capsys.readouterr().err


def test_what_users_recorded_and_limits_of_their_own_survive(build, copy):
    path = copy / "baselines" / "h100.json"
    before = read_baseline(path)
    hardware = HardwareKey("h100-sxm5", "80gb", "none", 1, "none")
    measured = Entry(
        "memcpy_d2d", "auto_traffic_GBps", "measured", hardware, parameters={"size_bytes": 2**30}, cache="rotate",
        timing="device", work=Work(read_bytes=2**30, write_bytes=2**30), provenance={"driver": "550.54.15"},
        sessions=(Session("monday", "2026-01-05T08:00:00+00:00", (0.00080, 0.00081)),),
    )  # fmt: skip
    limit = Entry(
        "memcpy_d2d", "auto_traffic_GBps", "threshold", hardware, value=2500.0, unit="GB/s", convention="read + write",
        source="our own acceptance", confidence="high", provenance={"ticket": "42"},
    )  # fmt: skip
    write_baseline(path, replace(before, entries=(*before.entries, measured, limit)))
    assert build.main(["--root", str(copy)]) == 0
    after = read_baseline(path)
    assert {measured.identity, limit.identity} <= {entry.identity for entry in after.entries}
    assert len(after.entries) == len(before.entries) + 2


def test_what_the_program_no_longer_makes_goes_and_a_file_of_nothing_else_too(build, copy, found):
    without = replace(found, shipped=tuple(one for one in found.shipped if one.family != "l4"))
    (stale,) = build.outdated(copy, without)[:1]
    assert (stale.path.name, stale.should_text) == ("l4.json", None)


def test_other_files_of_the_folder_are_left_alone(build, copy):
    (copy / "baselines" / "hardware.json").write_text('{"schema": 1, "products": []}', encoding="utf-8")
    assert build.main(["--root", str(copy), "--check"]) == 0


@pytest.mark.parametrize("path", sorted((ROOT / "baselines").glob("*.json")), ids=lambda path: path.stem)
def test_every_file_that_ships_is_sane(path):
    flaws = [flaw for flaw in check(path, read_baseline(path), NOW) if not flaw.hint]
    assert flaws == []


def test_no_entry_that_ships_is_of_a_product_that_nobody_knows(found):
    known = {(product.family, product.product) for product in catalogue().products}
    unknown = {
        (one.family, one.entry.hardware.product)
        for one in found.shipped
        if one.entry.hardware.product is not None and (one.family, one.entry.hardware.product) not in known
    }
    # Of unknown products the driver's own name is family and product, and hardware without a name is nobody's.
    assert all(product in (family, None) or product.startswith("unnamed-") for family, product in unknown)
    assert {"v100", "a100", "h100", "h200", "b200", "mi210", "mi250x", "mi300x", "mi325x"} <= {f for f, _ in known}


def test_nothing_that_ships_names_the_workplace():
    for path in (ROOT / "baselines" / "published").iterdir():
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert "../shared" not in text
            assert "/work/" not in text


def test_hardware_without_a_name_is_compared_with_nobody(found):
    unnamed = [one.entry for one in found.shipped if one.family == "unnamed"]
    assert {entry.hardware.product for entry in unnamed} == {
        "unnamed-a100-class", "unnamed-ampere-8gb", "unnamed-b200-class", "unnamed-cpu", "unnamed-mps",
        "unnamed-pcie4-class",
    }  # fmt: skip
    assert len(BaselineFolders([ROOT / "baselines"]).family("cpu")) == 0

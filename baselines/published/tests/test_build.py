"""The program that writes the baselines of published figures: up to date, complete, and careful with the rest."""

import datetime
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_roofline.baselines.checks import check
from pytest_roofline.baselines.files import entries_of, read_baseline, write_baseline
from pytest_roofline.core.entries import Entry, Session
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.work import Work
from pytest_roofline.hardware import catalogue

ROOT = Path(__file__).parents[3]
NOW = datetime.datetime.now(datetime.UTC)


@pytest.fixture
def copy(tmp_path):
    """A repository with nothing but the baselines and their page."""
    shutil.copytree(
        ROOT / "baselines",
        tmp_path / "baselines",
        ignore=shutil.ignore_patterns("published", "resources.json"),
    )
    (tmp_path / "docs" / "results").mkdir(parents=True)
    for page in ("published.md", "floors.md"):
        shutil.copy(ROOT / "docs" / "results" / page, tmp_path / "docs" / "results")
    return tmp_path


def test_the_files_of_the_repository_are_what_the_data_give():
    done = subprocess.run(
        [sys.executable, str(ROOT / "baselines" / "published" / "build.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_every_record_is_an_entry_or_is_left_out_for_a_reason(module, found):
    figures = module("figures")
    raw = json.loads((figures.HERE / "published_figures.json").read_text(encoding="utf-8"))
    told = json.loads((figures.HERE / "seed_figures.json").read_text(encoding="utf-8"))
    results = [one for one in raw if one["kind"] != "datasheet_peak"]
    assert (len(raw), len(results), len(told)) == (549, 297, 585)
    assert len(found.records) == len(results) + len(told)
    entered, left_out = (
        {one.record for one in found.entries},
        {one.record for one in found.left_out},
    )
    assert not found.lost
    assert not entered & left_out
    assert len(entered) + len(left_out) == len(found.records)
    assert all(one.why for one in found.left_out)


def test_every_figure_stands_in_the_page_and_the_best_ship(module, build, found):
    page = (ROOT / build.PAGE).read_text(encoding="utf-8")
    pages = module("pages")
    assert all(pages._cell(one).replace("|", "\\|") in page for one in found.entries)
    assert all(one.what.replace("|", "\\|") in page for one in found.left_out)
    files = module("shipping").shipped(found)
    assert {id(one) for one in found.entries if one.entry.gates} <= {id(one) for one in files}
    groups = Counter(
        (one.family, one.entry.hardware.product, one.entry.benchmark, one.entry.metric)
        for one in files
        if not one.entry.gates
    )
    assert max(groups.values()) == 2
    assert not any(one.entry.implausible or one.family == "unnamed" for one in files)
    reduces = [
        one.entry.value
        for one in files
        if (one.family, one.entry.benchmark) == ("h200", "all_reduce")
    ]
    assert sorted(reduces) == [467.58, 479.98]


def test_what_is_wrong_with_the_data_is_told_and_ends_the_program(
    build, module, found, copy, monkeypatch, capsys
):
    lost = replace(found, left_out=found.left_out[1:])
    with monkeypatch.context() as patch:
        patch.setattr(build, "account", lambda: lost)
        assert build.main(["--check"]) == 2
    assert (
        f"build: {found.left_out[0].record} is neither an entry nor left out"
        in capsys.readouterr().err
    )
    figures = module("figures")
    (first, *others) = figures.published()
    monkeypatch.setattr(figures, "published", lambda: [*others, replace(first, metric="l3_GBps")])
    assert build.main(["--root", str(copy)]) == 2
    assert capsys.readouterr() == (
        "",
        "build: published-0000: metric is 'l3_GBps', which no rule knows; expected one of conventions.py, or a new "
        "rule\n",
    )


def test_a_file_or_page_that_differs_is_named_and_written_anew(build, copy, capsys):
    (copy / "baselines" / "hardware.json").write_text(
        '{"schema": 1, "products": []}', encoding="utf-8"
    )
    assert build.main(["--root", str(copy), "--check"]) == 0
    for name, right, wrong in (
        ("baselines/h200.json", "55.43", "65.43"),
        (str(build.PAGE), "1225 GB/s", "1226 GB/s"),
        # The part of benchmarks/day_one.py stands in this page too, and stays.
        (str(build.FLOORS_PAGE), "1140 GB/s", "1141 GB/s"),
    ):
        before = (copy / name).read_text(encoding="utf-8")
        assert right in before
        (copy / name).write_text(before.replace(right, wrong), encoding="utf-8")
        assert build.main(["--root", str(copy), "--check"]) == 1
        assert f"differs: {name}" in capsys.readouterr().out
        assert build.main(["--root", str(copy)]) == 0
        assert (copy / name).read_text(encoding="utf-8") == before
    page = copy / build.PAGE
    page.write_text(
        page.read_text(encoding="utf-8").replace("<!-- end of gating -->", ""), encoding="utf-8"
    )
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
    without = replace(found, entries=tuple(one for one in found.entries if one.family != "l4"))
    (stale,) = build.outdated(copy, without)[:1]
    assert (stale.path.name, stale.should_text) == ("l4.json", None)


def test_every_file_that_ships_is_sane_and_of_a_product_that_is_known(found, module):
    for path in sorted((ROOT / "baselines").glob("*.json")):
        assert [flaw for flaw in check(path, read_baseline(path), NOW) if not flaw.hint] == [], path
    known = {(product.family, product.product) for product in catalogue().products}
    unknown = {
        (one.family, one.entry.hardware.product) for one in module("shipping").shipped(found)
    } - known
    # Of unknown products the driver's own name is family and product.
    assert all(product in (family, None) for family, product in unknown)
    assert len(entries_of("cpu", [ROOT / "baselines"])) == 0


def test_nothing_that_ships_names_the_workplace():
    for path in (ROOT / "baselines" / "published").iterdir():
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert "../shared" not in text
            # No folder of a machine; these are parts of addresses.
            assert set(re.findall(r"(?<![\w./:-])/[a-z]+/", text)) <= {"/issues/", "/pull/"}, path

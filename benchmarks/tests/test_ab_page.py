"""The part of the page on `ab` says of each promise whether it was kept, by what the command told."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/results/ab-quality.md"


@pytest.fixture(scope="module")
def ab_page(program):
    return program("ab_page")


def told(*rows, wall=230.0, controls=1):
    tests = [{"label": label, "verdict": verdict, "hardware": "a CPU"} for label, verdict in rows]
    seconds = {"all": wall, "A": 90.0, "B": 90.0, "warming A": 10.0, "warming B": 10.0}
    return {
        "tests": tests,
        "seconds": seconds,
        "processes": {"A": 8, "B": 8, "control": controls},
        "sentence": "RED",
    }


def test_what_was_found_what_was_false_and_what_took_too_long_is_said(ab_page):
    seeded = told(
        ("copies[changed-64]", "REGRESSED"),
        ("copies[changed-256]", "PASSED"),
        ("copies[same-64]", "REGRESSED"),
    )
    same = told(("memcpy[4KiB]", "PASSED"), ("memcpy[8KiB]", "REGRESSED"), wall=231.0, controls=2)
    assert ab_page.took(seeded) == (2.3, 1, 4)
    text = ab_page.part(ab_page.Told(seeded, "| one |"), ab_page.Told(same, "| two |"))
    assert (
        "Of 2 tests of it 1 are REGRESSED; of the others, which are the same on both sides,\n1. RED."
        in text
    )
    assert "at most eight processes a side:\n1 of 2 tests are REGRESSED, each by chance" in text
    assert "| seeded | 230 s | 100 s | 2.30 | 1 of 4 |" in text
    assert "| against itself | 231 s | 100 s | 2.31, missed | 2 of 4, missed |" in text
    assert (
        text.index("| one |")
        < text.index("## This checkout against itself")
        < text.index("| two |")
    )


def standing(page, title, rows_of, **seconds_and_processes):
    """What the command told of a run, read in the page that stands."""
    section = page.partition(f"### {title}\n")[2].partition("\n### ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    facts = told(*[(row[0], row[-1]) for row in rows_of(page, title)], **seconds_and_processes)
    facts["sentence"] = re.search(r"(RED|GREY): .*\)(?=\.$)", section, re.MULTILINE)[0]
    return facts, "\n".join(lines)


def test_the_program_writes_what_stands_and_leaves_the_page_around_it(
    ab_page, rows_of, tmp_path, monkeypatch
):
    # A page that is made anew no longer says since when it is stale.
    page = re.sub(r"\*\*Stale since (.+\n)+\n", "", PAGE.read_text(encoding="utf-8"))
    runs = []
    for title, wall, base, processes in (
        ("A slowdown of 10 % in one package", 107.4, 50.7, 12),
        ("This checkout against itself", 174.4, 82.7, 8),
    ):
        facts, table = standing(page, title, rows_of, wall=wall)
        facts["seconds"] |= {"A": base - 10.0}
        facts["processes"]["A"] = processes
        for test in facts["tests"]:
            test["hardware"] = re.search(r"ab_page.py` on (.*), tolerance", page)[1]
        runs.append(ab_page.Told(facts, table))
    monkeypatch.setattr(ab_page, "run_both", lambda folder: tuple(runs))
    path = tmp_path / "page.md"
    path.write_text(
        re.sub(r"(?s)(ab_page.py -->\n\n).*(\n\n<!-- end)", r"\1old\2", page), encoding="utf-8"
    )
    assert "A slowdown" not in path.read_text(encoding="utf-8")
    assert 0 == ab_page.main(["-o", str(path)])
    assert page == path.read_text(encoding="utf-8")


def test_a_page_without_a_place_is_refused_before_anything_runs(
    ab_page, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(ab_page, "run_both", lambda folder: pytest.fail("something ran"))
    path = tmp_path / "page.md"
    assert 2 == ab_page.main(["-o", str(path)])
    path.write_text("# A page\n", encoding="utf-8")
    assert 2 == ab_page.main(["-o", str(path)])
    assert "expected both, in this order, once each" in capsys.readouterr().err
    assert "# A page\n" == path.read_text(encoding="utf-8")

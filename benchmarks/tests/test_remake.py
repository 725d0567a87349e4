"""Pages that programs make: each is known with its sources, and what is listed as stale says why."""

import ast
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "docs/results").glob("*.md"))
MOST_PAGES = 14
# Records, words and pages: programs import them, and no figure of a page comes from them.
WITHOUT_FIGURES = frozenset(
    {
        "benchmarks/ab_page.py",
        "benchmarks/detectors/page.py",
        "benchmarks/goals.py",
        "benchmarks/parts.py",
        "benchmarks/rank_figures/page.py",
        "benchmarks/run_pages.py",
        "benchmarks/stamp.py",
        "plugin/pytest_roofline/baselines/run_files.py",
        "plugin/pytest_roofline/baselines/runs.py",
        "plugin/pytest_roofline/core",
        "plugin/pytest_roofline/engine/host.py",
        "plugin/pytest_roofline/hardware",
    }
)
MARK = "**Stale since 2026-11-28**: the rule changed."


@pytest.fixture(scope="module")
def remake(program):
    return program("remake")


@pytest.fixture(scope="module")
def pages(program):
    return program("result_pages")


@pytest.fixture
def bench(remake, pages, tmp_path, monkeypatch):
    """A repository with one page, its program and a source; the page was made of them as they are."""
    making = pages.Making("page.md", "program.py", sources=("source.py",), minutes=5, needs="root")
    files = {
        "page.md": "# Title\n\nIt is fast.\n\n| a |\n|---|\n",
        "program.py": "from pathlib import Path\n\nPath('page.md').write_text('# Title\\n\\nNew.\\n')\n",
        "source.py": "x = 1\n",
        "sources.json": "{}",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(remake, "ROOT", tmp_path)
    monkeypatch.setattr(remake, "SOURCES", tmp_path / "sources.json")
    monkeypatch.setattr(remake, "MAKINGS", (making,))
    monkeypatch.setattr(remake, "stamp", lambda: "Of commit `abc1234`, 2026-11-28.")
    remake.record(
        making, remake.Record("Of commit `abc1234`, 2026-11-28.", remake.digests_of(making))
    )
    return SimpleNamespace(path=tmp_path, making=making)


def project_file(module):
    """Return the file of a module of this repository, or the folder of a package; empty of another one."""
    for folder in ("plugin", "kernels", "benchmarks", "."):
        path = ROOT / folder / module.replace(".", "/")
        if path.is_dir() and (path / "__init__.py").exists():
            return path.relative_to(ROOT).as_posix()
        if path.with_suffix(".py").exists():
            return path.with_suffix(".py").relative_to(ROOT).as_posix()
    return ""


def imports_of(program):
    """Return the files and folders of this repository that a program imports by itself."""
    files = set()
    for node in ast.walk(ast.parse((ROOT / program).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            files |= {project_file(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            members = {project_file(f"{node.module}.{alias.name}") for alias in node.names}
            files |= members - {""} or {project_file(node.module)}
    return files - {""}


def test_every_import_of_a_program_is_a_source_or_has_no_figures(pages):
    missing = []
    for making in pages.MAKINGS:
        if not making.sources:
            continue
        names = {*making.all_sources, *WITHOUT_FIGURES}
        missing += [
            (making.program, file)
            for file in sorted(imports_of(making.program.split()[0]))
            if names.isdisjoint({file, *map(str, Path(file).parents)})
        ]
    assert [] == missing


def test_every_page_of_results_is_known_and_no_other(pages):
    known = {making.page for making in pages.MAKINGS if making.page.startswith("docs/results/")}
    assert known == {path.relative_to(ROOT).as_posix() for path in RESULTS}
    assert len(known) <= MOST_PAGES


def test_every_program_and_source_exists_and_is_recorded(remake, pages):
    names = [(making.page, making.program) for making in pages.MAKINGS]
    assert len(set(names)) == len(names)
    sources = [path for making in pages.MAKINGS for path in (making.page, *making.all_sources)]
    assert [path for path in sources if not (ROOT / path).exists()] == []
    recorded = {(page, name) for page, made in remake.read(remake.SOURCES).items() for name in made}
    assert recorded == {(m.page, m.program) for m in pages.MAKINGS if m.sources}


@pytest.mark.parametrize("path", RESULTS, ids=[path.stem for path in RESULTS])
def test_a_page_begins_with_a_figure_and_not_with_how_it_was_made(path):
    text = re.sub(r"(?m)^<!-- .* -->\n", "", path.read_text(encoding="utf-8"))
    first = text.split("\n\n")[1]
    assert re.search(r"\d", first)
    assert not first.startswith(("Made by", "Of commit"))


def test_a_page_of_its_sources_is_not_listed(remake, bench, capsys):
    assert remake.main(["--stale"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["source.py", "program.py"])
def test_a_changed_source_is_listed_and_fails_until_the_page_says_since_when(
    remake, bench, capsys, name
):
    (bench.path / name).write_text("x = 2\n", encoding="utf-8")
    assert remake.main(["--stale"]) == 1
    assert capsys.readouterr().out == (
        "page.md by program.py: is stale and does not say since when. Of commit `abc1234`, 2026-11-28. "
        f"Changed: {name}. Make it anew with `python benchmarks/remake.py page` (5 min, needs root), or write below "
        "its title: **Stale since DATE**: REASON.\n"
    )
    page = bench.path / "page.md"
    page.write_text(page.read_text().replace("\n\n|", f"\n\n{MARK}\n\n|"), encoding="utf-8")
    assert remake.main(["--stale"]) == 0
    assert capsys.readouterr().out == (
        "page.md by program.py: Stale since 2026-11-28: the rule changed. Of commit `abc1234`, 2026-11-28. "
        f"Changed: {name}.\n"
    )


def test_a_mark_without_a_day_or_below_the_first_table_counts_for_nothing(bench):
    page = (bench.path / "page.md").read_text()
    assert bench.making.mark(f"{page}\n{MARK}\n") == ""
    assert bench.making.mark(page.replace("It is", "**Stale**: the rule changed. It is")) == ""


def test_the_mark_of_a_part_stands_in_the_part(pages, bench):
    part = pages.Making("page.md", "part.py", whole=False)
    text = f"# Title\n\nFast.\n\n<!-- made by part.py -->\n\n## Part\n\n{MARK}\n\n<!-- end of part.py -->\n"
    assert (part.mark(text), bench.making.mark(text)) == (MARK, "")


def test_a_page_that_was_made_anew_is_of_todays_sources(remake, bench, capsys):
    (bench.path / "source.py").write_text("x = 2\n", encoding="utf-8")
    assert remake.main(["page"]) == 0
    assert capsys.readouterr().out == "python program.py -o page.md (5 min, needs root)\n"
    assert (bench.path / "page.md").read_text() == "# Title\n\nNew.\n"
    assert remake.main(["--stale"]) == 0


def test_a_program_that_fails_leaves_the_record_of_its_page(remake, bench, capsys):
    before = (bench.path / "sources.json").read_text()
    (bench.path / "program.py").write_text("import sys\n\nsys.exit(3)\n", encoding="utf-8")
    assert remake.main([]) == 1
    assert (
        "python program.py -o page.md: ended with status 3; expected 0" in capsys.readouterr().err
    )
    assert (bench.path / "sources.json").read_text() == before


@pytest.fixture
def bench_before(bench, remake, monkeypatch):
    """The page's program behind commands that are run first."""

    def given(*commands):
        making = replace(bench.making, before=commands)
        monkeypatch.setattr(remake, "MAKINGS", (making,))

    return given


def test_what_the_program_reads_is_recorded_first(remake, bench, bench_before, capsys):
    (bench.path / "program.py").write_text(
        "from pathlib import Path\n\nPath('page.md').write_text(Path('run').read_text())\n",
        encoding="utf-8",
    )
    recording = """python -c "open('run', 'w').write('# Title\\n\\nRecorded.\\n')" """.strip()
    bench_before("rm -f run", recording)
    assert remake.main(["page"]) == 0
    assert (bench.path / "page.md").read_text() == "# Title\n\nRecorded.\n"
    assert capsys.readouterr().out.splitlines()[:2] == ["rm -f run", recording]


def test_a_source_that_changes_while_it_is_recorded_makes_the_page_stale(
    remake, bench, bench_before
):
    bench_before("""python -c "open('source.py', 'a').write('y = 2')" """.strip())
    assert remake.main(["page"]) == 0
    assert remake.main(["--stale"]) == 1


def test_a_command_whose_status_does_not_matter_may_fail(remake, bench, bench_before):
    bench_before("-python -c 'raise SystemExit(1)'")
    assert remake.main(["page"]) == 0
    assert (bench.path / "page.md").read_text() == "# Title\n\nNew.\n"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("python -c 'raise SystemExit(4)'", "ended with status 4; expected 0"),
        (
            "no-such-program -e a",
            "no-such-program could not start: No such file or directory; install it, or put it on PATH",
        ),
    ],
)
def test_a_command_before_it_that_fails_leaves_the_page(
    remake, bench, bench_before, capsys, command, reason
):
    page = (bench.path / "page.md").read_text()
    bench_before(command, "touch never")
    assert remake.main(["page"]) == 1
    assert capsys.readouterr().err == f"{command}: {reason}\n"
    assert (bench.path / "page.md").read_text() == page
    assert not (bench.path / "never").exists()


def test_an_unknown_page_is_refused(remake, bench, capsys):
    with pytest.raises(SystemExit):
        remake.main(["pages"])
    assert "pages is no page; expected one of page" in capsys.readouterr().err


def test_without_the_checkout_nothing_is_asked_of_git(remake):
    """`--stale` works in an archive of the sources."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a program ran"))
        assert remake.states()

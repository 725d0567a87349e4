"""What the documentation shows is what happens."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("baselines/*.md")])


@pytest.mark.parametrize("page", ["timing.md", "attention.md", "transformer.md"])
def test_the_example_of_a_page_prints_what_stands_below_it(page, capsys):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (program, printed) = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL).groups()
    exec(compile(program, page, "exec"), {})
    assert printed == capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file(page):
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []

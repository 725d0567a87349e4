"""How the pages of this folder become a site: `tox run -e docs`, or `sphinx-build -W docs OUT`.

The pages are written for GitHub, which shows them as they stand; so the menu is made of the tables of the first page.
"""

import re
import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

DOCS = Path(__file__).parent.resolve()
sys.path.insert(0, str(DOCS.parent / "plugin"))

from pytest_roofline import __version__  # noqa: E402

project = "pytest-roofline"
author = "The pytest-roofline developers"
release = version = __version__
language = "en"
extensions = ["myst_parser"]
exclude_patterns = ["results/data", "results/runs"]
html_theme = "furo"
html_title = f"pytest-roofline {version}"
html_copy_source = False
html_show_copyright = False
myst_heading_anchors = 4
# A row of the first page's tables, and the tree of the menu that all rows of a table become.
ROW = re.compile(r"^\| \[(.+?)\]\((\w[\w/-]*)\.md\) \|", re.MULTILINE)
# The first of the authors' pages, which no menu of the users' names.
ORPHAN = "---\norphan: true\n---\n\n"
TREE = "\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {caption}\n:glob:\n\n{entries}\n```\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", with_menu)
    # Pygments knows no CSV; as a language it is what the fences of the pages say.
    app.add_lexer("csv", TextLexer)


def with_menu(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add the menu to the first page and the results to theirs; a link to a file of another folder is a download."""
    outside = "../" * (page.count("/") + 1)
    source[0] = source[0].replace(f"]({outside}", f"](path:{outside}")
    if page == "index":
        _, *groups = re.split(r"^## (.+)\n", source[0], flags=re.MULTILINE)
        for caption, table in zip(groups[::2], groups[1::2], strict=True):
            entries = "\n".join(f"{title} <{name}>" for title, name in ROW.findall(table))
            source[0] += TREE.format(caption=caption, entries=entries)
    if page == "authors/design":
        entries = "/authors/*\n/results/**"
        source[0] = ORPHAN + source[0] + TREE.format(caption="For authors", entries=entries)

"""How the pages of this folder become a site: `tox run -e docs`, or `sphinx-build -W docs OUT`.

The pages are written for GitHub, which shows them as they stand. Two things differ here: pages that lie outside of this
folder stand in `about/` as stubs, whose text is read from the file itself; and links lead to these.
"""

import os
import re
import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

DOCS = Path(__file__).parent.resolve()
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT / "plugin"))

from pytest_roofline import __version__  # noqa: E402

project = "pytest-roofline"
author = "The pytest-roofline developers"
release = version = __version__
language = "en"
extensions = ["myst_parser"]
exclude_patterns = ["results/data", "results/runs", "results/figures"]
html_theme = "furo"
html_title = f"pytest-roofline {version}"
html_copy_source = False
html_show_copyright = False
myst_heading_anchors = 4
# The stub that stands for a file outside of this folder.
STUBS = {
    "README.md": "about/readme.md",
    "CONTRIBUTING.md": "about/contributing.md",
    "CHANGELOG.md": "about/changes.md",
    "baselines/README.md": "about/baselines.md",
    "baselines/published/README.md": "about/published-baselines.md",
}
FILES = {stub.removesuffix(".md"): file for file, stub in STUBS.items()}
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", read)
    # Pygments knows no CSV; as a language it is what the fences of the pages say.
    app.add_lexer("csv", TextLexer)


def read(app: Sphinx, page: str, source: list[str]) -> None:
    """Put a file's own text in place of its stub, and have links lead to where files stand on the site."""
    place = ROOT / FILES[page] if page in FILES else DOCS / f"{page}.md"
    if page in FILES:
        app.env.note_dependency(place)
        source[0] = place.read_text(encoding="utf-8")
    source[0] = LINK.sub(lambda link: f"]({translated(link[1], place.parent, (DOCS / page).parent)}", source[0])


def translated(target: str, folder: Path, page_folder: Path) -> str:
    """A link of a file in `folder`, as a page of `page_folder` has to write it. What is no file stays as it is."""
    file = (folder / target).resolve()
    if not file.exists() or not file.is_relative_to(ROOT):
        return target
    stub = STUBS.get(file.relative_to(ROOT).as_posix())
    return Path(os.path.relpath(DOCS / stub if stub else file, page_folder)).as_posix()

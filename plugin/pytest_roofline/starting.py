"""What `roofline init` writes, and where: the benchmark suite, the baselines and files for CI, as they ship.

A wheel holds them below `starter/`. An editable install has no such copies; there they are found in the source tree.
"""

import re
from pathlib import Path

from .core.errors import BadFile

HERE = Path(__file__).resolve().parent
STARTER = HERE / "starter"
# In a source tree, where this file is plugin/pytest_roofline/starting.py.
SOURCES = HERE.parents[1]
# Folders as the wheel has them below `starter/`, and in the source tree.
FOLDERS = {"perf_tests": "perf_tests", "baselines": "baselines", "ci": "docs/ci"}
# Texts that lie below `starter/` in either, and what they become.
TEXTS = {
    "pytest.ini": "pytest.ini",
    "perf_tests.md": "perf_tests/README.md",
    "baselines.md": "baselines/README.md",
}
# By the name of a CI its file as shipped, and as that CI looks for it.
CI = {
    "github": ("github-actions.yml", ".github/workflows/roofline.yml"),
    "gitlab": ("gitlab-ci.yml", ".gitlab-ci.yml"),
    "slurm": ("slurm.sbatch", "roofline.sbatch"),
}
PYTEST_INI = "pytest.ini"
# Files that hold a configuration of pytest, in its own order, and what must stand in them to be one.
CONFIGURATIONS = {
    "pytest.toml": "",
    ".pytest.toml": "",
    PYTEST_INI: "",
    ".pytest.ini": "",
    "pyproject.toml": r"\[tool\.pytest(\.ini_options)?\]",
    "tox.ini": r"\[pytest\]",
    "setup.cfg": r"\[tool:pytest\]",
}


def shipped() -> dict[str, bytes]:
    """Every file that can be written, by its path below the folder that it is written into.

    Raises:
        BadFile: this installation lacks them.
    """
    files = {target: (STARTER / name).read_bytes() for name, target in TEXTS.items()}
    for path in [*_folder("perf_tests").glob("*.py"), *_folder("baselines").glob("*.json")]:
        files[f"{path.parent.name}/{path.name}"] = path.read_bytes()
    files |= {target: (_folder("ci") / name).read_bytes() for name, target in CI.values()}
    return dict(sorted(files.items()))


def _folder(name: str) -> Path:
    for folder in (STARTER / name, SOURCES / FOLDERS[name]):
        if folder.is_dir():
            return folder
    raise BadFile(
        f"this installation of pytest-roofline has no {STARTER / name}; expected what its wheel holds there, "
        "install it anew: pip install --force-reinstall --no-deps pytest-roofline"
    )


def configured_by(folder: Path) -> str:
    """The file by which pytest is configured in a folder already; empty where there is none, or ours.

    Another `pytest.ini` would take its place without a word.
    """
    for name, told_by in CONFIGURATIONS.items():
        path = folder / name
        if path.is_file() and re.search(rf"^\s*{told_by}", path.read_text(encoding="utf-8", errors="replace"), re.M):
            ours = name == PYTEST_INI and path.read_bytes() == (STARTER / PYTEST_INI).read_bytes()
            return "" if ours else name
    return ""

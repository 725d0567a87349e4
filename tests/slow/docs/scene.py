"""A folder in which the blocks of a page are executed from top to bottom, as a reader would."""

import ast
import contextlib
import glob
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from pytest_roofline.cli.main import main

from ... import warm
from .pages import Block

# Under names by which the tests of this project do not find them.
STANDIN = Path(__file__).parent / "standin"
STANDINS = {
    "scripted.py": "conftest.py",
    "memcpy.py": "test_memcpy.py",
    "transformer.py": "test_transformer.py",
}
# A shell is needed for these alone; patterns are expanded here.
SHELL = re.compile(r"[|&;<>$`]|^\w+=")
SUMMARY = re.compile(r"^=+ (.*) in [\d.]+s.*=+$|^(\d+ \w+.*) in [\d.]+s", re.MULTILINE)
RUN_ID = re.compile(r"\b\d{8}T\d{6}\.\d{6}-\d+\b")
NUMBER = re.compile(r"[+\-−]?\d[\d,.]*(?: ?(?:s|ms|µs|ns|[KMGT]iB|%|x)\b|%)?")


class Scene:
    """The folder of a page.

    Args:
        path: an empty folder. It gets stand-ins for `perf_tests` on a device with a scripted clock, and so does a
            folder that `roofline init` has made.
    """

    def __init__(self, path: Path) -> None:
        self.path = self.here = path
        self.names: dict[str, object] = {"__name__": "page"}
        self.printed = ""
        self.exact = False
        self.imports = ""
        self.tests = 0
        stand_in(path)
        (path / "pytest.ini").write_text(
            "[pytest]\naddopts = --import-mode=importlib\npythonpath = .\n"
        )

    def play(self, block: Block) -> None:
        """Execute a block, or check what can be checked of it."""
        if file := block.word("file"):
            self.write(block, file.argument)
        elif patch := block.word("patch"):
            self.patch(block, self.path / patch.argument)
        elif block.language == "sh":
            self.printed, expected = "", block.word("exit")
            for number, command in block.commands():
                if not block.word("parse", number):
                    self.run(block, command, int(expected.argument) if expected else 0)
        elif block.language == "python":
            self.python(block)
        elif block.language == "text" and not block.word("record"):
            self.compare(block)

    def write(self, block: Block, name: str) -> None:
        """Put a block where the page says that it stands, and do what is to follow."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        if then := block.word("then"):
            status, command = re.fullmatch(r"(?:exit (\d+) )?(.*)", then.argument).groups()
            self.run(block, command, int(status or 0))

    def patch(self, block: Block, path: Path) -> None:
        """Apply a diff that names lines only."""
        old, new = (
            "".join(line[1:] for line in block.text.splitlines(keepends=True) if line[0] in signs)
            for signs in ("- ", "+ ")
        )
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{block.place}: {path.name} has not these lines once:\n{old}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def python(self, block: Block) -> None:
        """Run a program, or the tests of a file; a file of tests begins with the imports of the page so far."""
        tree = ast.parse(block.text, block.place)
        if any(
            isinstance(node, ast.FunctionDef) and node.name.startswith("test") for node in tree.body
        ):
            self.tests += 1
            name, only = f"test_block{self.tests}.py", block.word("only")
            (self.path / name).write_text(self.imports + block.text, encoding="utf-8")
            # Runs of this machine never stand beside those of the scripted one.
            chosen = f"-k '{only.argument}'" if only else ""
            self.run(block, f"pytest {name} --roofline-dir=.blocks {chosen}", 0)
        else:
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(tree, block.place, "exec"), self.names)
            self.printed, self.exact = said.getvalue(), True
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        self.imports += "".join(f"{ast.unparse(node)}\n" for node in imports)

    def run(self, block: Block, command: str, expected: int) -> None:
        """Run a command, whose exit status must be the expected one."""
        program, *words = shlex.split(command, comments=True)
        arguments = [name for word in words for name in self._expanded(word)]
        if program == "cd":
            self.here = self.here / arguments[0]
            return
        if SHELL.search(re.sub(r"'[^']*'|\"[^\"]*\"|(?:^|\s)#.*", "", command)):
            status, said = self.bash(command)
        elif program == "roofline":
            status, said = self.roofline(*arguments)
        else:
            assert program in ("pytest", "python"), (
                f"{block.place}: no test runs {program}; say why with `parse`"
            )
            status, said = self.forked(
                ["-m", "pytest", *arguments] if program == "pytest" else arguments
            )
        self.printed, self.exact = self.printed + said, False
        assert status == expected, f"{block.place}: {command}\n{self.printed}"
        if program == "pytest" and status == 0:
            others = not_passed(said) - {"deselected"}
            assert not others, (
                f"{block.place}: {command}: tests were {', '.join(sorted(others))}\n{self.printed}"
            )
        if [program, *arguments[:1]] == ["roofline", "init"]:
            stand_in(self.here / arguments[1])

    def bash(self, command: str) -> tuple[int, str]:
        """What has pipes, variables and the like."""
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.here, env=self.environment(), text=True, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240,
        )  # fmt: skip
        return done.returncode, done.stdout

    def forked(self, arguments: list[str]) -> tuple[int, str]:
        """`python ARGUMENTS`."""
        done = warm.run(arguments, cwd=self.here, env=self.environment())
        return done.returncode, done.stdout + done.stderr

    def roofline(self, *arguments: str) -> tuple[int, str]:
        """`roofline ARGUMENTS`, in this process, which has imported what it needs."""
        with (
            contextlib.chdir(self.here),
            mock.patch.dict(os.environ, self.environment(), clear=True),
        ):
            done = CliRunner().invoke(main, arguments)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    def _expanded(self, word: str) -> list[str]:
        pattern = bool(set("*?[") & set(word)) and not word.startswith("-")
        return (pattern and sorted(glob.glob(word, root_dir=self.here))) or [word]  # noqa: PTH207 - as a shell does

    def environment(self) -> dict[str, str]:
        """As of somebody who has activated the environment that runs the tests, and little patience."""
        plain = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_", "GITHUB_", "ROOFLINE_", "SLURM_"))
            and name not in ("CI", "FORCE_COLOR")
        }
        options = "-p no:cacheprovider -p no:hypothesispytest --color=no --roofline-budget=0.05"
        return plain | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "80", "NO_COLOR": "1",
            "WITHOUT_TORCH": "1", "PYTEST_ADDOPTS": options, "TRITON_CACHE_DIR": str(self.path / ".triton"),
        }  # fmt: skip

    def compare(self, block: Block) -> None:
        """Compare a text with what was printed last."""
        if self.exact:
            assert self.printed == block.text, block.place
            return
        plain = _shape if block.word("shape") else _named
        lines = iter([plain(line) for line in self.printed.splitlines()])
        for line in block.text.splitlines():
            pattern = re.escape(plain(line)).replace("…", ".*")
            printed = line in ("", "…") or any(re.fullmatch(pattern, each) for each in lines)
            assert printed, f"{block.place}: shows {line!r}; printed was\n{self.printed}"


def stand_in(folder: Path) -> None:
    """Put the stand-ins in place of the benchmarks of a folder."""
    shutil.rmtree(folder / "perf_tests", ignore_errors=True)
    (folder / "perf_tests").mkdir()
    for source, name in STANDINS.items():
        shutil.copy(STANDIN / source, folder / "perf_tests" / name)


def not_passed(printed: str) -> set[str]:
    """What pytest says that it did with tests but to let them pass: `skipped`, `xfailed`, `deselected` …"""
    found = SUMMARY.findall(printed)
    assert found, f"pytest printed no summary:\n{printed}"
    return set(re.findall(r"\d+ ([a-z]+)", "".join(found[-1]))) - {"passed", "warning", "warnings"}


def _named(line: str) -> str:
    """A line with the names of runs that were given none left open."""
    return RUN_ID.sub("RUN", line).rstrip()


def _shape(line: str) -> str:
    """A line whose numbers, and the room they take, are another machine's; neighbours may spoil a measurement."""
    plain = re.sub(r"[▁-█]+", "▁", NUMBER.sub("N", _named(line)))
    return re.sub(r"[\s─=]+", " ", plain).strip().replace("INVALID", "NO BASELINE")

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
from .executed import definitions, not_passed, passed, tests_of, used
from .pages import Block
from .shown import first_that_was_not_printed

# Under names by which the tests of this project do not find them.
STANDIN = Path(__file__).parent / "standin"
STANDINS = {"scripted.py": "conftest.py", "memcpy.py": "test_memcpy.py", "transformer.py": "test_transformer.py"}
# A shell is needed for these alone; patterns are expanded here.
SHELL = re.compile(r"[|&;<>$`]|^\w+=")


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
        # What nothing has executed yet, each with the place of its block.
        self.unused: dict[str, str] = {}
        self.written: dict[Path, str] = {}
        stand_in(path)
        (path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\npythonpath = .\n")

    def play(self, block: Block) -> None:
        """Execute a block, or check what can be checked of it."""
        if file := block.word("file"):
            self.write(block, file.argument)
        elif patch := block.word("patch"):
            self.patch(block, patch.argument)
        elif block.language == "sh":
            self.printed = ""
            for number, command in block.commands():
                self.shell(block, number, command)
        elif block.language == "python":
            self.python(block)
        elif block.language == "text":
            self.compare(block)

    def end(self) -> None:
        """The page is over: all of its code must have been executed."""
        unused = [f"{place}: nothing uses {name}" for name, place in self.unused.items()]
        still = [(path.name, place) for path, place in self.written.items() if not _mark(path).exists()]
        never = unused + [f"{place}: nothing runs {name}" for name, place in still]
        assert not never, "\n".join(never)

    def write(self, block: Block, name: str) -> None:
        """Put a block where the page says that it stands, and do what is to follow."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        if block.language == "python":
            self.written[path] = block.place
            with path.open("a", encoding="utf-8") as file:
                file.write(f"\n\nopen({str(_mark(path))!r}, 'w').close()\n")
        if then := block.word("then"):
            status, command = re.fullmatch(r"(?:exit (\d+) )?(.*)", then.argument).groups()
            self.run(block, command, int(status or 0))

    def patch(self, block: Block, name: str) -> None:
        """Apply a diff that names lines only."""
        path = self.path / name
        text = path.read_text(encoding="utf-8")
        old, new = (
            "".join(line[1:] for line in block.text.splitlines(keepends=True) if line[0] in signs)
            for signs in ("- ", "+ ")
        )
        assert text.count(old) == 1, f"{block.place}: {name} has not these lines once:\n{old}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def python(self, block: Block) -> None:
        """Run a program, or the tests of a file; a file of tests begins with the imports of the page so far."""
        tree = ast.parse(block.text, block.place)
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        if tests := tests_of(tree):
            self.test(block, tests)
        else:
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(tree, block.place, "exec"), self.names)
            self.printed, self.exact = said.getvalue(), True
            if not block.word("unused"):
                self.unused |= dict.fromkeys(definitions(tree), block.place)
            self.unused = {name: place for name, place in self.unused.items() if name not in used(tree)}
        self.imports += "".join(f"{ast.unparse(node)}\n" for node in imports)

    def test(self, block: Block, tests: set[str]) -> None:
        """Run the tests of a block, all of which must pass unless the page says which are chosen."""
        self.tests, self.printed = self.tests + 1, ""
        name, report = f"test_block{self.tests}.py", self.path / ".blocks.xml"
        (self.path / name).write_text(self.imports + block.text, encoding="utf-8")
        only = block.word("only")
        # Runs of this machine never stand beside those of the scripted one.
        chosen = f"-k '{only.argument}'" if only else ""
        self.run(block, f"pytest {name} --roofline-dir=.blocks --junitxml={report} {chosen}", 0)
        assert passed(report) == tests, f"{block.place}: defines {sorted(tests)}; printed was\n{self.printed}"
        assert only or not not_passed(self.printed), f"{block.place}: tests were left out\n{self.printed}"

    def shell(self, block: Block, number: int, command: str) -> None:
        """Run a command of a block, unless the page says why not."""
        if not block.word("parse", number):
            expected = block.word("exit")
            self.run(block, command, int(expected.argument) if expected else 0)

    def run(self, block: Block, command: str, expected: int) -> None:
        """Run a command, whose exit status must be the expected one."""
        program, *words = shlex.split(command, comments=True)
        arguments = [name for word in words for name in self._expanded(word)]
        if program == "cd":
            self.here = self.here / arguments[0]
            return
        if SHELL.search(_without_quotes(command)):
            status, said = self.bash(command)
        elif program == "roofline":
            status, said = self.roofline(*arguments)
        else:
            assert program in ("pytest", "python"), f"{block.place}: no test runs {program}; say why with `parse`"
            status, said = self.forked(["-m", "pytest", *arguments] if program == "pytest" else arguments)
        self.printed, self.exact = self.printed + said, False
        assert status == expected, f"{block.place}: {command}\n{self.printed}"
        if program == "pytest" and status == 0:
            others = not_passed(said) - {"deselected"}
            assert not others, f"{block.place}: {command}: tests were {', '.join(sorted(others))}\n{self.printed}"
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
        with contextlib.chdir(self.here), mock.patch.dict(os.environ, self.environment(), clear=True):
            done = CliRunner().invoke(main, arguments)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    def _expanded(self, word: str) -> list[str]:
        if not set("*?[") & set(word) or word.startswith("-"):
            return [word]
        found = sorted(glob.glob(word, root_dir=self.here))  # noqa: PTH207 - as a shell does
        return found or [word]

    def environment(self) -> dict[str, str]:
        """As of somebody who has activated the environment that runs the tests, and little patience."""
        scripts = str(Path(sys.executable).parent)
        plain = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTEST_", "GITHUB_", "ROOFLINE_", "SLURM_")) and name not in ("CI", "FORCE_COLOR")
        }
        options = "-p no:cacheprovider -p no:hypothesispytest --color=no --roofline-budget=0.05"
        return plain | {
            "PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": "80", "NO_COLOR": "1", "WITHOUT_TORCH": "1",
            "PYTEST_ADDOPTS": options, "TRITON_CACHE_DIR": str(self.path / ".triton"),
        }  # fmt: skip

    def compare(self, block: Block) -> None:
        """Hold a text against what was printed last."""
        if block.word("record"):
            return
        if self.exact:
            assert self.printed == block.text, block.place
            return
        line = first_that_was_not_printed(block.text, self.printed, numbers=not block.word("shape"))
        assert line is None, f"{block.place}: shows {line!r}; printed was\n{self.printed}"


def stand_in(folder: Path) -> None:
    """Put the stand-ins in place of the benchmarks of a folder."""
    shutil.rmtree(folder / "perf_tests", ignore_errors=True)
    (folder / "perf_tests").mkdir()
    for source, name in STANDINS.items():
        shutil.copy(STANDIN / source, folder / "perf_tests" / name)


def _mark(path: Path) -> Path:
    """The file that stands beside a program of a page once it was run."""
    return path.with_name(f"{path.name}.was-run")


def _without_quotes(command: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"|(?:^|\s)#.*", "", command)

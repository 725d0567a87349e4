"""The commands `roofline report` and `roofline init`.

They write reports, and the files of a new suite.
"""

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import click

from ..baselines.run_files import resolve_run
from ..baselines.run_rows import rows_of
from ..baselines.runs import Run, read_run
from ..core.errors import BadFile, BadInput, CannotStore
from ..core.units import count, printable
from ..report.files import append_summary, run_json, write_report
from ..report.folder import check_folder
from ..settings.options import SUMMARY_VARIABLE
from ..version import __version__
from .options import (
    command,
    folder_option,
    json_option_for,
    note_cuts,
    print_document,
    print_json,
    say,
)

HERE = Path(__file__).resolve().parents[1]
# A wheel has copies of the files below `starter/`. An editable install has none, and uses those of the source tree.
STARTER, SOURCES = HERE / "starter", HERE.parents[1]
# By the name below `starter/`, the folder in the source tree.
FOLDERS = {"perf_tests": "perf_tests", "baselines": "baselines", "ci": "docs/ci"}
# Texts below `starter/` in both, and the paths to which they are written.
TEXTS = {
    "pytest.ini": "pytest.ini",
    "perf_tests.md": "perf_tests/README.md",
    "baselines.md": "baselines/README.md",
}
# What the workflows of GitHub share: the shipped file, and the path at which they call it.
ACTION = {"action.yml": ".github/actions/roofline/action.yml"}
# By the name of a CI: the names of the shipped files, each with the path that the CI reads.
CI = {
    "github": {"github-actions.yml": ".github/workflows/roofline.yml"} | ACTION,
    "gitlab": {"gitlab-ci.yml": ".gitlab-ci.yml"},
    "slurm": {"slurm.sbatch": "roofline.sbatch"},
    # Two sides of a pull request, measured in turn.
    "github-ab": {"github-ab.yml": ".github/workflows/roofline-ab.yml"} | ACTION,
    "github-ab-comment": {"github-ab-comment.yml": ".github/workflows/roofline-ab-comment.yml"},
    "gitlab-ab": {"gitlab-ab.yml": ".gitlab/roofline-ab.yml"},
}
# Files that may configure pytest already, and the text that shows it. A pytest.ini beside them would hide them.
PYTEST_CONFIGS = {
    "pytest.toml": "", ".pytest.toml": "", ".pytest.ini": "", "pyproject.toml": "[tool.pytest", "tox.ini": "[pytest]",
    "setup.cfg": "[tool:pytest]",
}  # fmt: skip


@command(
    folder_option,
    json_option=json_option_for("Print the content of run.json."),
)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("-o", "--output", metavar="DIR", help="The folder to write to.")
def report(runs: tuple[str, ...], output: str | None, as_json: bool, folder: Path) -> None:
    """Write a report of RUNs into DIR: run.json, results.csv, summary.md, and index.html with plots.

    RUN is a saved name or a path; several runs make one report. Files of an earlier report are replaced. If
    GITHUB_STEP_SUMMARY names a file, the summary is appended to it as well. Nothing is judged anew: the verdicts are
    those of the runs.

    Example: roofline report driver-570 -o report

    Exit status: 0 the report is written, whatever it says, 2 the input cannot be used, or a file cannot be written.
    """
    if not runs:
        raise BadInput("no RUN is given; name one run, or several: roofline report RUN -o DIR")
    if output is None and not as_json:
        raise BadInput(
            f"neither -o DIR nor --json is given; type: roofline report {' '.join(runs)} -o report"
        )
    if output == "":
        # An empty variable in a script. As a path it would mean the working directory.
        raise BadInput("-o is empty; give a path: -o report")
    target = None if output is None else check_folder(Path(output), "-o")
    runs_read = _read_runs(runs, folder)
    if target is not None:
        _write_report(runs_read, target, silent=as_json)
    if as_json:
        print_document(run_json(runs_read))


def _read_runs(names: tuple[str, ...], folder: Path) -> list[Run]:
    """Return the named runs. Raise BadInput if two names are of the same run."""
    runs: list[Run] = []
    for name in names:
        run = read_run(resolve_run(name, folder, argument="RUN"))
        # A copy under another name would count every measurement twice.
        # `runs` has the runs of the names before this one.
        for earlier_name, earlier_run in zip(names, runs, strict=False):
            if earlier_run.header == run.header:
                raise BadInput(
                    f"{earlier_name!r} and {name!r} are the same run; name this run once"
                )
        note_cuts([run])
        # With the absolute path the report is the same as the one that the run itself writes.
        runs.append(replace(run, path=run.path.resolve()))
    return runs


def _write_report(runs: list[Run], output: Path, *, silent: bool) -> None:
    """Write the report, and print the paths unless `silent`.

    The summary is also appended to the file that a CI job names for it.
    """
    rows = rows_of(runs)
    for path in write_report(runs, output, rows):
        if not silent:
            say(printable(str(path)))
    job = os.environ.get(SUMMARY_VARIABLE)
    if job:
        append_summary(runs, Path(job), rows)


def shipped_files() -> dict[str, bytes]:
    """Return every shipped file, by its path below DIR."""
    files = {target: (STARTER / name).read_bytes() for name, target in TEXTS.items()}
    for path in [*_folder("perf_tests").glob("*.py"), *_folder("baselines").glob("*.json")]:
        files[f"{path.parent.name}/{path.name}"] = path.read_bytes()
    for paths in CI.values():
        files |= {target: (_folder("ci") / name).read_bytes() for name, target in paths.items()}
    return dict(sorted(files.items()))


def _folder(name: str) -> Path:
    """Return the folder of shipped files with this name.

    It is that of the wheel, else that of the source tree.
    """
    for folder in (STARTER / name, SOURCES / FOLDERS[name]):
        if folder.is_dir():
            return folder
    raise BadFile(
        f"this installation of pytest-roofline lacks the file {STARTER / name}; install the package again: "
        "pip install --force-reinstall --no-deps pytest-roofline"
    )


@command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--ci", type=click.Choice([*CI, "none"]), multiple=True, default=["github"], show_default=True,
    help="The CI to write a file for (repeatable).",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite what differs.")
def init(folder: Path, ci: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Write the benchmark suite, the baselines and a file for CI into DIR, a new folder or one of yours.

    A file that is there and differs is refused by name, and then nothing is written; --force overwrites it. After an
    upgrade of the package, commit what you have, call it with --force, and `git diff` shows what changed.

    Example: roofline init bench --ci gitlab

    Exit status: 0 written, 2 something is in the way or cannot be written.
    """
    left_out = _ci_paths(CI) - _ci_paths(ci)
    pytest_config = _pytest_config(folder)
    # A pytest.ini would hide an existing configuration of pytest.
    left_out |= {"pytest.ini"} if pytest_config else set()
    files = {name: content for name, content in shipped_files().items() if name not in left_out}
    changed_files = {
        name: content for name, content in files.items()
        if not (folder / name).is_file() or (folder / name).read_bytes() != content
    }  # fmt: skip
    conflicts = [name for name in changed_files if os.path.lexists(folder / name)]
    if conflicts and not force:
        raise BadInput(
            f"these files exist and differ from the shipped ones: {', '.join(conflicts)}; nothing was "
            "written; overwrite them with --force"
        )
    _write(folder, changed_files)
    if as_json:
        unchanged_files = [name for name in files if name not in changed_files]
        print_json(
            {
                "folder": str(folder),
                "version": __version__,
                "written": list(changed_files),
                "same": unchanged_files,
            }
        )
        return
    for line in _lines(folder, changed_files, ci, total=len(files)):
        say(printable(line))
    if pytest_config:
        say(f"note: no pytest.ini is written, since {pytest_config} configures pytest here")


def _ci_paths(names: Iterable[str]) -> set[str]:
    """Return the paths of the files for these CIs. The name `none` has no files."""
    return {path for name in names for path in CI.get(name, {}).values()}


def _pytest_config(folder: Path) -> str:
    """Return the file that configures pytest in a folder.

    The text is empty without one.
    """
    for name, mark in PYTEST_CONFIGS.items():
        path = folder / name
        if path.is_file() and mark in path.read_text(encoding="utf-8", errors="replace"):
            return name
    return ""


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a folder. If that fails, raise CannotStore, which tells how many files are written."""
    for written_count, (name, content) in enumerate(files.items()):
        try:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        except (OSError, RuntimeError) as error:
            progress = (
                f"{written_count} of {len(files)} files are written; correct the cause, and repeat the "
                "command with --force"
            )
            reason = getattr(error, "strerror", None) or str(error)
            raise CannotStore(f"{folder / name} cannot be written: {reason}; {progress}") from None


def _lines(
    folder: Path, changed_files: Mapping[str, bytes], ci: Iterable[str], total: int
) -> Iterator[str]:
    """Yield the lines that `init` prints.

    A note is on a CI file that is not at the top of its repository.

    `total` is the number of all files, unchanged ones included.
    """
    if changed_files:
        files = count(len(changed_files), "file")
        yield f"{files} written into {folder}: {_summary(changed_files)}"
    else:
        yield f"nothing to write: {folder} already holds all {total} files, unchanged"
    path = folder.resolve()
    top = next((place for place in (path, *path.parents) if (place / ".git").exists()), path)
    if top != path:
        yield from _notes_below_the_top(path.relative_to(top), ci)
    change_folder = "" if path == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    yield f"next: {change_folder}pytest perf_tests -k memcpy"


def _notes_below_the_top(folder: Path, ci: Iterable[str]) -> Iterator[str]:
    """Yield notes on CI files below the top of a repository.

    They are read only at the top. `folder` lies below it.
    """
    targets = sorted(_ci_paths(ci))
    workflows = [target for target in targets if target.startswith(".github")]
    if workflows:
        # Only the action measures, and looks for the suite.
        suite = f", and write `suite: {folder}` below `package:`"
        calls_action = not set(ACTION.values()).isdisjoint(workflows)
        yield (
            f"note: CI reads {', '.join(workflows)} only at the top of a repository; move .github to the top"
            f"{suite if calls_action else ''}"
        )
    for target in targets:
        if target.startswith(".gitlab"):
            yield (
                f"note: CI reads {target} only at the top of a repository; move this file to the top, and put "
                f"{folder}/ in front of the paths in this file"
            )


def _summary(changed_files: Iterable[str]) -> str:
    """Return the written files in short: `perf_tests/ 12, baselines/ 3, pytest.ini`.

    A folder with several files is one part of the summary, with their number.
    """
    counts = Counter(_top(name) for name in changed_files)
    folders = [f"{name}/ {count}" for name, count in counts.items() if count > 1]
    single_files = [name for name in changed_files if counts[_top(name)] == 1]
    return ", ".join(folders + single_files)


def _top(name: str) -> str:
    """Return the first part of a path.

    It is a folder, or the file itself.
    """
    return name.partition("/")[0]

"""Every command of `roofline`: its help, its exit status, and one JSON document on standard output with `--json`."""

import errno
import inspect
import io
import json
import math
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.files import write_baseline
from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.cli.main import SECTIONS, main
from pytest_roofline.core.entries import Baseline, ExactEntry
from pytest_roofline.core.facts import Machine
from pytest_roofline.core.memory import FailedAllocation, OutOfMemory
from pytest_roofline.core.resources import ResourceKey, Resources
from pytest_roofline.core.rows import COLUMNS
from pytest_roofline.core.storage import to_plain
from pytest_roofline.engine import inventory
from pytest_roofline.hardware import products

from ..features import TAKEN_OUT, with_installed

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"
STREAM = """Using HIP device AMD Instinct MI300X
Driver: 60241133
function,num_times,n_elements,sizeof,max_mbytes_per_sec,min_runtime,max_runtime,avg_runtime
Triad,50,268435456,8,3.94806e+06,0.0016318,0.0018,0.00166
"""
SUITE = """
import pytest

@pytest.mark.parametrize("size_bytes", [64 * 2**20], ids=["64MiB"])
def test_memcpy_d2d(roofline, size_bytes):
    raise AssertionError
"""


def leaves(command, path=()):
    """Every command that does something, by its words; those that are gone are hidden."""
    if not isinstance(command, click.Group):
        return {" ".join(path): command}
    found = {}
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        found |= {} if inner.hidden else leaves(inner, (*path, name))
    return found


COMMANDS = leaves(main)


# Arguments that work on the scene, how that ends, and arguments of which nothing can come.
ALL_CASES = {
    "compare": ("old new", 1, "old absent"),
    "explain": ("new 64MiB", 0, "new absent"),
    "profiler": ("new 64MiB=kernels.csv --calls 3", 0, "new 64MiB=absent.csv"),
    "ab": (". . test_suite.py --processes 4 --seed 1", 0, "nonsense . test_suite.py"),
    "bisect": ("fast slow --run ./bench.sh --lower ms --seed 1", 0, "old absent"),
    "drill": ("20% perf_tests -k memcpy", 1, "nonsense perf_tests"),
    "baseline propose": ("old -o proposed.json", 0, "absent -o absent.json"),
    "baseline approve": ("proposal.json --into elsewhere", 0, "absent.json"),
    "baseline show": ("memcpy", 0, "absent.json"),
    "baseline check": ("--prune --tests test_suite.py", 1, "absent.json"),
    "hardware": ("h200-sxm", 0, "one two"),
    "history": ("fleet", 0, "absent"),
    "fleet": ("fleet", 1, "new"),
    "rollout": (
        "fleet/[0-5].jsonl fleet/3[0-5].jsonl --changed node[0-2]",
        0,
        "old new --changed node[5-1]",
    ),
    "doctor": ("", 0, "--expect absent.json"),
    "init": ("begun --ci none", 0, "old.txt"),
    "import": ("stream.csv --save imported", 0, "absent.csv"),
    "export": ("old --to bencher -o bencher.json", 0, "old --to nonsense"),
    "report": ("new", 0, "absent"),
}
CASES = with_installed(ALL_CASES)


def rounds(make, seconds, count):
    """The same measurement in so many processes."""
    return [
        make.measurement(seconds, process=f"process-{number}", round=number)
        for number in range(1, count + 1)
    ]


@pytest.fixture(scope="module")
def scene(make, tmp_path_factory):
    """A folder with something for every command."""
    folder = tmp_path_factory.mktemp("scene")
    runs = folder / ".roofline" / "runs"
    slow, *again = rounds(make, 1.4e-3, 5)
    red = make.verdict(slow, "REGRESSED", reason="slower", estimate=math.log(1.4))
    ended = make.outcome(slow, "failed", verdicts=("REGRESSED",), reason="slower", by_verdict=True)
    make.save(runs / "old.jsonl", *rounds(make, 1e-3, 5))
    make.save(runs / "new.jsonl", slow, *again, red, ended)
    for index in range(36):
        node, night = index % 6, index // 6
        one = make.measurement(1e-3 * (1.4 if node == 3 else 1) * (1 + (index * 7 % 11) / 1000))
        started = f"2026-01-0{night + 1}T03:0{node}:00Z"
        save_on(
            folder / "fleet" / f"{index}.jsonl",
            make,
            one,
            f"node{node}",
            started=started,
            uuid=f"GPU-{node}",
        )
    entries = (make.measured(1e-3, 1.01e-3), make.measured(1e-3, key=make.key("gone")))
    write_baseline(folder / "baselines" / "h200.json", Baseline("h200", entries))
    write_baseline(folder / "proposal.json", Baseline("h200", entries))
    (folder / "kernels.csv").write_text("Total Time (ns),Instances,Name\n99385786,32,copy_kernel\n")
    # A bandwidth that no product has.
    plain = to_plain(products()["Tesla T4"])
    plain["peaks"]["memory_GBps"]["value"] = 1e9
    (folder / "hardware.json").write_text(
        json.dumps({"schema": 1, "products": [plain]}), encoding="utf-8"
    )
    (folder / "stream.csv").write_text(STREAM, encoding="utf-8")
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    (folder / "old.txt").write_text("a file where a folder is asked for", encoding="utf-8")
    if "bisect" not in TAKEN_OUT:
        save_pair(folder, make)
    return folder


def save_pair(folder, make):
    """A program that is slow under a variable, and two runs of this machine that differ in it."""
    from pytest_roofline.ab.command_identity import environment_of
    from pytest_roofline.ab.sides import PreparedSide, SideSpec

    program = folder / "bench.sh"
    program.write_text(
        '#!/bin/sh\ntest "$NCCL_ALGO" != Ring; echo "{\\"ms\\": $((10 + 5 * $?))}"\n', "utf-8"
    )
    program.chmod(0o755)
    here = PreparedSide(SideSpec(".", "."), "python", folder, {})
    for name, algorithm in (("slow", "Ring"), ("fast", "Tree")):
        environment = replace(environment_of(here, [], ""), variables={"NCCL_ALGO": algorithm})
        header = replace(make.header(name), environment=environment)
        path = folder / ".roofline" / "runs" / f"{name}.jsonl"
        path.write_text(encode_line(header), encoding="utf-8")


def save_on(path, make, measurement, node, started="2026-01-02T03:04:05Z", **environment):
    """A run file of one node."""
    header = make.header(f"{path.parent.name}-{path.stem}", started, **environment)
    host = replace(header.environment.host, name=node)
    header = replace(header, environment=replace(header.environment, host=host))
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "".join(map(encode_line, (header, measurement, make.outcome(measurement)))),
        encoding="utf-8",
    )


@pytest.fixture(scope="module")
def results():
    """What the good arguments of each command came to: each runs once, since some take seconds."""
    return {}


@pytest.fixture
def good(command, results):
    """Runs a command with its good arguments."""

    def run(words):
        if words not in results:
            results[words] = command(words, CASES[words][0])
        return results[words]

    return run


@pytest.fixture
def command(scene, make, monkeypatch):
    """Runs a command in the scene. The pytest of a drill leaves a run."""
    monkeypatch.chdir(scene)

    def run(words, arguments):
        with pytest.MonkeyPatch.context() as patch:
            if words == "drill":
                patch.setattr(subprocess, "run", drilled(make))
            if words == "ab":
                scripted(make, patch)
            if words == "doctor":
                # This one may be busy.
                patch.setattr(inventory, "take_stock", lambda *_: Machine(make.environment().host))
            return CliRunner().invoke(main, [*words.split(), *arguments.split(), "--json"])

    return run


def scripted(make, patch, hostile=""):
    """Stands for the processes of both sides."""
    from pytest_roofline.ab import side_process, sides

    from ..ab.conftest import World

    world = World(make, Path.cwd(), hostile)
    world.commit = lambda cwd: f"{hostile}c0ffee"
    patch.setattr(side_process, "run_child", world.run_child)
    patch.setattr(sides, "_import_paths", lambda *_: ([], []))


def drilled(make):
    """Stands for the pytest of a drill, in which one test of two did not turn red."""

    def run(command, *, env, stdout, **_):
        # What pytest prints must not stand among what is for a machine.
        assert 2 == stdout
        measurements = [make.measurement(key=make.key(name)) for name in ("red", "other")]
        verdicts = [
            make.verdict(one, word, estimate=math.log(1.2))
            for one, word in zip(measurements, ("REGRESSED", "PASSED"), strict=True)
        ]
        path = make.save(Path.cwd() / "drilled.jsonl", *measurements, *verdicts)
        Path(env["ROOFLINE_SAVED"]).write_text(str(path), encoding="utf-8")
        return subprocess.CompletedProcess(command, 1)

    return run


def documented():
    """The table of the page: by command, whether it prints a list, and the names in it."""
    rows = re.findall(
        r"^\| `roofline ([a-z ]+)` \| (list of|object:) ([^|]+) \|$", read_page(), re.MULTILINE
    )
    return {
        words: (kind == "list of", set(re.findall(r"`(\w+)`", names)))
        for words, kind, names in rows
    }


def read_page():
    return PAGE.read_text(encoding="utf-8")


def statuses_in(help_text):
    """The numbers that the last paragraph of a help explains."""
    last = help_text.rpartition("Exit status: ")[2]
    return set(re.findall(r"(?:^|[,;] )([012]) ", " ".join(last.split())))


def test_the_help_says_what_it_does_gives_an_example_and_names_every_exit_status():
    for words, command in COMMANDS.items():
        paragraphs = inspect.cleandoc(command.help).split("\n\n")
        example, statuses = paragraphs[-2:]
        assert len(paragraphs) > 2, words
        assert f" {words} " in f"{example} "
        assert re.match(r"Example: roofline ", example), words
        assert statuses.startswith("Exit status: 0 "), words
        assert {"0", "2"} <= statuses_in(statuses), words
        options = [one for one in command.params if isinstance(one, click.Option)]
        assert [] == [one.name for one in options if not one.help], words
        assert "--json" in {spelling for one in options for spelling in one.opts}, words


@pytest.mark.feature
def test_the_first_help_lists_every_command_in_its_section_on_one_whole_line():
    named = {name for names in SECTIONS.values() for name in names}
    assert named == set(main.list_commands(click.Context(main)))
    for width in (80, 200):
        printed = CliRunner().invoke(main, ["--help"], terminal_width=width).stdout
        for title, names in SECTIONS.items():
            section = re.search(rf"^{title}:\n(.*?)(?:\n\n|\Z)", printed, re.DOTALL | re.MULTILINE)[
                1
            ].splitlines()
            assert list(names) == [line.split()[0] for line in section]
            assert [] == [
                line for line in section if not line.endswith(".") or line.endswith("...")
            ]
    # A group lists its commands as a person needs them.
    expected = {
        "baseline": ["propose", "approve", "show", "check"],
    }
    for group, names in expected.items():
        printed = CliRunner().invoke(main, [group, "--help"]).stdout
        listed = re.search(r"^Commands:\n(.*)", printed, re.DOTALL | re.MULTILINE)[1].splitlines()
        assert names == [line.split()[0] for line in listed]


def test_every_command_has_a_case_here_and_a_row_on_the_page():
    assert (set(COMMANDS), set(COMMANDS)) == (set(CASES), set(with_installed(documented())))


def test_json_is_one_document_with_the_names_of_the_page_and_a_status_of_the_help(good):
    for words, (_, status, _) in CASES.items():
        done = good(words)
        assert status == done.exit_code, done.output
        document = json.loads(done.stdout)
        is_list, names = documented()[words]
        assert str(status) in statuses_in(COMMANDS[words].help), words
        assert is_list == isinstance(document, list), words
        if is_list:
            assert document, words
            assert [] == [row for row in document if not names <= set(row)], words
        else:
            assert names == set(document), words


ROW = set(COLUMNS)
# Of the doctor: a file where a folder would have to be.
NO_PLACE = "--write-expect old.txt/node.json"


def documented_kinds():
    """The table of rows of several kinds: the names of each, by command and kind, with those of every row."""
    found = {}
    for words, kinds, names in re.findall(
        r"^\| `roofline ([a-z ]+)` \| ([^|]+) \| [^|]+ \| ([^|]+) \|$", read_page(), re.M
    ):
        if kinds.startswith("`"):
            always = documented()[words][1] | (ROW if words == "compare" else set())
            found |= {
                (words, kind): always | set(re.findall(r"`(\w+)`", names))
                for kind in re.findall(r"\w+", kinds)
            }
    return found


def test_each_kind_of_row_has_the_very_names_that_the_page_says(tmp_path, make):
    """Of comparisons and baselines with rows of every kind."""
    figures = {"registers": 198, "shared_bytes": 1024, "stack_bytes": 0}
    kernel = Resources(
        ResourceKey("flash", {}, "sm_90"), "test_flash", "flash", "process-1", figures
    )
    big, small = make.measurement(key=make.key("big")), make.measurement(peak_bytes=2**20)
    lost = OutOfMemory(
        big.test_id,
        "big",
        big.key.parameters,
        big.label,
        "cuda:0",
        FailedAllocation("out of memory"),
    )
    before = make.save(tmp_path / "before.jsonl", small, big, kernel)
    grown = replace(kernel, figures=figures | {"registers": 255})
    after = make.save(tmp_path / "after.jsonl", small, lost, grown)
    published = make.published(), make.published("reference")
    exact = ExactEntry("flash", "sm_90", figures)
    write_baseline(
        tmp_path / "h200.json", Baseline("h200", (make.measured(1e-3), *published), exact=(exact,))
    )
    found = {}
    for words, arguments in (
        ("compare", (before, after)),
        ("baseline show", (tmp_path / "h200.json",)),
    ):
        done = CliRunner().invoke(main, [*words.split(), *map(str, arguments), "--json"])
        for row in json.loads(done.stdout):
            # All rows of a kind have the same names.
            kind = (words, row.get("kind") or row["metric"])
            assert found.setdefault(kind, set(row)) == set(row)
    assert documented_kinds() == found


def test_what_cannot_be_used_is_said_on_standard_error_and_standard_output_stays_empty(command):
    for words, arguments in (
        *((words, bad) for words, (_, _, bad) in CASES.items()),
        ("doctor", NO_PLACE),
    ):
        done = command(words, arguments)
        assert (2, "") == (done.exit_code, done.stdout), words
        assert done.stderr.strip(), words
        assert "Traceback" not in done.stderr, words


def test_what_is_missing_is_said_with_what_to_type():
    for words, missing, example in (
        (("init",), "argument 'DIR'", "init bench --ci gitlab"),
        (
            ("compare", "one"),
            "argument 'NEW'",
            "compare before1,before2,before3 after1,after2,after3",
        ),
        (
            ("baseline", "propose"),
            "option '-o' / '--output'",
            "baseline propose -o driver-570.json --driver 570",
        ),
        (
            ("baseline", "approve"),
            "argument 'PROPOSAL'",
            "baseline approve driver-570.json --dry-run",
        ),
    ):
        done = CliRunner().invoke(main, words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert (
            done.stderr == f"roofline: missing {missing}; type, for example: roofline {example}\n"
        )
    for words, wrong, command in (
        (("nonsense",), "no such command 'nonsense'", ""),
        (("baseline", "nonsense"), "no such command 'nonsense'", " baseline"),
        # Releases of click differ in the mark around the name.
        (("explain", "--nonsense"), "no such option( '--nonsense'|: --nonsense)", " explain"),
    ):
        done = CliRunner().invoke(main, words, prog_name="roofline")
        assert (done.exit_code, done.stdout) == (2, "")
        assert re.fullmatch(f"roofline: {wrong}; type: roofline{command} --help\n", done.stderr)
    # Words of the documentation that pytest does.
    for word, flag in (("gate", "--roofline-ci"), ("record", "--roofline-record")):
        done = CliRunner().invoke(main, (word,), prog_name="roofline")
        assert (done.exit_code, done.stderr) == (
            2,
            f"roofline: no such command '{word}'; type, for example: pytest perf_tests {flag}\n",
        )


def test_what_json_tells_is_what_the_words_tell(good):
    """The figures that decide, of the commands whose JSON is tested nowhere else."""
    flaws = json.loads(good("baseline check").stdout)
    assert {"baselines/h200.json"} == {flaw["file"] for flaw in flaws}
    assert any(not flaw["hint"] for flaw in flaws)
    drill = json.loads(good("drill").stdout)
    assert (0.2, 2, 1, "") == (
        drill["slowdown"],
        drill["compared"],
        drill["red"],
        drill["tests"][0]["not_red"],
    )
    assert drill["tests"][1]["not_red"].startswith("other[64MiB] PASSED, measured as +20.0 %")
    explained = json.loads(good("explain").stdout)
    (test,) = explained["tests"]
    assert ("REGRESSED", [1.4e-3]) == (
        test["verdict"]["kind"],
        test["processes"][0]["seconds"],
    )
    unused = [flaw for flaw in flaws if flaw["observed"].startswith("no test uses this entry")]
    assert [("gone[64MiB] (h200-sxm, 141gb; measured)", True)] == [
        (flaw["entry"], flaw["hint"]) for flaw in unused
    ]


@pytest.mark.feature("ab")
def test_what_json_tells_of_two_sides_is_their_processes_and_verdicts(good):
    told = json.loads(good("ab").stdout)
    assert (told["processes"]["A"], {row["verdict"] for row in told["tests"]}) == (4, {"PASSED"})


BYTES = os.fsdecode(b"no\xfftext")


@pytest.mark.feature("exchange")
def test_json_is_utf8_also_where_the_name_of_a_file_is_no_text(command, scene):
    cases = [
        ("explain", f"{BYTES}/run.jsonl", lambda printed: printed["run"]),
        ("export", f"old --to bencher -o {BYTES}/out.json", lambda printed: printed["file"]),
        (
            "baseline propose",
            f"old --all -o {BYTES}/proposed.json",
            lambda printed: printed["file"],
        ),
        ("import", f"stream.csv -o {BYTES}/stream.jsonl", lambda printed: printed["run"]),
    ]
    (scene / BYTES).mkdir(exist_ok=True)
    shutil.copy(scene / ".roofline" / "runs" / "new.jsonl", scene / BYTES / "run.jsonl")
    for words, arguments, told in cases:
        done = command(words, arguments)
        # The very name comes back, so that a script can open the file.
        assert Path(told(json.loads(done.stdout_bytes.decode("utf-8")))).is_file(), (
            words,
            done.stderr,
        )


def test_what_an_encoding_lacks_costs_a_letter_and_not_the_status(scene, monkeypatch):
    monkeypatch.chdir(scene)
    for words in ("compare old new", "explain new 64MiB", "hardware"):
        plain, poor = (
            CliRunner(charset=name).invoke(main, words.split()) for name in ("utf-8", "latin-1")
        )
        # The same letters, but for those that are not there.
        assert plain.stdout.encode("latin-1", "replace") == poor.stdout_bytes, words
        assert plain.exit_code == poor.exit_code, words


class Full(io.StringIO):
    """A stream on a disk that is full."""

    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_what_cannot_be_printed_is_not_all_is_well(monkeypatch, capsys):
    closed = "standard output is closed; redirect standard output to a file, such as /dev/null"
    for stream, told in ((Full(), "No space left on device"), (None, closed)):
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", stream)
            with pytest.raises(SystemExit) as ended:
                main(["hardware"])
        assert (2, f"roofline: {told}\n") == (ended.value.code, capsys.readouterr().err)

"""Whatever the files that a command reads say, what it prints steers no terminal, no log of CI and no spreadsheet."""

import json
import re
import shlex
import shutil
import subprocess
import unicodedata
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_roofline import cli
from pytest_roofline.baselines.files import read_baseline, write_baseline
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.cli.main import main
from pytest_roofline.core.entries import Baseline, ExactEntry
from pytest_roofline.core.errors import RooflineError
from pytest_roofline.core.facts import HostFacts, Machine, Property
from pytest_roofline.core.storage import to_plain, to_record
from pytest_roofline.engine import inventory
from pytest_roofline.hardware import products
from pytest_roofline.hardware.lookup import merge_hardware, read_hardware
from pytest_roofline.machine import selftest

from ..report.page.conftest import Report
from .test_commands import CASES, COMMANDS, scene, scripted

__all__ = ["scene"]
# Files of other tools; none without the feature that reads them.
DATA = Path(__file__).parents[1] / "exchange" / "data"

# Before every text of a file: commands of GitHub, also in their older form, and of Azure; what steers terminals; ids
# that are folded between any two characters.
HOSTILE = " ::stop-commands::x\n::error::y\x1b]0;t\x07\x7f\x9b31m\u202e\u2028##[set-env name=A]b##vso[task.complete]c"


def made_hostile(path, read, fields=(), keep=()):
    """Put it before every text and every free name of a file with which `read` still takes it; the fields of these."""
    texts = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
    plain, taken = [json.loads(text) for text in texts], []
    found = fields or sorted({field for record in plain for field, _ in leaves(record)})
    for field in [field for field in found if set(keep).isdisjoint(field)]:
        tried = [changed(record, field) for record in plain]
        path.write_text("".join(json.dumps(record) + "\n" for record in tried))
        try:
            taken += [field] if fields or read(path) else []
            plain = tried
        except RooflineError:
            continue
    path.write_text("".join(json.dumps(record) + "\n" for record in plain))
    return taken


def leaves(value, field=()):
    """The field of every text and of every name within: the names around it, in lists none."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*field, "names of it"), name
            yield from leaves(inner, (*field, name))
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, field)
    elif isinstance(value, str):
        yield field, value


def changed(value, field=None, within=()):
    """The same with a hostile text before each text of one field; without a field before every text."""
    if isinstance(value, dict):
        start = HOSTILE if (*within, "names of it") == field else ""
        return {
            start + name: changed(inner, field, (*within, name)) for name, inner in value.items()
        }
    if isinstance(value, list):
        return [changed(inner, field, within) for inner in value]
    return HOSTILE + value if field in (None, within) and isinstance(value, str) else value


@pytest.fixture(scope="module")
def hostile(scene, make, tmp_path_factory):
    """A folder with something hostile for every command."""
    folder = tmp_path_factory.mktemp("hostile") / "scene"
    shutil.copytree(scene, folder)
    runs = folder / ".roofline" / "runs"
    make.save(runs / "all.jsonl", *Report(make).everything())
    entries = (
        make.measured(1e-3, provenance={"a": "b"}),
        make.published(),
        make.published("reference", note="n"),
    )
    exact = ExactEntry("kernel", "sm_90", {"registers": 64})
    for name in ("baselines/h200.json", "proposal.json"):
        write_baseline(folder / name, Baseline("h200", entries, exact=(exact,)))
    counts = {
        path.stem: made_hostile(path, read_run, keep=["figures", "derived"])
        for path in sorted(runs.iterdir())
    }
    for path in sorted((folder / "fleet").iterdir()):
        made_hostile(path, read_run, counts["old"], keep=["started"])
    counts["h200"] = made_hostile(folder / "baselines" / "h200.json", read_baseline)
    counts["proposal"] = made_hostile(folder / "proposal.json", read_baseline, keep=["hardware"])
    for path in DATA.glob("*"):
        text = path.read_text(encoding="utf-8")
        said = (
            json.dumps(changed(json.loads(text)))
            if path.suffix == ".json"
            else text.replace("NVIDIA", HOSTILE)
        )
        (folder / f"hostile-{path.name}").write_text(said + HOSTILE, encoding="utf-8")
    counts["hardware"] = made_hostile(folder / "hardware.json", read_hardware)
    (folder / "site").mkdir()
    sound = {"schema": 1, "products": [to_plain(products()["Tesla T4"])]}
    (folder / "site" / "hardware.json").write_text(json.dumps(sound), encoding="utf-8")
    counts["site"] = made_hostile(
        folder / "site" / "hardware.json", lambda path: merge_hardware([path])
    )
    assert [name for name, fields in counts.items() if len(fields) < 10] == []
    return folder


@pytest.fixture
def command(hostile, make, monkeypatch):
    """Runs a command there, on a machine and with a proof that are as hostile."""
    monkeypatch.chdir(hostile)
    plain = changed(to_plain(make.environment().host))
    monkeypatch.setattr(
        inventory, "take_stock", lambda *_: Machine(to_record(plain, HostFacts, "host"))
    )
    monkeypatch.setattr(
        selftest, "selftest", lambda *_: iter([Property(HOSTILE, "FAILS", HOSTILE, HOSTILE)])
    )

    def drill(command, *, env, **_):
        Path(env["ROOFLINE_SAVED"]).write_text(".roofline/runs/new.jsonl")
        return subprocess.CompletedProcess(command, 1)

    def run(words, arguments):
        with pytest.MonkeyPatch.context() as patch:
            if words == "drill":
                patch.setattr(subprocess, "run", drill)
            if words == "ab":
                scripted(make, patch, HOSTILE)
            start = ["--hardware", "site"] if words.startswith("hardware") else []
            return CliRunner().invoke(main, [*start, *words.split(), *shlex.split(arguments)])

    return run


def steers(text):
    """The lines of a text that would steer who shows them, and such characters."""
    found = [
        line for line in text.split("\n") if re.match(r"\s*::", line) or re.search(r"##\w*\[", line)
    ]
    return found + [
        char
        for char in set(text) - {"\n", "\t"}
        if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    ]


# What more of a command prints other fields, beside the arguments that it has among all commands.
MORE = {
    "ab": (". . test_suite.py --markdown ab.md", f"'{HOSTILE}' ."),
    "compare": ("all all",),
    "rollout": (
        "'fleet/[0-2].jsonl' 'fleet/3[0-2].jsonl' --control 'fleet/[3-5].jsonl' 'fleet/3[3-5].jsonl'",
    ),
    "explain": ("all",),
    "report": ("new all -o out",),
    "export": ("all --to github-action-benchmark",),
    "baseline propose": ("all -o more.json --all",),
    "baseline approve": ("proposal.json --into other --dry-run",),
    "hardware": ("'Tesla T4'", ""),
    "doctor": ("--measure --device cpu",),
    "baseline check": ("hardware.json",),
    "history": ("fleet --minimum 0.01%",),
    "import": tuple(f"hostile-{path.name} -o {path.stem}.jsonl" for path in DATA.glob("*")),
}


def test_nothing_that_a_file_says_steers_a_terminal_or_a_log(command, hostile):
    """Printed or written by any command; a new one without a case among all commands fails there."""
    wrong, silent, before = {}, set(COMMANDS), set(hostile.rglob("*"))
    for words, (good, _, bad) in CASES.items():
        for arguments in (good, *MORE.get(words, ()), bad):
            for option in ("", " --json"):
                done = command(words, arguments + option)
                assert done.exception is None or isinstance(done.exception, SystemExit), (
                    words,
                    done.exception,
                )
                if found := steers(done.stdout) + steers(done.stderr):
                    wrong[f"{words} {arguments}{option}"] = found
                silent -= {words} if "stop-commands" in done.output else set()
    written = {
        path: path.read_bytes() for path in set(hostile.rglob("*")) - before if path.is_file()
    }
    wrong |= {
        str(path): found
        for path, data in written.items()
        if path.suffix != ".pyc" and (found := steers(data.decode().replace("\r\n", "\n")))
    }
    assert wrong == {}
    names = {path.name for path in written}
    assert names >= {
        "index.html",
        "summary.md",
        "results.csv",
        "run.json",
        "proposed.json",
    }
    # All of it goes through one door, where lines that were folded are looked at.
    doors = [
        path.name
        for path in Path(cli.__file__).parents[1].rglob("*.py")
        if "click.echo" in path.read_text()
    ]
    assert doors == ["options.py"]
    # It shows nothing of a file.
    assert silent == {"init"}

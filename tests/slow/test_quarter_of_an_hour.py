"""The plan of `benchmarks/on_hardware.py` for a card of a quarter of an hour: all of it, on the faithful fake."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from .docs.pages import read_page

ROOT = Path(__file__).parents[2]
# Installs nothing, and asks the fake. It takes as long as this machine needs: sixty times as long as a card, at most.
PYTHON = f"""#!/bin/sh
[ "$2" = pip ] && exit
exec {sys.executable} "$@" --device fake --quick --minutes 900
"""
TIMEOUT = """#!/bin/sh
shift 3
exec "$@"
"""
# A step, and a fact that it ends with.
STEPS = [
    ("probe", "failed capture"), ("attention", "attention: sdpa_cudnn-backward-full-s8192-d64"), ("copies", "copies"),
    ("gemm", "gemm"), ("trust", "selftest 1"), ("trust", "doctor"), ("driver", "nvidia-smi"), ("gate", "baseline 1"),
    ("gate", "baseline 2"), ("gate", "baseline 3"), ("gate", "propose"), ("gate", "approve"), ("gate", "gate"),
    ("gate", "drill"), ("model", "transformer"),
]  # fmt: skip


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """What two calls of the block of CONTRIBUTING.md gave, the facts that came back, and where they lie."""
    folder = tmp_path_factory.mktemp("card")
    for name, text in (("python3", PYTHON), ("timeout", TIMEOUT)):
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    for name in ("benchmarks", "kernels"):
        (folder / name).symlink_to(ROOT / name)
    (block,) = [
        block.text
        for block in read_page("CONTRIBUTING.md")
        if any(word.kind == "elsewhere" for word in block.words)
    ]
    out = folder / "out"
    out.mkdir()
    environment = os.environ | {"OUT": str(out), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    ended = [
        subprocess.run(
            ["bash", "-c", block], cwd=folder, env=environment, capture_output=True, text=True
        )
        for _ in range(2)
    ]
    facts = [json.loads(line) for line in (out / "facts.jsonl").open(encoding="utf-8")]
    return ended, facts[1:], out


def test_the_plan_runs_to_its_end_on_the_faithful_fake_and_disproves_nothing(calls):
    ended, facts, _ = calls
    assert [call.returncode for call in ended] == [0, 0], ended[0].stdout + ended[0].stderr
    assert "**Disproved**\n\n* nothing" in ended[0].stdout
    assert [fact for fact in facts if fact.get("error")] == []
    asked = [(fact["stage"], fact["what"]) for fact in facts]
    assert [step for step in asked if step in STEPS] == STEPS


def test_every_attention_that_the_fake_has_is_asked_and_the_drill_is_red(calls):
    _, facts, _ = calls
    attention = [fact["values"] for fact in facts if fact["what"].startswith("attention: ")]
    cases = {
        (case["name"], case["passes"], case["head_dim"], case["causal"])
        for case in (values["parameters"] for values in attention)
    }
    assert (len(attention), len(cases)) == (28, 28)
    assert {values["invalid"] for values in attention} == {""}
    (drill,) = [fact["values"] for fact in facts if fact["what"] == "drill"]
    assert (drill["compared"], drill["red"]) == (1, 1)


def test_a_call_behind_the_last_asks_nothing_and_two_small_files_come_back(calls):
    ended, facts, out = calls
    assert "at most" not in ended[1].stdout.partition("**Holds**")[0]
    assert ended[1].stdout == ended[0].stdout[ended[0].stdout.index("**Holds**") :]
    assert sorted(path.name for path in out.iterdir()) == ["facts.jsonl", "facts.tgz"]
    assert max(path.stat().st_size for path in out.iterdir()) < 2**20
    with tarfile.open(out / "facts.tgz") as archive:
        names = set(archive.getnames())
        page = archive.extractfile("facts/page.md").read().decode()
    runs = [fact for fact in facts if "run" in fact.get("values", {})]
    assert len([name for name in names if name.endswith(".jsonl") and "/runs/" in name]) >= len(
        runs
    )
    assert "by `python benchmarks/on_hardware.py --minutes 900`" in " ".join(page.split())

"""Whatever text a run file holds names in, the run without names holds none, and still says the same."""

import json
import math

import pytest

from pytest_roofline.baselines.rows import rows_of_run
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.bundle.archive import zipped
from pytest_roofline.bundle.making import make_bundle
from pytest_roofline.bundle.redacting import Redactor
from pytest_roofline.bundle.run_lines import command, learn, plain_lines, redacted_run
from pytest_roofline.core.figures import Figure
from pytest_roofline.core.memory import OutOfMemory
from pytest_roofline.core.memory_use import MemoryUse
from pytest_roofline.core.profiles import Profile
from pytest_roofline.core.ranks import Ranks
from pytest_roofline.core.records import Ceiling, Judgement, SessionRecord
from pytest_roofline.core.resources import ExactJudgement, FigureChange, ResourceKey, Resources
from pytest_roofline.core.samples import Block, Calibration, Samples

UUID = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
# What a text may hold, and of it what must be found nowhere.
PLANTED = (
    f" at /home/alice/hidden-project by alice@corp.example.com on gpunode17.corp.internal (10.1.2.3, "
    f"fe80::1ff:fe23:4567:890a, 00:1a:2b:3c:4d:5e) GPU-{UUID} serial 1650421003455 --token=hunter2hunter slurm job "
    "4711123 MY_DIR=topsecretvalue https://bob:pw@git.corp.example/x ghp_abcdefghijklmnopqrst0123 for alice and "
    "gpunode17"
)  # fmt: skip
SECRETS = (
    "alice", "hidden-project", "corp", "gpunode17", "10.1.2.3", "fe80", "00:1a:2b", UUID, "1650421003455", "hunter2",
    "4711123", "topsecretvalue", "git.corp", "bob", "ghp_",
)  # fmt: skip
# Fields with a fixed set of words, times, names of products, whose words always stay, and names that are planted below.
FIXED = {
    "type", "cache", "timing", "mode", "outcome", "unit", "started", "finished", "phase", "category", "made", "tool",
    "product", "cpu_model", "architecture", "hosts",
}  # fmt: skip


@pytest.fixture
def everything(make, tmp_path):
    """A run file with a record of every kind, every text of which ends with all that must not be given away."""
    one = make.measurement(
        samples=Samples((1e-3, 1.1e-3), 1, 1e-9, blocks=(Block(1, "thermal slowdown"), Block(1)), labels=("noisy",)),
        ceiling=Ceiling("traffic_GBps", 4.8e12, "datasheet", "sheet"),
        invalid="odd",
        ranks=Ranks(2, "local", "nccl", ("gpunode17", "gpunode18"), ((1e-3, 1e-3), (1e-3, 1e-3))),
    )
    told = {"test_id": one.test_id, "label": one.label}
    judged = Judgement(
        **told, verdict="REGRESSED", tolerance=0.05, reason="slow", estimate=math.log(1.3), new_s=1.3e-3,
        reference_s=1e-3, source="base", remarks=("told",), published=("figure",),
        reference=(SessionRecord((1e-3,), f"GPU-{UUID}", "2026-01-01T00:00:00Z"),),
    )  # fmt: skip
    kernel = ResourceKey("flash", {"d": "64"}, "sm_90", "k")
    records = [
        Calibration("cuda:0", 1e-9, 1e-6, 1e-6, 1e-6, process="p"),
        one,
        Figure(**told, process="p", name="share", value=0.5, unit="share"),
        MemoryUse(
            **told, process="p", device="cuda:0", name="f", peak_bytes=8, phase="forward", categories={"parameters": 8},
            before_bytes=8, missing=("none",),
        ),
        Profile(**told, process="p", device="cuda:0", calls=3, span_s=1.0, trace="trace.json", missing=("none",)),
        Resources(kernel, "test_k.py::test_k", "flash", "p", {"registers": 64}, options={"a": "b"},
                  arguments={"x": "y"}, compiler={"triton": "3.9"}, unread="no", invalid="no"),
        OutOfMemory("test_o.py::test_o", "o", {"x": "y"}, "o", "p", "cuda:0", "CUDA out of memory"),
        make.outcome(one, "failed", verdicts=("REGRESSED",), reason="slow", by_verdict=True),
        judged,
        ExactJudgement("test_k.py::test_k", "flash", "sm_90", "REGRESSED", "k", "more", "base",
                       (FigureChange("registers", 1, 64, "worse"),), ("told",)),
        make.footer(not_measured={"why": 1}),
    ]  # fmt: skip
    path = make.save(tmp_path / "r.jsonl", *records)
    lines = [plant(json.loads(line)) for line in path.read_text().splitlines()]
    lines[0]["environment"]["host"]["name"] = "gpunode17"
    lines[0]["environment"]["device"]["uuid"] = f"GPU-{UUID}"
    lines[0]["command"] += ["--password", "correct horse", "--out=/home/alice/My Documents/x", "/mnt/alice's/y z"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def plant(value, name=""):
    """The same data, every free text of which has the names behind it."""
    if isinstance(value, dict):
        free = name in ("parameters", "software", "options", "arguments", "compiler", "not_measured")
        return {key + PLANTED * free: plant(inner, "" if free else key) for key, inner in value.items()}
    if isinstance(value, list):
        return [plant(inner, name) for inner in value]
    fixed = name in FIXED or value in ("datasheet", "worse", "traffic_GBps", "parameters", "before")
    return value + PLANTED if isinstance(value, str) and not fixed else value


def clean(path):
    run, redactor = read_run(path), Redactor()
    lines = plain_lines(run)
    learn(redactor, run, lines)
    return redacted_run(redactor, run, lines)


def test_no_name_is_left_wherever_a_run_file_can_hold_one(everything):
    planted = everything.read_text(encoding="utf-8")
    assert [secret for secret in SECRETS if secret not in planted] == []
    text = clean(everything)[1].lower()
    assert [secret for secret in (*SECRETS, "correct horse", "documents") if secret.lower() in text] == []


def test_no_name_is_left_anywhere_in_the_archive_or_in_its_directory(everything, tmp_path):
    everything.with_name("test_memcpy.py").write_text(
        f"# made{PLANTED}\nimport torch\n\n\ndef test_x():\n    assert '''{PLANTED}'''\n", encoding="utf-8"
    )
    run = read_run(everything)
    made = make_bundle(run, ["memcpy", "flash", "test_o"], Redactor(), tmp_path)
    # The wheel holds this package alone, and in what is compressed any three letters stand somewhere by chance.
    held = [name.encode() + data for name, data in made.files.items() if not name.endswith(".whl")]
    assert len(held) > 5
    found = {secret for secret in SECRETS for data in held if secret.lower().encode() in data.lower()}
    assert set() == found
    names = zipped(dict.fromkeys(made.files, b"")).lower()
    assert [secret for secret in SECRETS if secret.encode() in names] == []


def test_what_the_analysis_needs_is_as_it_was(make, tmp_path):
    one = make.measurement(1.3e-3, 1.4e-3)
    path = make.save(tmp_path / "r.jsonl", one)
    before, after = read_run(path), clean(path)[0]
    assert before.measurements == after.measurements
    assert before.header.environment.device.driver == after.header.environment.device.driver == "570.86"
    assert ("host-1", "gpu-1") == (after.header.environment.host.name, after.header.environment.device.uuid)
    assert before.header.environment.software == after.header.environment.software


def test_the_run_without_names_is_read_as_any_other_and_has_the_same_rows(everything, tmp_path):
    run, text = clean(everything)
    path = tmp_path / "clean.jsonl"
    path.write_text(text, encoding="utf-8")
    again = read_run(path)
    assert run.measurements == again.measurements
    before = [(row.what, row.red, row.time_s, row.change) for row in rows_of_run(read_run(everything))]
    assert before == [(row.what, row.red, row.time_s, row.change) for row in rows_of_run(again)]


def test_a_host_has_one_placeholder_in_all_records(everything):
    run = clean(everything)[0]
    assert run.header.environment.host.name == run.measurements[0].ranks.hosts[0]
    assert run.header.environment.host.name in run.judgements[0].reason
    assert f" {run.header.environment.device.uuid} " in run.judgements[0].reason


@pytest.mark.parametrize("name", ["seconds", "passed", "warm", "H200", "label", "medians"])
def test_a_machine_that_is_called_like_a_word_of_the_file_does_not_undo_it(make, tmp_path, name):
    path = make.save(tmp_path / "r.jsonl", make.measurement(1e-3))
    path.write_text(path.read_text().replace('"name": "node"', f'"name": "{name}"'), encoding="utf-8")
    run = clean(path)[0]
    assert "host-1" == run.header.environment.host.name
    assert ("NVIDIA H200", "rotate") == (run.header.environment.device.product, run.measurements[0].key.cache)


def test_a_cut_line_is_left_out(make, tmp_path):
    path = make.save(tmp_path / "r.jsonl", make.measurement(1e-3))
    path.write_text(path.read_text() + '{"type": "outcome", "test_id": "alice', encoding="utf-8")
    run, text = clean(path)
    assert run.cut
    assert "alice" not in text


@pytest.mark.parametrize(
    ("words", "redacted"),
    [
        (["pytest", "-k", "memcpy"], ["pytest", "-k", "memcpy"]),
        (["--token", "x y z"], ["--token", "secret-1"]),
        (["--token", "--quiet"], ["--token", "--quiet"]),
        (["/a b/c d"], ["path-1"]),
        (["--out=/a b/c d"], ["--out=path-1"]),
        (["--roofline-address=n5.x"], ["--roofline-address=host-1"]),
    ],
)
def test_a_command_line_is_read_word_by_word(words, redacted):
    assert redacted == command(Redactor(), words)


def test_a_word_of_the_command_line_is_replaced_once_also_where_paths_stay():
    words = ["--token=hunter2", "/srv/x", "--token", "hunter2"]
    assert ["--token=secret-1", "/srv/x", "--token", "secret-1"] == command(Redactor(["paths"]), words)

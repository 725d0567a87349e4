"""A new driver, as `docs/new-driver.md` and `fleet.md` tell the story: every command runs, and prints what it shows."""

import glob
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_roofline.engine.host import host_facts

PAGE = Path(__file__).parents[3] / "docs" / "new-driver.md"
# Named as in perf_tests.
SUITE = """
import pytest
from pytest_roofline import Work

SIZE = 256 * 2**20
LOCAL = Work(read_bytes=SIZE, write_bytes=SIZE, payload_bytes=SIZE)
LINK = Work(payload_bytes=SIZE, wire_bytes=SIZE)
size = pytest.mark.parametrize("size_bytes", [SIZE], ids=["256MiB"])

@size
def test_memcpy_d2d(roofline, busy, size_bytes):
    roofline.measure(lambda: busy(2.7e-4), work=LOCAL, metric="auto_traffic_GBps")

@size
def test_memcpy_d2d_triton(roofline, busy, size_bytes):
    roofline.measure(lambda: busy(2.9e-4), work=LOCAL, metric="sm_traffic_GBps")

@size
@pytest.mark.parametrize("memory", ["pinned"])
def test_memcpy_h2d(roofline, busy, size_bytes, memory):
    roofline.measure(lambda: busy(4.9e-3), work=LINK, metric="pinned_auto_payload_GBps")

@size
@pytest.mark.parametrize("memory", ["pinned"])
def test_memcpy_d2h(roofline, busy, size_bytes, memory):
    roofline.measure(lambda: busy(5.0e-3), work=LINK, metric="pinned_auto_payload_GBps")

@pytest.mark.parametrize("sequence", [4096])
def test_flash_attention(roofline, busy, sequence):
    roofline.measure(lambda: busy(1e-3), work=Work(flops=5 * 10**11), metric="bf16_TFLOPS")

@pytest.mark.parametrize("passes", ["forward"])
def test_transformer(roofline, busy, passes):
    roofline.measure(lambda: busy(2e-3), work=Work(flops=8 * 10**11), metric="bf16_TFLOPS")
"""
SCATTER = {"driver-550-a": 1.0, "driver-550-b": 1.004, "driver-550-c": 0.997}
# Under the new driver: both copies within the device are slower, one way to the host is faster.
SLOW = {
    "test_memcpy_d2d[256MiB]": 1.15,
    "test_memcpy_d2d_triton[256MiB]": 1.14,
    "test_memcpy_h2d[pinned-256MiB]": 0.9,
}
NEW = "570.86"


@dataclass(frozen=True)
class Step:
    """A command of the page with what it shows below; `shown` is empty where it shows nothing."""

    command: list[str]
    shown: list[str]


def steps() -> list[Step]:
    """The commands of the page in order. Of several in a block, the last printed what stands below."""
    # What follows is of other products and of many nights, whose runs the story does not have.
    chapters = PAGE.read_text(encoding="utf-8").partition("## Devices as columns")[0]
    fleet = (PAGE.parent / "fleet.md").read_text(encoding="utf-8")
    chapters += fleet.partition("## A change on some nodes")[2].partition("With all logs")[0]
    blocks = re.findall(r"```(sh|text)\n(.*?)```", chapters, re.DOTALL)
    found: list[Step] = []
    for kind, text in blocks:
        lines = text.replace("\\\n", " ").strip("\n").splitlines()
        if kind == "sh":
            found += [Step(shlex.split(line, comments=True), []) for line in lines]
        else:
            found[-1].shown.extend(lines)
    return found


def as_of(
    line: str, name: str, device: str, host: str, driver: str, factors: dict[str, float]
) -> str:
    """A line of a run file, as of another run on another device, whose tests took so many times as long."""
    record: dict[str, Any] = json.loads(line)
    if record["type"] == "header":
        record |= {"run_id": name}
        record["environment"]["device"] |= {"uuid": device, "driver": driver}
        record["environment"]["host"]["name"] = host
    if record["type"] == "measurement":
        record["process"] = name
        factor = factors.get(record["key"]["benchmark"], 1.0)
        record["samples"]["seconds"] = [
            seconds * factor for seconds in record["samples"]["seconds"]
        ]
        record["derived"]["median_s"] *= factor
    return json.dumps(record) + "\n"


class Story:
    """The machine of the page: upgraded as the page says, with the tests of `perf_tests` on it."""

    def __init__(self, desk) -> None:
        self.desk = desk
        (desk.path / "perf_tests").mkdir()
        (desk.path / "perf_tests" / "test_suite.py").write_text(SUITE)

    def record(self) -> None:
        """Three runs under the old driver."""
        for name in SCATTER:
            self.do(["pytest", "perf_tests", f"--roofline-save={name}"])

    def do(self, command: list[str]) -> tuple[int, list[str]]:
        """Exit status and printed lines of a command of the page."""
        program, *arguments = command
        if program == "pytest":
            saved = next(
                argument.partition("=")[2] for argument in arguments if "-save=" in argument
            )
            known = SCATTER.get(saved)
            self.desk.script(slow=known) if known else self.desk.script(driver=NEW, slow=SLOW)
            result = self.desk.run(*arguments)
            return int(result.ret), result.stdout.lines
        assert program == "roofline"
        expanded = [
            name
            for argument in arguments
            for name in sorted(glob.glob(argument)) or [argument]  # noqa: PTH207
        ]
        answer = self.desk.cli(*expanded)
        return answer.exit_code, answer.output.splitlines()

    def elsewhere(
        self, name: str, source: str, factors: dict[str, float], driver: str = NEW
    ) -> Path:
        """A run of another machine: the same product, another device of another host."""
        path = self.desk.path / f"{name}.jsonl"
        lines = self.desk.run_path(source).read_text().splitlines()
        path.write_text(
            "".join(as_of(line, name, "GPU-b", "node-b", driver, factors) for line in lines)
        )
        return path

    def rollout(self) -> None:
        """Runs of twelve devices in folders: three nodes got the new driver, three did not; all got slower by 1 %."""
        lines = self.desk.run_path("driver-550-a").read_text().splitlines()
        for folder in ("before", "after", "kept-before", "kept-after"):
            (self.desk.path / folder).mkdir()
        effects = {"memcpy_d2d": 1.15, "memcpy_d2d_triton": 1.14, "memcpy_h2d": 0.9}
        for index in range(12):
            device, node = f"GPU-{index}", f"node{index // 2}"
            for side in ("before", "after"):
                upgraded = side == "after" and index < 6
                wobble = {name: 1 + 0.004 * ((5 * index + 3 * place + 7 * upgraded) % 8 - 3.5) / 3.5
                          for place, name in enumerate(NAMES)}  # fmt: skip
                factors = {
                    name: wobble[name]
                    * (1.01 if side == "after" else 1)
                    * (effects.get(name, 1) if upgraded else 1)
                    for name in NAMES
                }
                name, driver = f"{node}-{index}", NEW if upgraded else "550.54"
                text = "".join(
                    as_of(line, f"{side}-{name}", device, node, driver, factors) for line in lines
                )
                folder = self.desk.path / (side if index < 6 else f"kept-{side}")
                (folder / f"{name}.jsonl").write_text(text)


NAMES = (
    "memcpy_d2d",
    "memcpy_d2d_triton",
    "memcpy_h2d",
    "memcpy_d2h",
    "flash_attention",
    "transformer",
)


@pytest.fixture
def story(desk):
    return Story(desk)


def follows(shown: list[str], printed: list[str]) -> None:
    """Check that lines of the page are what was printed, in order; `…` stands for any number of lines, or anything."""
    at = 0
    for line in shown:
        if line != "…":
            pattern = re.compile(re.escape(line).replace("…", ".*"))
            places = [place for place, text in enumerate(printed[at:]) if pattern.fullmatch(text)]
            assert places, f"the page shows {line!r}, printed was\n" + "\n".join(printed[at:])
            at += places[0] + 1


@pytest.fixture
def on_node_a(monkeypatch):
    """A host of that name; what a process once read of its host it keeps."""
    monkeypatch.setattr("platform.node", lambda: "node-a")
    host_facts.cache_clear()
    yield
    host_facts.cache_clear()


@pytest.mark.usefixtures("on_node_a")
def test_every_command_of_the_page_prints_what_stands_below_it(story):
    statuses = []
    for step in steps():
        if "node-b.jsonl" in step.command:
            story.elsewhere("node-b", "driver-570", {"memcpy_d2d": 1.4})
        if "rollout" in step.command:
            story.rollout()
        status, printed = story.do(step.command)
        statuses.append(status)
        follows(step.shown, printed)
    assert statuses == [0, 0, 0, 1, 1, 2, 1]


def against() -> list[str]:
    return [f"--roofline-against={name}" for name in SCATTER]


def words(run) -> dict[str, str]:
    return {verdict.subject.label: verdict.kind for verdict in run.verdicts}


def test_a_new_driver_is_held_against_three_runs_of_the_old(story):
    story.record()
    status, live = story.do(["pytest", "perf_tests", *against(), "--roofline-save=new"])
    assert status == 1
    verdicts = words(story.desk.saved("new"))
    assert [label for label, word in verdicts.items() if word == "REGRESSED"] == [
        "memcpy_d2d[256MiB]", "memcpy_d2d_triton[256MiB]",
    ]  # fmt: skip
    assert [label for label, word in verdicts.items() if word == "IMPROVED"] == [
        "memcpy_h2d[pinned-256MiB]"
    ]
    assert not any("ALL TESTS SHIFTED" in line for line in live)
    # Rows for a machine say what changed.
    rows = json.loads(story.desk.cli("compare", ",".join(SCATTER), "new", "--json").stdout)
    assert len(rows) == len(NAMES)
    assert all(row["changed"] == ["driver 550.54 → 570.86"] for row in rows)
    assert all(row["between_devices"] is None and row["whole_suite"] is None for row in rows)
    story.desk.script(driver=NEW)
    assert story.desk.run("perf_tests", *against()).ret == 0

"""Eight GPUs of one product, each with a speed of its own, and the benchmarks as they are."""

import re
import shutil
from collections import Counter

import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.reasons import reason_text
from pytest_roofline.cli.main import main
from pytest_roofline.engine import quiet as siblings

from .conftest import COPIES, H2D, ROOT
from .group import Group, Member
from .standin import Rates

PAGE = ROOT / "docs" / "reference" / "verdicts.md"
H100 = "h100-sxm5-80gb"
SIBLINGS = (COPIES, "-k", "memcpy_siblings")
MEMORY = (COPIES, "-k", "memcpy_siblings and d2d")
# As published of eight GPUs of one machine.
HEALTHY = Rates(memory_GBps=2900, h2d_GBps=51.0, d2h_GBps=52.0)
SLOW = Rates(memory_GBps=2900, h2d_GBps=51.0, d2h_GBps=52.0, slow_memory=1.1)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    """The second question comes at once: a scripted card stays as busy as it is."""
    monkeypatch.setattr(siblings, "FORGOTTEN_S", 0.0)


def eight(*slow, count=8):
    return Group([H100] * count, [SLOW if index in slow else HEALTHY for index in range(count)])


def red(bench):
    return {one.subject.name for one in bench.last.verdicts if one.kind == "REGRESSED"}


def test_the_one_whose_memory_is_slower_is_named_explained_and_reported_and_nothing_else_is_red(
    bench, tmp_path
):
    result = bench.run_group(eight(3), *SIBLINGS)
    assert result.ret == pytest.ExitCode.TESTS_FAILED, result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            "memcpy_siblings?d2d?.cuda:3: REGRESSED, cuda:3 (GPU-00000003) is 10.0 % slower than its 7 siblings "
            "(2635 GB/s against 2898 GB/s*roofline doctor*swap the card with a sibling*99 % interval*",
        ]
    )
    # docs/reference/verdicts.md shows this very line, shortened at its end.
    shown = re.search(r"^memcpy_siblings.*: …$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert any(line.startswith(shown[0].removesuffix("…")) for line in result.stdout.lines)
    kinds = Counter(one.kind for one in bench.last.verdicts)
    assert (red(bench), kinds) == ({"cuda:3"}, {"PASSED": 23, "REGRESSED": 1})
    path = str(bench.last.path)
    told = CliRunner().invoke(main, ["explain", path, "memcpy_siblings[d2d].cuda:3"])
    assert told.exit_code == 0, told.output
    for said in (
        "+10.0 % time (99 % interval",
        "against the others, from 1 process",
        "slower than its 7 siblings",
    ):
        assert said in told.output
    assert (
        CliRunner().invoke(main, ["report", path, "-o", str(tmp_path / "report.html")]).exit_code
        == 0
    )


def test_each_is_measured_in_turn_and_recorded_as_what_it_is_and_becomes_no_baseline(bench):
    group = eight(*range(8))
    result = bench.run_group(group, *MEMORY)
    # All equally slow, nobody is named.
    assert (result.ret, red(bench)) == (0, set()), result.stdout.str()
    assert group.turns == [*range(8)] * 3
    result.stdout.fnmatch_lines(
        [
            "*PASSED 8 siblings, 2635 GB/s to 2635 GB/s*",
            "GREEN: 8 of 8 fast enough (8 by their siblings)",
        ]
    )
    run = bench.last
    found = [(one.key.name, one.device) for one in run.measurements]
    assert found == [(f"cuda:{index}", f"GPU-0000000{index}") for index in range(8)]
    assert all(
        "compared with each other" in run.unfit(one, accept_slower=True) for one in run.measurements
    )


def test_two_runs_are_compared_without_their_siblings(bench, tmp_path):
    paths = []
    for name, slow in (("old", ()), ("new", (3,))):
        bench.run_group(
            eight(*slow),
            COPIES,
            "-k",
            "memcpy_siblings and d2d or memcpy_d2d and 512MiB and not triton",
        )
        paths.append(shutil.copy(bench.last.path, tmp_path / f"{name}.jsonl"))
        bench.last.path.unlink()
    told = CliRunner().invoke(main, ["compare", *map(str, paths)])
    assert "siblings" not in told.output
    assert "memcpy_d2d[512MiB]" in told.output


def test_fewer_than_four_of_one_product_is_a_skip_with_need_and_found(bench):
    mixed = Group([H100] * 3 + ["l4-24gb"] * 3, [HEALTHY] * 6)
    for group, found in [
        (eight(count=3), "3"),
        (mixed, "6 in all (NVIDIA H100 80GB HBM3, NVIDIA L4)"),
    ]:
        result = bench.run_group(group, *MEMORY, "-rs")
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines([f"SKIPPED*needs 4 visible GPUs of one product, found {found}"])
    result = bench.run(H100, HEALTHY, *MEMORY, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*needs 4 visible GPUs of one product, found 0"])


def test_products_are_compared_with_their_own_kind_alone(bench):
    slower = Rates(memory_GBps=1500, h2d_GBps=25.0, d2h_GBps=25.0)
    mixed = Group(
        [H100] * 4 + ["a100-sxm4-80gb"] * 4 + ["l4-24gb"], [HEALTHY] * 4 + [slower] * 4 + [Rates()]
    )
    result = bench.run_group(mixed, *MEMORY)
    assert result.ret == 0, result.stdout.str()
    # The only one of its product has no siblings.
    assert [one.key.name for one in bench.last.measurements] == [
        f"cuda:{index}" for index in range(8)
    ]


def test_a_card_that_is_lost_or_cannot_be_opened_is_named(bench, monkeypatch):
    group = eight()
    group.members[5].lost = True
    result = bench.run_group(group, *MEMORY)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = "*DeviceError: cuda:5 (GPU-00000005) failed while it was measured alone: *GPU is lost*"
    result.stdout.fnmatch_lines([told])
    # What was taken of the others is recorded, and counts for nothing.
    assert {one.key.name for one in bench.last.measurements} == {
        f"cuda:{index}" for index in range(5)
    }
    assert all(one.invalid for one in bench.last.measurements)

    def facts(self):
        if self.index == 5:
            raise RuntimeError("CUDA error: GPU is lost")
        return self.recorded

    monkeypatch.setattr(Member, "facts", facts)
    result = bench.run_group(eight(), *MEMORY)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["*DeviceError: cuda:5 cannot be opened together with its siblings: *GPU is lost*"]
    )


def test_while_a_sibling_is_busy_links_of_the_host_are_not_judged_and_memories_are(bench):
    slow = Rates(memory_GBps=2900, h2d_GBps=20.0, d2h_GBps=20.0)
    tests = (f"{COPIES}::{H2D}", f"{COPIES}::test_memcpy_d2d[512MiB]")
    group = Group([H100] * 8, [slow] * 8)
    group.members[6].busy = 0.87
    result = bench.run_group(group, *tests)
    assert result.ret == 0, result.stdout.str()
    kinds = {one.subject.label: (one.kind, reason_text(one)) for one in bench.last.verdicts}
    word, reason = kinds["memcpy_h2d[512MiB-pinned]"]
    assert word == "INCONCLUSIVE"
    assert reason.startswith("GPU 6 (GPU-00000006) was 87 % busy: the link to the host is shared")
    assert "busy" not in kinds["memcpy_d2d[512MiB]"][1]
    # Where siblings are quiet the same link is red.
    assert (
        bench.run_group(Group([H100] * 8, [slow] * 8), *tests).ret == pytest.ExitCode.TESTS_FAILED
    )
    for share, word in [(0.87, "INCONCLUSIVE"), (0.03, "PASSED")]:
        group = eight()
        group.members[6].busy = share
        bench.run_group(group, *SIBLINGS)
        words = {one.subject.label.partition(".")[0]: one.kind for one in bench.last.verdicts}
        assert words == {
            "memcpy_siblings[d2d]": "PASSED",
            "memcpy_siblings[h2d]": word,
            "memcpy_siblings[d2h]": word,
        }

"""`roofline.resources` in a run: recorded, approved, compared, red. A script plays the compiler; once it is real."""

import json
import re
from pathlib import Path

import pytest

# pytester forgets every module that an inner run imported first, and Triton does not survive a second import.
import triton.language  # noqa: F401

import pytest_roofline.kernel_gate.compile  # noqa: F401
from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.core.errors import CannotStore
from pytest_roofline.kernel_gate import recording

NVIDIA = {
    "shared_bytes": 114688, "registers": 198, "stack_bytes": 0, "spill_stores": 0, "spill_loads": 0,
    "matrix_instructions": 24, "instructions": 900, "HGMMA": 24,
}  # fmt: skip
AMD = {
    "shared_bytes": 32768, "vgprs": 200, "agprs": 0, "sgprs": 40, "vgpr_spills": 0, "sgpr_spills": 0,
    "scratch_bytes": 0, "occupancy_waves": 2, "matrix_instructions": 48, "instructions": 900, "v_mfma": 48,
}  # fmt: skip

# What a compiler would find stands in figures.json, by target.
SUITE = """
import json
from pathlib import Path

import pytest
from pytest_roofline import Work
from pytest_roofline.kernel_gate import compile as compiling

SCRIPT = Path(__file__).parent / "figures.json"


@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    def compile_for(kernel, target, arguments, options):
        script = json.loads(SCRIPT.read_text())
        figures, versions = script["figures"][target], {{"triton": script["triton"]}}
        return compiling.Compiled(target, figures, dict(options or {{}}), {{}}, versions, script["unread"])

    monkeypatch.setattr(compiling, "compile_for", compile_for)
    monkeypatch.setattr(compiling, "is_compiled", lambda kernel: False)

{test}
"""
FLASH = """
@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_flash(roofline, target):
    found = roofline.resources("kernel", target=target, options={{"num_warps": 8}}{more})
    assert found.registers > 0
"""


@pytest.fixture
def lab(desk):
    return Lab(desk)


class Lab:
    """A desk with a compiler on it that says what a test tells it to."""

    def __init__(self, desk):
        self.desk = desk
        self.compiler()

    def compiler(self, triton="3.9.0", unread="", gfx942=None, **sm_90):
        """What the compiler finds from now on: changes of the usual figures of both targets; None takes one away."""
        nvidia = {name: value for name, value in (NVIDIA | sm_90).items() if value is not None}
        script = {
            "figures": {"sm_90": nvidia, "sm_100": nvidia, "gfx942": AMD | (gfx942 or {})},
            "triton": triton,
            "unread": unread,
        }
        (self.desk.path / "figures.json").write_text(json.dumps(script))

    def suite(self, test=None, more=""):
        self.desk.suite(SUITE.format(test=test or FLASH.format(more=more)))

    def recorded(self, test=None, more=""):
        """A baseline of what the compiler finds now."""
        self.suite(test, more)
        self.approve("first")

    def approve(self, name, *options):
        run = self.desk.run("-q", f"--roofline-save={name}")
        proposed = self.desk.cli("baseline", "propose", name, "-o", f"{name}.json", *options)
        assert proposed.exit_code == 0, proposed.output
        approved = self.desk.cli("baseline", "approve", f"{name}.json")
        assert approved.exit_code == 0, approved.output
        return run, proposed, approved

    @property
    def baseline(self):
        return self.desk.path / "baselines" / "resources.json"


def printed(result):
    return result.stdout.str()


def test_a_baseline_is_a_file_of_its_own_that_a_person_can_review(lab):
    lab.recorded()
    assert [path.name for path in lab.baseline.parent.iterdir()] == ["resources.json"]
    baseline = read_baseline(lab.baseline)
    assert [entry.label for entry in baseline.exact] == ["flash[gfx942]", "flash[sm_90]"]
    assert baseline.exact[1].figures == NVIDIA
    assert baseline.exact[1].provenance.keys() == {"tool", "run_id", "started"}
    assert lab.baseline.read_text() == json.dumps(json.loads(lab.baseline.read_text()), indent=2, sort_keys=True) + "\n"


def test_an_improvement_is_green_and_asks_for_a_new_baseline(lab):
    lab.recorded()
    lab.compiler(registers=168)
    result = lab.desk.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "IMPROVED flash[[]sm_90]: registers 198 → 168; triton 3.9.0; the baseline wants renewing",
            "2 of 2 compared: 1 IMPROVED, 1 PASSED",
        ]
    )


def test_slack_makes_a_little_more_pass_and_says_so(lab):
    lab.recorded(more=", slack={'registers': 8}")
    lab.compiler(registers=206, gfx942={"vgprs": 208})
    result = lab.desk.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["PASSED flash[[]sm_90]: registers 198 → 206; triton 3.9.0; within its slack"])
    lab.compiler(registers=207)
    assert lab.desk.run("-k", "sm_90").ret == 1


def test_more_shared_memory_than_there_is_fails_whatever_the_baseline_says(lab):
    lab.recorded()
    before = lab.baseline.read_text()
    raw = json.loads(before)
    raw["exact"][0]["figures"]["shared_bytes"] = 98304
    lab.baseline.write_text(json.dumps(raw))
    lab.compiler(gfx942={"shared_bytes": 98304})
    result = lab.desk.run("--roofline-save=big")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    text = "needs 98,304 bytes of shared memory (96 KiB), gfx942 has 65,536 (64 KiB) for a block"
    assert f"flash[gfx942]: {text}" in printed(result)
    assert "flash[gfx942]  gfx942        200   96 KiB       0      48  FAILED" in printed(result)
    lab.baseline.write_text(before)
    proposed = lab.desk.cli("baseline", "propose", "big", "-o", "big.json", "--accept-slower")
    assert f"left out: flash[gfx942] of big: {text}" in proposed.stderr
    assert [entry.label for entry in read_baseline(lab.desk.path / "big.json").exact] == ["flash[sm_90]"]


def test_more_tensor_memory_than_there_is_fails_too(lab):
    lab.suite("def test_flash(roofline):\n    roofline.resources('kernel', target='sm_100')\n")
    lab.compiler(tmem_columns=512)
    assert lab.desk.run().ret == 0
    lab.compiler(tmem_columns=576)
    result = lab.desk.run()
    assert result.ret == 1
    assert "flash@sm_100: needs 576 columns of tensor memory, sm_100 has 512 for a block" in printed(result)


EXPECTED_NOT_TO_FIT = """
def test_flash(roofline):
    from pytest_roofline.core.errors import DoesNotFit

    with pytest.raises(DoesNotFit):
        roofline.resources("kernel", target="gfx942")
    roofline.resources("kernel", target="sm_90")
"""


def test_a_test_may_expect_a_kernel_not_to_fit(lab):
    lab.suite(EXPECTED_NOT_TO_FIT)
    lab.compiler(gfx942={"shared_bytes": 98304})
    _, proposed, _ = lab.approve("first")
    assert "left out: flash@gfx942 of first: needs 98,304 bytes" in proposed.stderr
    result = lab.desk.run("--roofline-ci", "-v")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*PASSED * spills, 48 matrix instructions DOES NOT FIT; sm_90 *", "flash *gfx942 * DOES NOT FIT"]
    )
    assert [one.target for one in lab.desk.last_run().exact] == ["sm_90"]


EXHAUSTED = """
@pytest.mark.roofline(oom="record")
def test_flash(roofline):
    roofline.resources("kernel", target="sm_90")
    if (SCRIPT.parent / "full").exists():
        raise MemoryError("Unable to allocate 2. GiB for an array")
    roofline.resources("kernel", target="gfx942")
"""


def test_a_kernel_that_was_not_reached_for_want_of_memory_is_missed(lab):
    lab.recorded(EXHAUSTED)
    (lab.desk.path / "full").touch()
    result = lab.desk.run("--roofline-save=full")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "flash: ran out of memory (asked for 2.00 GiB*), where the baseline has the kernel flash@gfx942 REGRESSED",
            "1 of 1 compared: 1 PASSED",
        ]
    )
    compared = lab.desk.cli("compare", "first", "full")
    assert compared.exit_code == 1
    assert "REGRESSED flash@gfx942: ran out of memory (asked for 2.00 GiB" in compared.stdout
    assert "where it was compiled before" in compared.stdout
    assert "only in" not in compared.stderr
    assert lab.desk.cli("compare", "full", "first").exit_code == 0


def test_what_got_worse_becomes_a_baseline_only_where_it_is_accepted(lab):
    lab.recorded()
    lab.compiler(registers=255)
    lab.desk.run("-q", "--roofline-save=more")
    refused = lab.desk.cli("baseline", "propose", "more", "-o", "p.json")
    assert (
        "left out: flash[sm_90] of more: its test failed: Failed: flash[sm_90]: registers 198 → 255" in refused.stderr
    )
    accepted = lab.desk.cli("baseline", "propose", "more", "-o", "q.json", "--accept-slower")
    assert "2 exact entries for gfx942, sm_90, in q.json" in accepted.stdout
    dry = lab.desk.cli("baseline", "approve", "q.json", "--dry-run")
    assert "flash[sm_90]: replaced, registers 198 → 255" in dry.stdout
    assert f"1 exact entry would change in {lab.baseline.relative_to(lab.desk.path)}" in dry.stdout
    assert lab.desk.cli("baseline", "approve", "q.json").exit_code == 0
    assert lab.desk.run().ret == 0


def test_the_same_again_changes_no_baseline(lab):
    lab.recorded()
    before = lab.baseline.read_text()
    _, _, approved = lab.approve("again")
    assert approved.stdout == "nothing to change: baselines/resources.json already holds all that it proposes\n"
    assert lab.baseline.read_text() == before


def test_an_approval_that_ends_between_its_files_says_what_is_written(lab, monkeypatch):
    lab.suite(BOTH)
    lab.desk.run("-q", "--roofline-save=both")
    lab.desk.cli("baseline", "propose", "both", "-o", "p.json", "--all")

    def full(path, baseline):
        raise CannotStore(f"{path} cannot be written: No space left on device")

    monkeypatch.setattr(recording, "write_baseline", full)
    approved = lab.desk.cli("baseline", "approve", "p.json")
    assert approved.exit_code == 2
    assert "No space left on device; baselines/h100.json has been written already" in approved.stderr
    again = lab.desk.cli("baseline", "approve", "p.json")
    assert "written already" not in again.stderr


def test_only_takes_the_entries_that_are_named(lab):
    lab.recorded()
    lab.compiler(registers=168, gfx942={"vgprs": 180})
    lab.desk.run("-q", "--roofline-save=less")
    lab.desk.cli("baseline", "propose", "less", "-o", "p.json")
    assert lab.desk.cli("baseline", "approve", "p.json", "--only", "gfx942").exit_code == 0
    figures = {entry.target: entry.figures for entry in read_baseline(lab.baseline).exact}
    assert (figures["sm_90"]["registers"], figures["gfx942"]["vgprs"]) == (198, 180)
    assert lab.desk.cli("baseline", "approve", "p.json", "--only", "nonsense").exit_code == 2


def test_runs_that_disagree_make_no_entry(lab):
    lab.suite()
    lab.desk.run("-q", "--roofline-save=one")
    lab.compiler(registers=255)
    lab.desk.run("-q", "--roofline-save=two")
    proposed = lab.desk.cli("baseline", "propose", "one", "two", "-o", "p.json")
    assert (
        "left out: flash[sm_90]: one and two found registers 198 and 255; propose the one that is meant"
        in proposed.stderr
    )
    assert [entry.target for entry in read_baseline(lab.desk.path / "p.json").exact] == ["gfx942"]


@pytest.mark.parametrize("against", ["first", "first.json"])
def test_a_run_or_a_file_can_stand_in_for_the_baseline(lab, against):
    lab.recorded()
    lab.baseline.unlink()
    lab.compiler(spill_loads=3)
    result = lab.desk.run(f"--roofline-against={against}")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["flash[[]sm_90]: spill_loads 0 → 3 REGRESSED; exact; triton 3.9.0"])
    result.stdout.fnmatch_lines(["2 of 2 compared: 1 REGRESSED, 1 PASSED"])


def test_kernels_belong_to_their_target_and_not_to_the_machine_that_compiles_them(lab):
    lab.recorded()
    lab.desk.script(product="NVIDIA A100-SXM4-80GB")
    result = lab.desk.run("--roofline-require-baseline")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["2 of 2 compared: 2 PASSED"])
    assert lab.desk.run("--roofline-against=first").ret == 0


def test_a_missing_baseline_is_red_where_one_is_required(lab):
    lab.suite()
    result = lab.desk.run("--roofline-require-baseline", "-k", "sm_90")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "flash[[]sm_90]: NO BASELINE (no baseline recorded), and a baseline is required",
            "  compiled: 198 registers, 112 KiB shared, 0 spills, 24 matrix instructions. Details: *; record one *",
        ]
    )


def test_a_target_without_an_entry_names_those_that_have_one(lab):
    lab.recorded()
    raw = json.loads(lab.baseline.read_text())
    for entry in raw["exact"]:
        entry["parameters"] = {}
    lab.baseline.write_text(json.dumps(raw | {"exact": raw["exact"][:1]}))
    lab.suite("def test_flash(roofline):\n    roofline.resources('kernel', target='sm_90')\n")
    result = lab.desk.run("--roofline-require-baseline")
    result.stdout.fnmatch_lines(["flash@sm_90: NO BASELINE (no entry for sm_90; known for gfx942), and a *"])


def test_what_can_no_longer_be_read_is_invalid_and_red_in_ci(lab):
    lab.recorded()
    lab.compiler(
        unread="nvdisasm gave up", spill_stores=None, spill_loads=None, matrix_instructions=None, instructions=None,
        HGMMA=None,
    )  # fmt: skip
    assert lab.desk.run().ret == 0
    result = lab.desk.run("--roofline-fail-on=regressed,invalid", "-k", "sm_90")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["flash[[]sm_90]: INVALID (spill_stores, spill_loads, * cannot be compared any more: *"]
    )


def test_what_can_no_longer_be_read_replaces_no_baseline_unasked(lab):
    """A disassembler that gives a target up would else end the watch over spills in silence."""
    lab.recorded()
    lab.compiler(
        unread="nvdisasm gave up", spill_stores=None, spill_loads=None, matrix_instructions=None, instructions=None,
        HGMMA=None,
    )  # fmt: skip
    assert lab.desk.run("-q", "--roofline-save=less").ret == 0
    proposed = lab.desk.cli("baseline", "propose", "less", "-o", "p.json")
    assert "left out: flash[sm_90] of less: spill_stores, " in proposed.stderr
    assert [entry.target for entry in read_baseline(lab.desk.path / "p.json").exact] == ["gfx942"]
    accepted = lab.desk.cli("baseline", "propose", "less", "-o", "q.json", "--accept-slower")
    assert accepted.exit_code == 0
    assert "sm_90" in [entry.target for entry in read_baseline(lab.desk.path / "q.json").exact]


def test_an_acknowledged_regression_is_an_expected_failure(lab):
    lab.recorded()
    marked = '@pytest.mark.xfail(reason="known", strict=True)' + FLASH.format(more="")
    lab.suite(marked)
    lab.compiler(registers=255, gfx942={"vgpr_spills": 4})
    lab.desk.run().assert_outcomes(xfailed=2)
    lab.compiler()
    result = lab.desk.run()
    assert result.ret == 1
    result.assert_outcomes(failed=2)


def test_a_test_that_fails_for_itself_gets_no_verdict_and_no_baseline(lab):
    lab.suite(
        "def test_flash(roofline):\n"
        "    found = roofline.resources('kernel', target='sm_90')\n"
        "    assert found.registers <= 128\n"
    )
    result = lab.desk.run("--roofline-save=bad")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["flash *sm_90 * FAILED"])
    proposed = lab.desk.cli("baseline", "propose", "bad", "-o", "p.json")
    assert proposed.exit_code == 2
    assert "its test failed" in proposed.stderr


BOTH = """
def test_flash(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(flops=10**9), name="time")
    for target in ("sm_90", "gfx942"):
        roofline.resources("kernel", target=target)
"""


def test_a_red_kernel_ends_a_test_whose_time_is_still_open(lab):
    lab.desk.sessions(SUITE.format(test=BOTH))
    lab.compiler(registers=255)
    lab.desk.script(slow=1.06)
    result = lab.desk.run(*[f"--roofline-against=day{day}" for day in range(1, 6)], "--roofline-rounds=2")
    assert result.ret == 1
    assert "HELD" not in printed(result)
    assert "round 2" not in printed(result)
    result.stdout.fnmatch_lines(["flash@sm_90: registers 198 → 255 REGRESSED; exact; triton 3.9.0"])


def test_rounds_for_a_time_leave_its_kernels_alone(lab):
    lab.desk.sessions(SUITE.format(test=BOTH))
    lab.desk.script(slow=[1.04, 1.04])
    result = lab.desk.run(*[f"--roofline-against=day{day}" for day in range(1, 6)], "--roofline-rounds=2")
    assert "round 2" in printed(result)
    assert len(lab.desk.last_run().resources) == 2
    result.stdout.fnmatch_lines(["1 measured, 2 compiled, 2 rounds"])


def test_two_kernels_of_one_target_need_names(lab):
    twice = (
        "def test_flash(roofline):\n"
        "    for name in {names}:\n"
        "        roofline.resources('kernel', target='sm_90', name=name)\n"
    )
    lab.suite(twice.format(names=(None, None)))
    result = lab.desk.run()
    assert result.ret == 1
    assert "this test compiles twice for sm_90 under no name; give each measurement a name of its own" in printed(
        result
    )
    lab.suite(twice.format(names=("forward", "backward")))
    result = lab.desk.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["flash.forward *", "flash.backward *"])


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("'kernel'", "no target is given"),
        ("'kernel', target='sm_90', slack={'FFMA': 1}", "slack names 'FFMA'"),
        ("'kernel', target='sm_90', arguments=['*bf16']", "arguments is ['*bf16']; expected a mapping by name"),
        ("'kernel', target='sm_90', options=8", "options is 8; expected a mapping by name"),
    ],
)
def test_what_cannot_be_used_gets_a_sentence(lab, call, told):
    lab.suite(f"def test_flash(roofline):\n    roofline.resources({call})\n")
    result = lab.desk.run()
    assert result.ret == 1
    assert told in printed(result)


def test_a_compiled_kernel_stands_for_itself(lab):
    lab.suite(
        "def test_flash(roofline, monkeypatch):\n"
        "    monkeypatch.setattr(compiling, 'is_compiled', lambda kernel: True)\n"
        "    roofline.resources('kernel', target='sm_90', options={})\n"
    )
    result = lab.desk.run()
    assert "target and options given for a kernel that is compiled already; expected it alone" in printed(result)


def test_a_damaged_baseline_of_kernels_stops_the_run_with_a_sentence(lab, sentence):
    lab.recorded()
    raw = json.loads(lab.baseline.read_text())
    raw["exact"][0]["figures"]["vgprs"] = "many"
    lab.baseline.write_text(json.dumps(raw))
    sentence(lab.desk.run(), "resources.json", "$.exact[0].figures")


def test_two_runs_are_compared_offline_by_the_same_rule(lab):
    lab.suite()
    lab.desk.run("-q", "--roofline-save=old")
    lab.compiler(registers=255, spill_stores=12, gfx942={"vgprs": 180})
    lab.desk.run("-q", "--roofline-save=new")
    compared = lab.desk.cli("compare", "old", "new")
    assert compared.exit_code == 1
    assert "REGRESSED flash[sm_90]: registers 198 → 255, spill_stores 0 → 12; triton 3.9.0" in compared.stdout
    assert "IMPROVED flash[gfx942]: vgprs 200 → 180; triton 3.9.0" in compared.stdout
    assert compared.stdout.endswith("1 REGRESSED, 1 IMPROVED\n")
    assert lab.desk.cli("compare", "new", "new").exit_code == 0
    rows = json.loads(lab.desk.cli("compare", "old", "new", "--json").stdout)
    assert [(row["label"], row["verdict"], row["worse"]) for row in rows] == [
        ("flash[sm_90]", "REGRESSED", ["registers", "spill_stores"]),
        ("flash[gfx942]", "IMPROVED", []),
    ]


def test_a_kernel_that_no_longer_fits_is_a_regression_offline_too(lab):
    lab.suite()
    lab.desk.run("-q", "--roofline-save=old")
    lab.compiler(gfx942={"shared_bytes": 98304})
    lab.desk.run("-q", "--roofline-save=big")
    compared = lab.desk.cli("compare", "old", "big")
    assert compared.exit_code == 1
    assert "REGRESSED flash[gfx942]: needs 98,304 bytes of shared memory" in compared.stdout
    # The newest word stands, also where an older one was better; and the last good one is what is compared with.
    assert lab.desk.cli("compare", "old", "old,big").exit_code == 1
    assert lab.desk.cli("compare", "old,big", "big").exit_code == 1
    assert lab.desk.cli("compare", "old,big", "old").exit_code == 0
    # Where it never fitted there is nothing to lose.
    alone = lab.desk.cli("compare", "big", "big")
    assert "INVALID flash[gfx942]: needs 98,304 bytes" in alone.stdout
    assert alone.exit_code == 0


def test_kernels_that_only_one_side_has_are_named(lab):
    lab.suite()
    lab.desk.run("-q", "--roofline-save=old")
    lab.desk.run("-q", "--roofline-save=new", "-k", "sm_90")
    compared = lab.desk.cli("compare", "old", "new")
    assert "note: only in old: flash[gfx942]" in compared.stderr
    assert "NO BASELINE flash[gfx942]: old has" not in compared.stdout
    back = lab.desk.cli("compare", "new", "old")
    assert "NO BASELINE flash[gfx942]: no entry for gfx942; known for sm_90" in back.stdout


def test_show_and_check_know_exact_entries(lab):
    lab.recorded()
    shown = lab.desk.cli("baseline", "show", "sm_90")
    assert "flash[sm_90]  sm_90         198  112 KiB       0      24  3.9.0" in shown.stdout
    assert "gfx942" not in shown.stdout
    assert json.loads(lab.desk.cli("baseline", "show", "--json").stdout)[0]["kind"] == "exact"
    assert lab.desk.cli("baseline", "check").stdout == "nothing wrong in 2 entries of 1 file\n"
    raw = json.loads(lab.baseline.read_text())
    raw["exact"][0]["figures"]["shared_bytes"] = 98304
    raw["exact"][1]["provenance"] = {}
    lab.baseline.write_text(json.dumps(raw))
    checked = lab.desk.cli("baseline", "check")
    assert checked.exit_code == 1
    assert "flash[gfx942]: needs 98,304 bytes of shared memory" in checked.stdout
    assert "flash[sm_90]: no provenance" in checked.stdout


def test_prune_finds_kernels_that_no_test_compiles_any_more(lab):
    lab.recorded()
    lab.suite(FLASH.format(more="").replace('"sm_90", "gfx942"', '"sm_90"'))
    pruned = lab.desk.cli("baseline", "prune", "--tests", "test_suite.py", "--apply")
    assert pruned.exit_code == 0, pruned.output
    assert "flash[gfx942] (gfx942; exact): its test has other parameters now" in pruned.stdout
    assert [entry.target for entry in read_baseline(lab.baseline).exact] == ["sm_90"]


def test_saved_runs_of_kernels_alone_are_found_without_naming_them(lab):
    lab.suite()
    lab.desk.run("-q", "--roofline-save=one")
    lab.desk.run("-q", "--roofline-save=two", "-k", "sm_90")
    proposed = lab.desk.cli("baseline", "propose", "-o", "p.json")
    assert proposed.exit_code == 0, proposed.output
    (newest,) = {e.provenance["run_id"] for e in read_baseline(lab.desk.path / "p.json").exact if e.target == "gfx942"}
    assert newest == "one"


def test_the_page_on_the_compile_gate_shows_what_happens(desk, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
    page = (Path(__file__).parents[2] / "docs" / "compile-gate.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL))
    for name, text in blocks.items():
        (desk.path / name).write_text(text)
    test = desk.path / "test_kernels.py"
    desk.pytester.syspathinsert()
    result = desk.run("test_kernels.py", "--roofline-save=first")
    assert result.ret == 0, printed(result)
    for command in re.findall(r"^roofline (baseline .*)$", page, re.MULTILINE)[:2]:
        answer = desk.cli(*command.split())
        assert answer.exit_code == 0, answer.output
    desk.run("test_kernels.py").stdout.fnmatch_lines(["2 of 2 compared: 2 PASSED", "0 measured, 2 compiled"])
    (change,) = re.findall(r"^-(.*)\n\+(.*)$", page, re.MULTILINE)
    test.write_text(test.read_text().replace(*(line.strip() for line in change)))
    result = desk.run("test_kernels.py")
    assert result.ret == 1
    red = re.search(r"^(multiply\[sm_90\]: .*? REGRESSED)", page, re.MULTILINE)[1]
    figures = re.findall(r"(\S+) \d+ → \d+", red)
    found = re.search(r"^multiply\[sm_90\]: (.*?) REGRESSED", printed(result), re.MULTILINE)[1]
    assert re.findall(r"(\S+) \d+ → \d+", found) == figures

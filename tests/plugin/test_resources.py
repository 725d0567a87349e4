"""`roofline.resources` in a run: recorded, approved, compared, red. A script plays the compiler."""

import json

import pytest

# pytester forgets every module that an inner run imported first, and Triton does not survive a second import.
import triton.language  # noqa: F401

import pytest_roofline.kernel_gate.compile  # noqa: F401
from pytest_roofline.baselines.files import read_baseline

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
        return compiling.KernelBinary(target, figures, dict(options or {{}}), {{}}, versions, script["unread"])

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
        run = self.desk.run(f"--roofline-save={name}")
        proposed = self.desk.cli("baseline", "propose", name, "-o", f"{name}.json", *options)
        assert proposed.exit_code == 0, proposed.output
        approved = self.desk.cli("baseline", "approve", f"{name}.json")
        assert approved.exit_code == 0, approved.output
        return run, proposed, approved

    @property
    def baseline(self):
        return self.desk.path / "baselines" / "resources.json"

    def edit(self, change):
        """Have `change` edit the exact entries of the baseline."""
        raw = json.loads(self.baseline.read_text())
        change(raw["exact"])
        self.baseline.write_text(json.dumps(raw))

    def cli(self, *command):
        """Exit status and all that a command prints."""
        done = self.desk.cli(*command)
        return done.exit_code, done.output

    def propose(self, *words):
        """What a proposal of runs prints, and the targets that it has."""
        path = self.desk.path / "p.json"
        path.unlink(missing_ok=True)
        code, text = self.cli("baseline", "propose", *words, "-o", path.name)
        return text, [entry.target for entry in read_baseline(path).exact] if code == 0 else None


def printed(result):
    return result.stdout.str()


ONE = "def test_flash(roofline{more}):\n    {call}\n"
# What a disassembler that gives a target up no longer tells.
GONE = {"unread": "nvdisasm gave up"} | dict.fromkeys(
    ("spill_stores", "spill_loads", "matrix_instructions", "instructions", "HGMMA")
)


def test_a_baseline_is_a_file_of_its_own_that_the_next_runs_are_judged_by(lab):
    lab.recorded(more=", slack={'spill_loads': 2}")
    assert [path.name for path in lab.baseline.parent.iterdir()] == ["resources.json"]
    baseline = read_baseline(lab.baseline)
    assert [entry.label for entry in baseline.exact] == ["flash[gfx942]", "flash[sm_90]"]
    assert baseline.exact[1].figures == NVIDIA
    assert baseline.exact[1].provenance.keys() == {"tool", "run_id", "started"}
    assert (
        lab.baseline.read_text()
        == json.dumps(json.loads(lab.baseline.read_text()), indent=2, sort_keys=True) + "\n"
    )
    for found, status, lines in (
        # Kernels belong to their target, and not to the machine that compiles them.
        ({}, 0, ["GREEN: 2 of 2 *"]),
        (
            {"registers": 168},
            0,
            [
                "IMPROVED flash[[]sm_90]: registers 198 → 168; triton 3.9.0; renew the baseline",
                "GREEN: 2 of 2 *",
            ],
        ),
        (
            {"spill_loads": 2},
            0,
            ["PASSED flash[[]sm_90]: spill_loads 0 → 2; triton 3.9.0; within its slack"],
        ),
        (
            {"spill_loads": 3},
            1,
            ["flash[[]sm_90]: spill_loads 0 → 3 REGRESSED; exact; triton 3.9.0"],
        ),
    ):
        lab.compiler(**found)
        lab.desk.script(product="NVIDIA A100-SXM4-80GB")
        result = lab.desk.run("--roofline-fail-on=+no-baseline")
        assert result.ret == status, found
        result.stdout.fnmatch_lines(lines)
    # A run or a file can stand in for the baseline.
    lab.baseline.unlink()
    for against in ("first", "first.json"):
        result = lab.desk.run(f"--roofline-against={against}")
        assert result.ret == 1
        result.stdout.fnmatch_lines(["RED: 1 REGRESSED, 1 of 2 *"])


def test_what_needs_more_than_the_target_has_fails_whatever_the_baseline_says(lab):
    lab.recorded()
    before = lab.baseline.read_text()
    lab.edit(lambda exact: exact[0]["figures"].update(shared_bytes=98304))
    lab.compiler(gfx942={"shared_bytes": 98304})
    result = lab.desk.run("--roofline-save=big")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    text = "needs 98,304 bytes of shared memory (96 KiB), but gfx942 has only 65,536 (64 KiB) for a block"
    assert f"flash[gfx942]: {text}" in printed(result)
    assert "flash[gfx942]  gfx942        200   96 KiB       0      48  FAILED" in printed(result)
    lab.edit(lambda exact: exact[1].update(provenance={}))
    code, checked = lab.cli("baseline", "check")
    assert (code, "flash[sm_90]: no provenance" in checked) == (1, True)
    lab.baseline.write_text(before)
    told, targets = lab.propose("big", "--accept-slower")
    assert (f"left out: flash[gfx942] of big: {text}" in told, targets) == (True, ["sm_90"])
    lab.desk.run("--roofline-save=again")
    # Offline it is a regression too; where it never fitted there is nothing to lose.
    for old, new, status, line in (
        ("first", "big", 1, f"REGRESSED flash[gfx942]: {text[:36]}"),
        ("first,big", "again", 1, "REGRESSED"),
        ("big", "again", 0, f"INVALID flash[gfx942]: {text[:20]}"),
    ):
        code, compared = lab.cli("compare", old, new)
        assert (code, line in compared) == (status, True), (old, new, compared)


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
        [
            "*PASSED * spills, 48 matrix instructions DOES NOT FIT; sm_90 *",
            "flash *gfx942 * DOES NOT FIT",
        ]
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
            "RED: 1 REGRESSED, 1 of 2 no worse",
        ]
    )
    code, compared = lab.cli("compare", "first", "full")
    assert code == 1
    assert "REGRESSED flash@gfx942: ran out of memory (asked for 2.00 GiB" in compared
    assert "but was compiled before" in compared
    assert "only in" not in compared


def missed_by(lab, *options):
    """Return the exit status of a gate, and what its lines say of entries that it did not measure."""
    result = lab.desk.run("--roofline-ci", *options)
    return result.ret, [line for line in result.stdout.lines if "of the baseline's entries" in line]


MISSED = "GATE: this run did not measure 1 of the baseline's entries (flash[gfx942]: {})"


def test_a_kernel_of_the_baseline_that_nobody_compiled_is_red_where_the_run_covers_it(lab):
    lab.recorded()
    text = SUITE.format(test=FLASH.format(more=""))
    cut = text.replace('["sm_90", "gfx942"]', '["sm_90"]')
    lab.desk.suite(cut)
    for options in ((), ("test_suite.py",), ("-k", "flash"), ("test_suite.py::test_flash",)):
        expected = MISSED.format("the test has other parameters now")
        status, lines = missed_by(lab, *options)
        assert (1, expected) == (status, lines[0]), options
    for options in (("-k", "sm_90"), ("test_suite.py::test_flash[sm_90]",)):
        assert (0, []) == missed_by(lab, *options), options
    skipping = '    if target == "gfx942":\n        pytest.skip("broken")\n    found ='
    lab.desk.suite(text.replace("    found =", skipping))
    status, lines = missed_by(lab)
    assert (1, MISSED.format("the test was skipped: broken")) == (status, lines[0])
    lab.desk.suite(cut)
    pruned = lab.desk.cli("baseline", "check", "--prune", "--apply")
    assert 0 == pruned.exit_code, pruned.output
    assert (0, []) == missed_by(lab)


def test_a_kernel_whose_entry_does_not_name_its_test_is_named_and_not_judged(lab):
    lab.recorded()
    lab.edit(lambda entries: [entry.pop("test") for entry in entries])
    lab.desk.suite(SUITE.format(test=FLASH.format(more="")).replace(', "gfx942"]', "]"))
    status, (line,) = missed_by(lab)
    assert 0 == status
    assert "no entry of these names its test (flash[gfx942])" in line


def test_a_kernel_that_only_another_machine_compiles_is_not_missed(lab):
    launched = "@pytest.mark.roofline({needs})\n" + ONE.format(
        more="", call='roofline.resources("kernel", target="{target}")'
    )
    lab.recorded(launched.format(needs="", target="gfx942"))
    lab.suite(launched.format(needs="", target="sm_90"))
    lab.approve("second")
    assert (0, []) == missed_by(lab)
    lab.suite(launched.format(needs="", target="sm_90").replace("flash", "gone"))
    status, lines = missed_by(lab)
    assert 1 == status
    assert "this run did not measure 2 of the baseline's entries" in lines[0]


def test_the_entry_of_a_test_that_moved_is_replaced_though_its_kernel_is_the_same(lab):
    lab.recorded()
    (lab.desk.path / "test_suite.py").rename(lab.desk.path / "test_moved.py")
    _, _, approved = lab.approve("moved")
    assert "replaced, the same figures, compiled differently or by another test" in approved.output
    tests = {entry.test.id.partition("::")[0] for entry in read_baseline(lab.baseline).exact}
    assert {"test_moved.py"} == tests


def test_what_got_worse_becomes_a_baseline_only_where_it_is_accepted(lab):
    lab.recorded()
    before = lab.baseline.read_text()
    # The same again from a later run is no news.
    _, _, approved = lab.approve("again")
    assert (
        approved.stdout
        == "nothing to change: baselines/resources.json already holds all entries of the proposal\n"
    )
    assert lab.baseline.read_text() == before
    lab.compiler(registers=255, spill_stores=12, gfx942={"vgprs": 180})
    lab.desk.run("--roofline-save=more")
    told, targets = lab.propose("more")
    assert (
        "left out: flash[sm_90] of more: the test failed: Failed: flash[sm_90]: registers 198 → 255"
        in told
    )
    assert targets == ["gfx942"]
    # Runs that disagree make no entry.
    told, targets = lab.propose("first", "more", "--accept-slower")
    assert (
        "left out: flash[sm_90]: the runs first and more differ in registers 198 and 255, spill_stores 0 and 12; "
        "propose only one of these runs" in told
    )
    assert targets is None
    accepted, _ = lab.propose("more", "--accept-slower")
    assert "2 exact entries for gfx942, sm_90, in p.json" in accepted
    assert lab.cli("baseline", "approve", "p.json")[0] == 0
    assert lab.desk.run().ret == 0


BOTH = """
def test_flash(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(flops=10**9), name="time")
    for target in ("sm_90", "gfx942"):
        roofline.resources("kernel", target=target)
"""


def test_a_missing_baseline_is_red_where_one_is_required_and_names_the_targets_that_have_one(lab):
    lab.suite()
    result = lab.desk.run("--roofline-fail-on=+no-baseline", "-k", "sm_90", "--roofline-save=part")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "flash[[]sm_90]: NO BASELINE (no baseline recorded), and a baseline is required",
            "  compiled: 198 registers, 112 KiB shared, 0 spills, 24 matrix instructions. Details: *; record a base*",
        ]
    )
    lab.desk.run("--roofline-save=whole")
    # Saved runs of kernels alone are found without naming them.
    told, targets = lab.propose()
    assert targets == ["gfx942", "sm_90"], told
    assert "note: tests only in whole: flash[gfx942]" in lab.cli("compare", "whole", "part")[1]
    _, back = lab.cli("compare", "part", "whole")
    assert "NO BASELINE flash[gfx942]: no entry for gfx942; there are entries for sm_90" in back


def test_what_can_no_longer_be_read_is_invalid_and_replaces_no_baseline_unasked(lab):
    """A disassembler that gives a target up would else end the watch over spills in silence."""
    lab.recorded()
    lab.compiler(**GONE)
    assert lab.desk.run("--roofline-save=less").ret == 0
    result = lab.desk.run("--roofline-fail-on=regressed,invalid", "-k", "sm_90")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["flash[[]sm_90]: INVALID (spill_stores, spill_loads, * can no longer be compared: *"]
    )
    told, targets = lab.propose("less")
    assert ("left out: flash[sm_90] of less: spill_stores, " in told, targets) == (True, ["gfx942"])
    assert lab.propose("less", "--accept-slower")[1] == ["gfx942", "sm_90"]


def test_a_test_that_fails_for_itself_gets_no_verdict_and_no_baseline(lab):
    lab.suite(
        ONE.format(
            more="", call="assert roofline.resources('kernel', target='sm_90').registers <= 128"
        )
    )
    lab.desk.run("--roofline-save=bad").stdout.fnmatch_lines(["flash *sm_90 * FAILED"])
    told, targets = lab.propose("bad")
    assert ("the test failed" in told, targets) == (True, None)


def test_a_red_kernel_ends_a_test_whose_time_is_still_open_and_rounds_leave_kernels_alone(lab):
    lab.desk.sessions(SUITE.format(test=BOTH))
    against = [f"--roofline-against=day{day}" for day in range(1, 6)]
    lab.desk.script(slow=[1.06, 1.06])
    result = lab.desk.run(*against, "--roofline-rounds=2")
    assert "round 2" in printed(result)
    assert len(lab.desk.last_run().resources) == 2
    result.stdout.fnmatch_lines(["1 measured, 2 compiled, 2 rounds"])
    lab.compiler(registers=255)
    lab.desk.script(slow=1.06)
    result = lab.desk.run(*against, "--roofline-rounds=2")
    assert result.ret == 1
    assert "HELD" not in printed(result)
    assert "round 2" not in printed(result)
    result.stdout.fnmatch_lines(["flash@sm_90: registers 198 → 255 REGRESSED; exact; triton 3.9.0"])


def test_two_kernels_of_one_target_need_names_and_what_cannot_be_used_gets_a_sentence(lab):
    twice = "[roofline.resources('kernel', target='sm_90', name=name) for name in {}]"
    ready = "monkeypatch.setattr(compiling, 'is_compiled', lambda kernel: True); roofline.resources('kernel', {})"
    for call, told in (
        (
            twice.format((None, None)),
            "this test has two sm_90 kernels with no name. Give each a different name, as in name='cold'",
        ),
        ("roofline.resources('kernel')", "no target is given"),
        (
            "roofline.resources('kernel', target='sm_90', slack={'FFMA': 1})",
            "slack names the figure 'FFMA'",
        ),
        (
            "roofline.resources('kernel', target='sm_90', arguments=['*bf16'])",
            "arguments is ['*bf16']; expected a map",
        ),
        (
            "roofline.resources('kernel', target='sm_90', options=8)",
            "options is 8; expected a mapping from names to values",
        ),
        (
            ready.format("target='sm_90', options={}"),
            "target and options given together with a compiled kernel",
        ),
    ):
        lab.suite(ONE.format(more=", monkeypatch", call=call))
        result = lab.desk.run()
        assert (result.ret, told in printed(result)) == (1, True), call
    lab.suite(ONE.format(more="", call=twice.format(("forward", "backward"))))
    result = lab.desk.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["flash.forward *", "flash.backward *"])


def test_show_check_and_prune_know_exact_entries(lab):
    lab.recorded()
    _, shown = lab.cli("baseline", "show", "sm_90")
    assert "flash[sm_90]  sm_90         198  112 KiB       0      24  3.9.0" in shown
    assert "gfx942" not in shown
    assert json.loads(lab.cli("baseline", "show", "--json")[1])[0]["kind"] == "exact"
    assert lab.cli("baseline", "check") == (0, "nothing wrong in 2 entries of 1 file\n")
    lab.suite(FLASH.format(more="").replace('"sm_90", "gfx942"', '"sm_90"'))
    code, pruned = lab.cli("baseline", "check", "--prune", "--tests", "test_suite.py", "--apply")
    assert code == 0, pruned
    assert (
        "flash[gfx942] (gfx942; exact): no test uses this entry, since the test has other" in pruned
    )
    assert [entry.target for entry in read_baseline(lab.baseline).exact] == ["sm_90"]

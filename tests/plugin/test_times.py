"""What is measured without `work` has a time, its spread and a verdict, and nowhere a rate."""

import json
import re

import pytest

TIMED = """
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_plain(roofline, busy, n):
    roofline.measure(lambda: busy(n * 1e-3))
"""


EMPTY = ("rate", "rate_unit", "baseline_rate", "roofline_share", "size_bytes")


@pytest.fixture
def gated(desk):
    """Five sessions as the baseline, and a gate in which both tests take 30 % longer."""
    desk.baseline(text=TIMED)
    desk.script(slow=1.3)
    return desk.run("--roofline-ci", "--roofline-save=slow")


@pytest.mark.feature("exchange")
def test_a_time_is_recorded_judged_gated_and_told_by_every_door_and_a_rate_by_none(gated, desk):
    gated.assert_outcomes(failed=2)
    first = desk.saved("slow").measurements[0]
    assert (first.key.metric, first.rate, first.ceiling) == ("time_s", None, None)
    # Nobody told what a call touches, so nobody says that a cache held it.
    assert first.samples.labels == ()
    gated.stdout.fnmatch_lines(
        [
            "plain[[]1]: +30.0 % time (1.30 ms, baseline 1.00 ms) REGRESSED, tolerance 5 %, 99 % interval *",
            "test         time       against baseline  verdict",
            "plain[[]1]  1.30 ms  +30.0 % (*)  REGRESSED",
            "RED: 2 REGRESSED, 0 of 2 fast enough",
        ]
    )
    shown = desk.cli("baseline", "show", "baselines/h100.json").output
    assert re.search(r"^plain\[1\] +1.00 ms +1/5/5 ", shown, re.MULTILINE)
    assert desk.cli("baseline", "check", "baselines/h100.json").exit_code == 0
    assert desk.cli("report", "slow", "-o", "out").exit_code == 0
    rows = json.loads((desk.path / "out/run.json").read_text())["results"]
    assert [row["time_s"] for row in rows] == pytest.approx([1.3e-3, 2.6e-3])
    assert {row[name] for row in rows for name in EMPTY} == {None}
    page, summary = (
        (desk.path / f"out/{name}").read_text() for name in ("index.html", "summary.md")
    )
    assert '<td data-v="0.0013">1.30 ms</td>' in page
    assert {"rate", "roof", "size"} & set(
        re.findall(r'<th scope="col"[^>]*>([^<]*)<', page)
    ) == set()
    assert "`plain[1]` | `1.30 ms` | `1.00 ms` | `+30.0 %` |" in summary
    assert "now 1.30 ms from" in desk.cli("explain", "slow", "plain[1]").output
    exported = json.loads(desk.cli("export", "slow", "--to", "pytest-benchmark").stdout)[
        "benchmarks"
    ]
    assert [one["stats"]["median"] for one in exported] == pytest.approx([1.3e-3, 2.6e-3])
    assert [one["extra_info"]["work"] for one in exported] == [{"calls": 1}] * 2


def test_a_rotation_goes_by_what_the_tensors_hold(desk):
    desk.suite("""
class Tensor:
    layout, nbytes = "torch.strided", 2**20
    def untyped_storage(self): return type("Storage", (), {"nbytes": lambda self: 2**20})()

def test_cold(roofline, busy):
    made = []
    roofline.measure(lambda x: busy(1e-3), make_args=lambda: made.append(1) or Tensor(), cache="rotate", refill=False)
    assert len(made) > 50
""")
    desk.run().assert_outcomes(passed=1)
    assert desk.last_run().measurements[0].samples.labels == ()

"""How often a roll-out errs: simulated fleets whose truth is known."""

from ..many.test_rollout import Fleet, reds, with_controls, words


def test_a_slower_test_is_found_among_unchanged_ones_with_four_devices_on_either_side(make):
    found = [
        with_controls(Fleet(make, seed).add(4, effect={0: 0.08})).judged() for seed in range(15)
    ]
    red = [one for one in found if words(one)["copy0"] == "REGRESSED"]
    # 19 times in 20 in the long run, as `docs/new-driver.md` says.
    assert len(red) >= 13
    assert sum(map(reds, found)) - len(red) <= 1


def test_unchanged_fleets_are_not_called_slower_and_twice_the_tolerance_never_passes(make):
    for noise, per_node in [(1.0, 1), (5.0, 1), (1.0, 4)]:
        # 150 tests; 0.2 % each is what a run of 25 tests is held to.
        fleets = [
            with_controls(Fleet(make, seed, noise=noise, per_node=per_node).add(4))
            for seed in range(6)
        ]
        assert sum(reds(one.judged()) for one in fleets) <= 2
        slow = Fleet(make, 7, noise=noise, per_node=per_node).add(
            4, effect=dict.fromkeys(range(25), 0.1)
        )
        assert "PASSED" not in words(with_controls(slow).judged()).values()


def test_what_is_exactly_as_slow_as_the_tolerance_hardly_passes(make):
    everywhere = dict.fromkeys(range(25), 0.05)
    found = [
        with_controls(Fleet(make, seed).add(4, effect=everywhere)).judged() for seed in range(8)
    ]
    # 4 % of 200 tests, and what chance adds to that.
    assert sum(list(words(one).values()).count("PASSED") for one in found) <= 16

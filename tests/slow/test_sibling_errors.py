"""How often one of several siblings is named, rightly and wrongly: simulated cards whose truth is known."""

import math

import numpy

from pytest_roofline.core.verdicts import Kind

from ..stats.test_siblings import GEMM, LINK, MEMORY, judge_siblings, siblings

# Of cards, as standard deviations of log seconds; between processes it is 1 % of each.
CARDS = {MEMORY: 0.01, LINK: 0.05, GEMM: 0.05}
MOST_ROUNDS = 12


def simulated(generator, metric, slow=1.0, cards=8, rounds=MOST_ROUNDS):
    """The names of those that a run of eight cards names, of which the first takes `slow` times as long."""
    centres = generator.normal(0, CARDS[metric], cards)
    centres[0] += math.log(slow)
    logs = numpy.empty((cards, 0))
    for _ in range(rounds):
        new = generator.normal(centres, 0.01).reshape(cards, 1)
        logs = numpy.concatenate([logs, new], axis=1)
        found = judge_siblings(
            siblings(*(tuple(numpy.exp(row).tolist()) for row in logs), metric=metric)
        )
        if not any(one.kind is Kind.INCONCLUSIVE and not one.futile for one in found):
            break
    return {index for index, one in enumerate(found) if one.kind is Kind.REGRESSED}


def test_equal_cards_are_hardly_ever_named():
    # A suite: within memory, both ways over the link, and a matrix product.
    generator = numpy.random.default_rng(1)
    suite = (MEMORY, LINK, LINK, GEMM)
    named = [any(simulated(generator, metric) for metric in suite) for _ in range(3000)]
    assert sum(named) <= 0.001 * len(named)


def test_a_tenth_slower_in_memory_is_named_and_nobody_else():
    for rounds, share in [(1, 0.80), (3, 0.95)]:
        generator = numpy.random.default_rng(20)
        runs = [simulated(generator, MEMORY, slow=1.1, rounds=rounds) for _ in range(200)]
        assert sum(0 in found for found in runs) >= share * len(runs), (rounds, share)
        assert sum(bool(found - {0}) for found in runs) <= 1, (rounds, share)


def test_half_the_link_is_named_however_far_links_lie_apart():
    generator = numpy.random.default_rng(21)
    runs = [simulated(generator, LINK, slow=2.0, rounds=1) for _ in range(200)]
    assert sum(found == {0} for found in runs) >= 0.99 * len(runs)

"""The e-value of a healthy part is rarely large, whatever it is disturbed by; that of a slow part grows with rounds."""

import math
import random

import pytest

from gpuops.isolation.spread import LEAST, Spread, failure_log_e, usual_share

pytestmark = pytest.mark.sampled


def draw(rng, *, noise=0.01, outliers=0.0):
    """One value of a healthy part: t with 4 degrees of freedom, and outliers of 10 to 40 %."""
    if rng.random() < outliers:
        return math.log(1 - rng.uniform(0.1, 0.4))
    return noise * rng.gauss(0, 1) / math.sqrt(rng.gammavariate(2, 2) / 4)


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.03])
@pytest.mark.parametrize("outliers", [0.0, 0.01, 0.05])
def test_healthy_parts_exceed_their_bound_no_more_often_than_it_says(noise, outliers):
    rng = random.Random(f"{noise} {outliers}")
    spread = Spread(draw(rng, noise=noise, outliers=outliers) for _ in range(2000))
    e_values = []
    for _ in range(300):
        certainty = spread.certainty([draw(rng, noise=noise, outliers=outliers) for _ in range(5)])
        e_values.append(math.exp(certainty.log_e))
    assert sum(e_value >= 10 for e_value in e_values) <= 30
    assert sum(e_value >= 100 for e_value in e_values) <= 3
    assert max(e_values) < 20_000


@pytest.mark.parametrize(
    ("slow_by", "noise", "rounds"), [(0.05, 0.002, 6), (0.1, 0.01, 5), (0.3, 0.02, 4), (0.6, 0.03, 5)]
)
def test_a_slow_part_is_sure_after_a_few_rounds_and_more_so_after_more(slow_by, noise, rounds):
    rng = random.Random(slow_by)
    spread = Spread(draw(rng, noise=noise) for _ in range(500))
    values = [math.log(1 - slow_by) + noise * rng.gauss(0, 1) for _ in range(rounds + 3)]
    certainty = spread.certainty(values[:rounds])
    assert certainty.log_e > math.log(16 * 512 / 1e-3)  # 64 nodes of 8 NICs, one run in 1,000
    assert certainty.slow_share == 1
    assert certainty.slow_by == pytest.approx(slow_by, rel=0.4)
    assert spread.certainty(values).log_e > certainty.log_e


def test_a_part_that_is_slow_in_half_of_its_rounds_flaps():
    rng = random.Random(7)
    spread = Spread(draw(rng, noise=0.005) for _ in range(2000))
    values = [math.log(0.7) if number % 2 else 0.005 * rng.gauss(0, 1) for number in range(10)]
    certainty = spread.certainty(values)
    assert certainty.slow_share < 1
    assert certainty.log_e > math.log(16 * 512 / 1e-3)


def test_no_single_round_decides():
    spread = Spread(0.001 * random.Random(1).gauss(0, 1) for _ in range(5000))
    assert spread.certainty([math.log(0.2)]).log_e <= math.log(100)


def test_what_nobody_repairs_is_no_fault():
    spread = Spread(0.0005 * random.Random(1).gauss(0, 1) for _ in range(500))
    assert spread.certainty([math.log(1 - 0.9 * LEAST)] * 10).log_e < math.log(100)


def test_few_values_show_little():
    assert usual_share(0, 0) == pytest.approx(0.01)
    assert usual_share(0, 5000) < 0.0002
    assert usual_share(50, 100) > 0.3


def test_a_part_that_fails_again_and_again_is_surer_than_one_that_failed_once():
    assert failure_log_e(1, 4, 0.01) < failure_log_e(2, 4, 0.01) < failure_log_e(4, 4, 0.01)
    assert failure_log_e(0, 4, 0.01) < 0
    assert failure_log_e(4, 4, 0.3) < failure_log_e(4, 4, 0.001)


@pytest.mark.parametrize("own_level", [0.0, 0.01, -0.01])
def test_part_that_flaps_is_sure_whatever_its_own_level_is(own_level):
    rng = random.Random(1)
    spread = Spread(0.002 * rng.gauss(0, 1) for _ in range(200))
    slow = [own_level + math.log(0.7) if number % 2 else own_level for number in range(12)]
    certainty = spread.certainty(slow)
    assert certainty.log_e > 15
    assert certainty.slow_share == 0.5
    assert certainty.slow_by == pytest.approx(0.3, abs=0.03)


def test_values_of_two_kinds_are_as_good_as_of_one_and_each_has_its_own_scatter():
    rng = random.Random(2)
    fine, coarse = (Spread(noise * rng.gauss(0, 1) for _ in range(500)) for noise in (0.002, 0.03))
    slow = [math.log(0.9)] * 3
    together = fine.certainty(slow, others=[(fine, u) for u in slow])
    assert together.log_e == pytest.approx(fine.certainty(slow * 2).log_e)
    assert together.rounds == 6
    assert fine.certainty(slow, others=[(coarse, u) for u in slow]).log_e < together.log_e - 2


def test_few_values_take_their_disturbances_from_many():
    rng = random.Random(3)
    many = Spread(draw(rng, outliers=0.05) for _ in range(2000))
    few = Spread((0.01 * rng.gauss(0, 1) for _ in range(20)), many)
    assert few.disturbed == many.disturbed > 0.03
    assert few.certainty([math.log(0.75)]).log_e < Spread([0.01] * 20).certainty([math.log(0.75)]).log_e
    assert Spread((draw(rng, outliers=0.2) for _ in range(500)), many).disturbed > many.disturbed

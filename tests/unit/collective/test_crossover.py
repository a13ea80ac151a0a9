import random

import pytest

from gpuops.collective.crossover import crossover_of, fit_of
from gpuops.collective.engines import Point

SIZES = [1 << power for power in range(10, 31)]


def points_of(seconds, sizes=SIZES, factor=1.75):
    return [Point(size, seconds(size), size / seconds(size) / 1e9 * factor) for size in sizes]


@pytest.mark.parametrize(("alpha", "rate"), [(20e-6, 270.0), (1e-3, 12.5), (3e-7, 0.1)])
def test_a_line_gives_its_own_latency_and_bandwidth(alpha, rate):
    crossover = crossover_of(points_of(lambda size: alpha + size / rate / 1e9))
    assert crossover.fit.alpha_seconds == pytest.approx(alpha)
    assert crossover.fit.algbw_gb_per_s == pytest.approx(rate)
    assert crossover.fit.half_size_bytes == pytest.approx(alpha * rate * 1e9)
    assert crossover.fit.error < 1e-6


def test_measured_half_lies_where_the_curve_passes_it():
    alpha, rate = 50e-6, 200.0
    crossover = crossover_of(points_of(lambda size: alpha + size / rate / 1e9))
    # the peak of the largest size is a little below B, and the curve is straight between two sizes
    assert crossover.half_size_bytes == pytest.approx(alpha * rate * 1e9, rel=0.05)
    assert (crossover.peak_size_bytes, crossover.is_peak_reached) == (SIZES[-1], True)


def test_fit_has_the_least_sum_of_squared_relative_errors():
    noise = random.Random(5)
    points = points_of(lambda size: (80e-6 + size / 48e9) * noise.uniform(0.8, 1.2))
    fit = fit_of(points)

    def loss(alpha, rate):
        return sum((alpha / p.seconds + p.size_bytes / rate / 1e9 / p.seconds - 1) ** 2 for p in points)

    best = loss(fit.alpha_seconds, fit.algbw_gb_per_s)
    for a in (0.99, 1, 1.01):
        for b in (0.99, 1, 1.01):
            assert loss(a * fit.alpha_seconds, b * fit.algbw_gb_per_s) >= best


def test_bandwidth_that_still_rises_is_not_the_peak():
    points = points_of(lambda size: 1e-3 + size / 400e9, sizes=SIZES[:15])
    assert not crossover_of(points).is_peak_reached
    assert crossover_of(points[:1]).is_peak_reached is False
    falling = [*points, Point(SIZES[15], 1.0, 1e-3)]
    assert crossover_of(falling).is_peak_reached


def test_sizes_that_all_reach_half_of_the_peak_have_no_crossover():
    crossover = crossover_of(points_of(lambda size: 1e-6 + size / 1e9, sizes=SIZES[15:]))
    assert crossover.half_size_bytes is None


def test_times_without_latency_or_with_too_few_sizes_have_no_fit():
    assert fit_of(points_of(lambda size: size / 1e9)[:2]) is None
    assert fit_of([Point(size, 1e-3 / size, 1.0) for size in SIZES]) is None
    assert fit_of([Point(1024, 1e-3, 1.0)] * 3) is None
    assert crossover_of([]) is None

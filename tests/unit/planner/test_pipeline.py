"""Pipeline schedules: the simulation and the closed forms agree, and what a stage keeps is what memory counts."""

import itertools

import pytest

from gpuops.errors import LayoutError
from gpuops.planner.pipeline import bubble_fraction, simulate_schedule

SIZES = [(4, 8), (8, 64), (16, 32), (35, 280)]


def schedule(kind, stages, micro_batches, **options):
    return simulate_schedule(kind, micro_batches, [1.0] * stages, [2.0] * stages, **options)


@pytest.mark.parametrize(("stages", "micro_batches"), SIZES)
@pytest.mark.parametrize("kind", ["gpipe", "1f1b"])
def test_a_step_lasts_as_long_as_the_closed_form_says(kind, stages, micro_batches):
    simulated = schedule(kind, stages, micro_batches)
    assert simulated.seconds == (micro_batches + stages - 1) * 3
    assert simulated.seconds == pytest.approx(simulated.busy_seconds * (1 + bubble_fraction(stages, micro_batches)))


@pytest.mark.parametrize(("stages", "micro_batches", "chunks"), [(4, 8, 2), (8, 64, 4), (16, 32, 3), (35, 280, 2)])
def test_interleaving_divides_the_bubble_by_the_chunks(stages, micro_batches, chunks):
    simulated = schedule("interleaved", stages, micro_batches, chunks_per_stage=chunks)
    assert simulated.seconds == pytest.approx(3 * (micro_batches + (stages - 1) / chunks))
    assert simulated.seconds / simulated.busy_seconds - 1 == pytest.approx(
        bubble_fraction(stages, micro_batches, chunks)
    )


@pytest.mark.parametrize(("stages", "micro_batches"), SIZES)
def test_gpipe_keeps_all_micro_batches_and_1f1b_one_for_each_stage(stages, micro_batches):
    assert schedule("gpipe", stages, micro_batches).most_in_flight == micro_batches
    assert schedule("1f1b", stages, micro_batches).most_in_flight == min(stages, micro_batches)


def test_interleaving_keeps_more_as_korthikanti_counts_it():
    stages, chunks = 8, 4
    kept = schedule("interleaved", stages, 64, chunks_per_stage=chunks).most_in_flight / chunks
    assert kept == pytest.approx(stages * (1 + (stages - 1) / (stages * chunks)), rel=0.02)


def test_every_task_runs_once_and_after_what_it_needs():
    for kind, chunks in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2)):
        simulated = schedule(kind, 4, 8, chunks_per_stage=chunks, p2p_seconds=0.5)
        ends = {(e.stage, *e.task): e.end for events in simulated.events for e in events}
        assert len(ends) == 2 * 4 * 8 * chunks
        for events in simulated.events:
            assert all(a.end <= b.start for a, b in itertools.pairwise(events))
            for e in events:
                before = e.stage - 1 if e.task.is_forward else e.stage + 1
                if 0 <= before < 4:
                    assert e.start >= ends[(before, *e.task)] + 0.5


def test_links_cost_twice_their_latency_for_every_micro_batch():
    """Blocking point-to-point messages delay the steady state too, not only the ramps."""
    slow = schedule("1f1b", 4, 8, p2p_seconds=0.25).seconds - schedule("1f1b", 4, 8).seconds
    assert slow > 2 * 0.25 * 3


def test_the_slowest_stage_sets_the_pace():
    uneven = simulate_schedule("1f1b", 64, [1, 1, 1, 1.5], [2, 2, 2, 3])
    assert uneven.seconds == pytest.approx(64 * 4.5 + 3 * 3)


def test_one_chunk_is_naive_model_parallelism():
    assert schedule("1f1b", 4, 1).idle_fraction == pytest.approx(3 / 4)


@pytest.mark.parametrize(
    ("kind", "micro_batches", "chunks", "says"),
    [
        ("zb", 8, 1, "unknown schedule"),
        ("1f1b", 8, 2, "only interleaved has more"),
        ("interleaved", 6, 2, "not divisible by 4 stages"),
        ("1f1b", 0, 1, "at least one"),
        ("1f1b", 10**6, 1, "too many"),
    ],
)
def test_what_cannot_run_is_refused(kind, micro_batches, chunks, says):
    with pytest.raises(LayoutError, match=says):
        schedule(kind, 4, micro_batches, chunks_per_stage=chunks)

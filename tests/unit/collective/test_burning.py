import contextlib
import datetime as dt
import stat
import threading
import time
from dataclasses import replace

import pytest

from gpuops.cancellation import CancelToken
from gpuops.collective import burn_in as burning
from gpuops.collective.burn_in import (
    BurnInResult,
    GpuSampler,
    figures_of,
    increased_counters,
    new_xids,
    repeat_for,
)
from gpuops.collective.growth import growths
from gpuops.collective.measurement import Measurement
from gpuops.collective.measuring import MeasureContext
from gpuops.collective.pool import Pool
from gpuops.collective.request import MeasureRequest
from gpuops.facts import Facts
from gpuops.isolation.evidence import Blame, Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNode
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.probes.host.kernel_log import KernelLog, Xid
from gpuops.probes.nvidia.burn_in import BurnIn, burn_in, to_answer
from gpuops.probes.nvidia.dcgm_diag import dcgm_diag
from gpuops.probes.nvidia.nvbandwidth import gpu_bandwidths
from gpuops.probes.nvidia.nvidia_smi import Gpu, RemappedRows, Smi
from gpuops.probing import Unknown
from gpuops.reasons import Excluded
from gpuops.shell import Command, Completed

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
FABRIC = Fabric({name: FabricNode(name, (0, 1), ()) for name in ("a", "b")})


def facts(ecc=0, crc=0, symbol=0, *, pending=False, xids=(), **values):
    gpu = Gpu(0, "0000:1b:00.0", ecc_uncorrected_volatile=ecc, remapped_rows=RemappedRows(0, 0, pending, failure=False))
    known = {
        "smi": Smi(gpus=(gpu,)),
        "nvlink_errors": {"gpu0": {"crc_errors": crc}},
        "error_counters": {"mlx5_0": {"symbol_error": symbol}},
        "kernel_log": KernelLog(reaches_boot=True, events=xids),
    }
    return Facts("a", NOW, {**known, **values})


def test_every_node_by_itself_until_the_time_is_over():
    clock = iter([0.0, 0.0, 10.0, 10.0, 29.0, 29.0, 31.0, 31.0])
    plan = repeat_for(30.0, lambda: next(clock))
    evidence = Evidence(FABRIC, scopes=("node",))
    rounds = [plan(evidence) for _ in range(4)]
    assert [r and [g.nodes for g in r.groups] for r in rounds] == [[("a",), ("b",)]] * 3 + [None]


def test_an_engine_that_only_measures_between_nodes_is_not_asked():
    assert repeat_for(30.0)(Evidence(FABRIC, scopes=("rail",))) is None


def test_the_figures_of_a_node_are_its_own_in_their_order():
    def measured(a, trouble=""):
        figures = (
            GroupResult(RankGroup(("a",)), a, trouble, detail="rank 1" if trouble else ""),
            GroupResult(RankGroup(("b",)), 1.0),
        )
        return Measured(Round("node", tuple(f.group for f in figures)), figures)

    evidence = Evidence(FABRIC, rounds=(measured(450.0), measured(None, "hang"), measured(449.0)))
    assert figures_of(evidence, "a") == BurnIn(0.0, (450.0, 449.0), ("hang: rank 1",))


def test_errors_that_rose_are_told_with_their_part():
    assert increased_counters(facts(1, 5, 7), facts(3, 5, 8, pending=True)) == [
        "gpu0: ecc_uncorrected_volatile 1 → 3",
        "gpu0: remapped_rows_pending 0 → 1",
        "mlx5_0: symbol_error 7 → 8",
    ]


@pytest.mark.parametrize("after", [facts(), facts(smi=Unknown("x")), facts(nvlink_errors={})])
def test_what_stayed_or_cannot_be_told_did_not_rise(after):
    assert increased_counters(facts(), after) == []


def test_what_nobody_counted_before_did_not_rise():
    assert increased_counters(facts(nvlink_errors=Unknown("x")), facts(crc=7)) == []


@pytest.mark.parametrize(
    ("name", "increase", "seconds", "fault"),
    [
        ("crc_errors", 1, 60.0, False),
        ("crc_errors", 6001, 60.0, True),
        ("recovery_errors", 1, 60.0, True),
        ("local_link_integrity_errors", 1, 1800.0, True),
        ("link_recovery_failed_events", 1, 1800.0, True),
        ("link_recovery_successful_events", 40, 1800.0, False),
        ("link_downed", 1, 1800.0, True),
        ("symbol_error", 60, 1800.0, False),
        ("symbol_error", 61, 1800.0, True),
        ("out_of_sequence", 10_000, 60.0, False),
        ("ecc_uncorrected_volatile", 1, 1800.0, True),
    ],
)
def test_a_rate_that_healthy_links_have_too_is_no_fault(name, increase, seconds, fault):
    (growth,) = growths([{"x": {name: 5}}], [{"x": {name: 5 + increase}}])
    assert growth.is_fault(seconds) == fault


def test_a_sum_is_not_counted_beside_its_parts_and_a_reset_is_no_growth():
    parts = {"link_recovery_successful_events": 1, "link_recovery_failed_events": 0, "total_link_recovery_events": 1}
    assert [growth.name for growth in growths([{"x": dict.fromkeys(parts, 0)}], [{"x": parts}])] == [
        "link_recovery_successful_events"
    ]
    assert list(growths([{"x": {"crc_errors": 5}}], [{"x": {"crc_errors": 0}}])) == []


def test_only_xids_that_came_meanwhile_are_new():
    old = Xid("0000:1b:00.0", 43, "Ch 00000008", 12.0)
    new = replace(old, seconds=99.0, code=48, text="double bit")
    assert new_xids(facts(xids=(old,)), facts(xids=(old, new))) == ["0000:1b:00.0: Xid 48, double bit"]
    assert new_xids(facts(kernel_log=Unknown("x")), facts(xids=(new,))) == []


def test_who_took_no_part_says_why_and_the_others_what_came_of_it():
    excluded = {"b": Excluded("b", "busy", "busy (alice)"), "c": Excluded("c", "unreachable", "no answer")}
    measurement = Measurement(Evidence(FABRIC), Blame(), "nccl", "why", excluded)
    answers = {
        "a": (
            *(Completed("a", each.question, 127) for each in (dcgm_diag, gpu_bandwidths)),
            to_answer("a", BurnIn(60.0)),
        )
    }
    facts_by_node = {name: replace(facts(), node=name) for name in "abcd"}
    added = BurnInResult(measurement, answers).added_to(facts_by_node)
    assert added["a"][burn_in] == BurnIn(60.0)
    assert not added["a"][dcgm_diag].installed
    assert added["b"][burn_in] == Unknown("busy (alice)", skipped_on_purpose=True)
    assert added["c"][burn_in] == Unknown("no answer")
    assert added["d"][burn_in] == Unknown("no burn-in was run here")
    assert added["b"][dcgm_diag] == Unknown("busy (alice)")


def watching(monkeypatch, tmp_path, program, seconds="2"):
    """The question of the eye, with an nvidia-smi of our own."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\n{program}\n")
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
    script = burning._SAMPLING.words[2]
    words = ("sh", "-c", f"PATH={tmp_path}:$PATH\n{script}", seconds, *burning._SAMPLING.words[4:])
    monkeypatch.setattr(burning, "_SAMPLING", Command(words, timeout_seconds=20))


def test_gpus_are_watched_until_the_load_ends(monkeypatch, tmp_path, connections, a_host):
    watching(monkeypatch, tmp_path, 'while :; do echo "0, 70, 600, 1700, 0x4"; sleep 0.2; done')
    with GpuSampler(Pool([a_host("n0", connection="local")], connections)) as eye:
        pass
    assert len(eye.samples["n0"]) > 3


def test_an_older_driver_is_asked_in_its_own_words(monkeypatch, tmp_path, connections, a_host):
    program = 'case "$1" in *event*) echo "Field is not a valid field" ; exit 2;; esac\n'
    watching(monkeypatch, tmp_path, program + 'while :; do echo "0, 70, 600, 1700, 0x4"; sleep 0.2; done')
    with GpuSampler(Pool([a_host("n0", connection="local")], connections)) as eye:
        pass
    assert eye.samples["n0"][0].watts == 600.0


def test_a_node_that_cannot_be_watched_is_not_asked_again(monkeypatch, tmp_path, connections, a_host):
    watching(monkeypatch, tmp_path, "echo no devices >&2; exit 6")
    pool = Pool([a_host("n0", connection="local")], connections)
    with GpuSampler(pool) as eye:
        eye._thread.join(10)
    assert "no devices" in pool.excluded["n0"].why
    assert eye.samples == {"n0": []}


def test_after_an_interrupt_nobody_waits_for_the_last_samples(monkeypatch, tmp_path, connections, a_host):
    watching(monkeypatch, tmp_path, "exec sleep 15", seconds="15")
    monkeypatch.setattr(burning, "idle_nodes", lambda *_: contextlib.nullcontext())

    def measure(pool, *_, **__):
        pool.close()  # as Ctrl-C in the middle of a round does
        return Measurement(Evidence(FABRIC), Blame(), "nccl", "", {}, interrupted=True)

    monkeypatch.setattr(burning, "measure", measure)
    hosts = [a_host("a", connection="local")]
    context = MeasureContext(lambda _: {}, lease=None)
    began = time.monotonic()
    with Pool(hosts, connections) as pool, Pool(hosts, connections) as eye:
        result = burning.burn(pool, eye, FABRIC, {}, MeasureRequest(), context, 60.0)
    assert time.monotonic() - began < 10
    assert result.interrupted


def test_a_cancellation_ends_the_sampling_without_a_traceback(tmp_path, connections, a_host, monkeypatch):
    watching(monkeypatch, tmp_path, "exec sleep 15", seconds="15")
    failed, cancel = [], CancelToken()
    monkeypatch.setattr(threading, "excepthook", failed.append)
    pool = Pool([a_host("n0", connection="local")], connections, cancel=cancel)
    with GpuSampler(pool) as eye:
        cancel.cancel()
        eye._thread.join(10)
    assert (eye._thread.is_alive(), failed) == (False, [])

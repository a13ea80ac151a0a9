"""The training rows with real torch: DDP over gloo on this machine's CPU. The GPU rows need GPUs."""

import dataclasses
import importlib.util
import pathlib
import sys
import time

import pytest

from gpuops.collective.nvlink import Model, Training, parse_training, training
from gpuops.probing import Unknown
from gpuops.transport.connections import Connections

torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch comes with the extra gpuops[launch]"
)
TINY = Model(steps=3, batch=2, layers=1, width=64, words=16)


@pytest.fixture
def run(a_host):
    """Runs a command on this machine, as on any node."""
    connections = Connections()
    yield connections.group().open(a_host(connection="local")).run
    connections.close()


def ours():
    """The processes that run the script."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"ddp" in words and b"-" in words:
            found.append(words)
    return found


@torch
def test_two_processes_train_one_model_and_end_with_the_same_weights(run):
    found = parse_training(run(training("ddp", sys.executable, TINY, 120)))
    assert isinstance(found, Training), found
    assert (found.row, found.gpus, found.alike) == ("ddp", 0, True)
    assert found.weights == 50257 * 64 + 16 * 64 + 12 * 64 * 64 + 13 * 64 + 2 * 64
    assert found.samples_per_second == pytest.approx(3 * 2 * 2 / found.seconds)
    assert not ours()


@torch
def test_gradients_that_do_not_meet_are_seen(run):
    command = training("ddp", sys.executable, TINY, 120)
    apart = command.stdin.replace("torch.nn.parallel.DistributedDataParallel(model,", "(lambda m, **_: m)(model,")
    assert apart != command.stdin
    found = parse_training(run(dataclasses.replace(command, stdin=apart)))
    assert isinstance(found, Training), found
    assert not found.alike


@torch
def test_without_gpus_there_is_no_row_of_data_parallel(run):
    assert parse_training(run(training("dp", sys.executable, TINY, 120))) == Unknown("DataParallel needs GPUs")


@torch
def test_a_rank_that_fails_ends_the_others_and_says_why(run):
    command = training("ddp", sys.executable, TINY, 120)
    broken = command.stdin.replace("torch.manual_seed(rank) ", 'float("x" * rank or 0) ', 1)
    assert broken != command.stdin
    began = time.monotonic()
    found = parse_training(run(dataclasses.replace(command, stdin=broken)))
    assert isinstance(found, Unknown)
    assert found.why.startswith("rank 1: ValueError")
    assert time.monotonic() - began < 60
    assert not ours()


@torch
def test_what_takes_too_long_is_killed_with_all_its_processes_and_leaves_no_file(run, tmp_path):
    command = training("ddp", sys.executable, dataclasses.replace(TINY, steps=10**9), 8)
    there = ("env", f"TMPDIR={tmp_path}", *command.words)
    found = parse_training(run(dataclasses.replace(command, words=there)))
    assert not list(tmp_path.glob("gpuops*"))
    assert isinstance(found, Unknown)
    assert found.why.startswith("not finished within")
    time.sleep(1)
    assert not ours()


def test_a_python_without_torch_says_so(run, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('none here')\n")
    command = training("ddp", sys.executable, TINY, 60)
    found = parse_training(run(dataclasses.replace(command, words=("env", f"PYTHONPATH={tmp_path}", *command.words))))
    assert isinstance(found, Unknown)
    assert "has no torch" in found.why


def test_a_node_without_such_a_python_says_so(run):
    assert parse_training(run(training("ddp", "no-such-python", TINY, 60))) == Unknown(
        "no-such-python is not installed"
    )

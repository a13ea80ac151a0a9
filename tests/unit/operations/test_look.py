"""What a look at a node asks, and what it leaves alone."""

import os

import pytest

from gpuops.cluster import Cluster
from gpuops.errors import InputError
from gpuops.probing import Unknown

LOADS = ("dcgmi", "gpuops")
"""Programs that put load on a node: the long diagnosis, and the burn-in, which only gpuops itself answers."""


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Which of `LOADS` were started on this machine."""
    for name in LOADS:
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/{name}.started\nexec sleep 30\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return lambda: sorted(path.stem for path in tmp_path.glob("*.started"))


def test_facts_start_nothing_that_puts_load_on_a_node(started):
    with Cluster.local() as cluster:
        (facts,) = cluster.facts().values.values()
    assert started() == []
    assert not {"burn_in", "dcgm_diag"} & set(facts.values)
    assert not isinstance(facts.values["system"], Unknown)
    late = [
        value.why for value in facts.values.values() if isinstance(value, Unknown) and "did not answer" in value.why
    ]
    assert late == []


@pytest.mark.parametrize("name", ["burn_in", "dcgm_diag"])
def test_a_probe_that_puts_load_on_a_node_is_refused_by_name(started, name):
    with Cluster.local() as cluster, pytest.raises(InputError, match=f"{name} puts load on a node"):
        cluster.facts(probes=[name])
    assert started() == []

"""The nodes that a fix must not touch: those that take jobs, and only those."""

import contextlib
from types import SimpleNamespace

from gpuops.operations.fix import _in_use
from gpuops.store import StateChange, Store


def test_only_nodes_that_take_jobs_must_be_drained_first(tmp_path, a_host):
    path = tmp_path / "state.db"
    with Store(path) as store:
        run = store.begin("a test", who="ops")
        for node, state in (("admitted", "admitted"), ("drained", "drained")):
            store.record_transition(node, run, lambda _, state=state: StateChange(state, "why"))
    hosts = [a_host(name) for name in ("admitted", "drained", "unrecorded", "allocated")]
    control = SimpleNamespace(still_busy=lambda _hosts: {"allocated": "allocated in Slurm"})
    work = SimpleNamespace(
        hosts=hosts,
        open_store=lambda *, create: Store(path, create=create),
        scheduler=lambda: contextlib.nullcontext(SimpleNamespace(control=control)),
    )
    reasons = {node: objection.why for node, objection in _in_use(work).items()}
    assert reasons == {"admitted": "it is admitted", "allocated": "allocated in Slurm"}

"""What gpuops remembers, in one SQLite file: the life cycle of nodes, and what every run saw."""

from gpuops.store.runs import Runs
from gpuops.store.states import Cause, ClosingCheck, Fingerprint, GatePass, HostEvent, StateChange, Store

__all__ = ["Cause", "ClosingCheck", "Fingerprint", "GatePass", "HostEvent", "Runs", "StateChange", "Store"]

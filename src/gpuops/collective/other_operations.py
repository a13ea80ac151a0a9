"""Expected bus bandwidth of operations other than all-reduce, on the same machines and links; pure.

Everything here is a prediction: it can be shown, but no machine fails because of it. n is the number of ranks, p that
of a node, S the size as nccl-tests counts it, g and r the number and rate of a node's NICs.

- All-gather and reduce-scatter have one algorithm between nodes, the ring: (n-1)/n·S cross every link, which is the
  factor of their bus bandwidth (nccl-tests, doc/PERFORMANCE.md), so the bus bandwidth is the rate of the link. NVIDIA
  expects the ring's figure within a node, too: 370 GB/s on H100 (nccl-tests issue 212).
- All-to-all: (n-p)/n·S of each rank leave the node, over the rank's share of the NICs, g·r/p. The bus bandwidth counts
  (n-1)/n·S, so it is (n-1)/(n-p) times that share. A rank cannot use the other ranks' NICs ("the performance you should
  see is the performance of a single NIC", NVIDIA in nccl-tests issue 267). NVLink limits it to the ring's figure.
- Send-receive: each rank sends S to the next one. One rank of each node sends to another node, over one NIC, and the
  slowest rank decides (NVIDIA in nccl-tests issue 277: a single ring). Within a node, it is the ring's figure.
- On a rail, each rank has one NIC and no NVLink, and every operation reaches the rate of the NIC.
"""

from __future__ import annotations

from dataclasses import replace

from gpuops.bandwidth import (
    Cap,
    Efficiency,
    ExpectedBandwidth,
    Network,
    Operation,
    between_nodes,
    min_payload_bytes,
    on_rail,
    within_node,
)
from gpuops.profile import GRADES, Profile

_GUESS = GRADES[-1]
_SPANS_NODES = "allreduce.measured."


def predict_within(profile: Profile, gpus: int, size_bytes: int | None) -> ExpectedBandwidth | None:
    """Return what every operation should reach within a node; None if no ring of the machine is known."""
    return _as_guess(within_node(profile, gpus, size_bytes, nvls=False))


def predict_on_rail(network: Network, size_bytes: int | None, efficiency: Efficiency) -> ExpectedBandwidth | None:
    """Return what every operation should reach on a rail; None if the rate of the NIC is unknown."""
    return _as_guess(on_rail(network, size_bytes, efficiency))


def predict_between(
    operation: Operation, profile: Profile, network: Network, size_bytes: int | None, efficiency: Efficiency
) -> ExpectedBandwidth | None:
    """Return what ``operation`` should reach on all GPUs of several nodes; None if it is unknown.

    If NVLink spans the nodes, no NIC is used: the figure is that of a ring within a node.
    """
    size = size_bytes or min_payload_bytes(network.ranks)
    if size < min_payload_bytes(network.ranks):
        return None
    within = predict_within(profile, network.ranks // network.nodes, size)
    if any(key.startswith(_SPANS_NODES) for key in profile.values):
        return within
    if operation in {"all_gather", "reduce_scatter"}:
        return _as_guess(between_nodes(profile, network, size, efficiency, ["ring"]))
    one_nic = predict_on_rail(network, size, efficiency)
    if within is None or one_nic is None:
        return None
    share = _share_of_all_to_all(one_nic.terms[0], network) if operation == "all_to_all" else one_nic.terms[0]
    terms = (*within.terms, share)
    lowest = min(terms, key=lambda term: term.gb_per_s)
    return replace(one_nic, gb_per_s=lowest.gb_per_s, limit=lowest.name, terms=terms, algorithm="pairs")


def _share_of_all_to_all(one_nic: Cap, network: Network) -> Cap:
    """Return the bus bandwidth of an all-to-all that a rank's share of the NICs allows, from the cap of one NIC."""
    n, p = network.ranks, network.ranks // network.nodes
    nics = "" if network.nics == p else f" · {network.nics} NICs / {p} GPUs"
    rate = one_nic.gb_per_s * network.nics / p * (n - 1) / (n - p)
    return replace(one_nic, gb_per_s=rate, sum=f"{one_nic.sum}{nics} · {n - 1}/{n - p}")


def _as_guess(expected: ExpectedBandwidth | None) -> ExpectedBandwidth | None:
    """Return the same as a prediction, which no machine fails because of."""
    if expected is None:
        return None
    return replace(expected, terms=tuple(replace(term, grade=_GUESS) for term in expected.terms), grade=_GUESS)

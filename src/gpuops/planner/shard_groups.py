"""HSDP: the groups of ranks that share states, which the other ranks repeat, and what each framework can do with them.

PyTorch calls it hybrid sharding (``fully_shard`` on a mesh of two dimensions), DeepSpeed MiCS (arXiv:2205.00119), and
Megatron-LM several instances of the distributed optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from gpuops.layout import ONE_SHARD, without_zero
from gpuops.planner.candidates import Flags, Numbers
from gpuops.planner.hardware import ClusterSpec
from gpuops.planner.training import TrainingSetup

_Columns: TypeAlias = "Mapping[str, Numbers]"


class ShardRule(NamedTuple):
    """A rule of layouts that repeat shards: which columns keep it, and the reason against the first of the others."""

    keeps: Callable[[_Columns, TrainingSetup], Flags]
    reason: Callable[[_Columns], str]


def shard_groups(cluster: ClusterSpec) -> tuple[int, ...]:
    """Return the numbers of GPUs that share states in the search: a node, an NVLink domain, and doublings of them.

    A model whose states do not fit one node needs a group of several. No group is a part of two domains.
    """
    doublings = range(cluster.gpus.bit_length())
    inside = (cluster.gpus_per_node << n for n in doublings)
    sizes = {*(size for size in inside if not cluster.reach % size), *(cluster.reach << n for n in doublings)}
    return tuple(sorted(size for size in sizes if size < cluster.gpus))


def shards_of(columns: _Columns) -> Numbers:
    """Return ``shard`` of layouts whose column has the GPUs of a group, over which tp and cp come first; -1 if none."""
    gpus, apart = columns["shard"], columns["tp"] * columns["cp"]
    whole = (gpus % apart == 0) & (gpus < columns["dp"] * apart)
    return np.where(gpus == 0, 0, np.where(whole, gpus // apart, -1))


def _repeats(x: _Columns) -> Flags:
    return np.asarray(x["shard"] != 0)


def _ranks(x: _Columns) -> Numbers:
    return x["shard"] * x["cp"]


SHARD_RULES: tuple[ShardRule, ...] = (
    ShardRule(lambda x, _: ~_repeats(x) | (x["shard"] > 0) & (x["dp"] % np.maximum(x["shard"], 1) == 0),
              lambda x: f"shard={x['shard'][0]} does not divide dp={x['dp'][0]}"),
    ShardRule(lambda x, _: ~_repeats(x) | (x["shard"] < x["dp"]),
              lambda x: f"shard={x['shard'][0]} is all of dp={x['dp'][0]}; write shard=0, or omit it"),
    ShardRule(lambda x, _: ~_repeats(x) | (x["zero"] > 0),
              lambda x: without_zero(x["shard"][0])),
    ShardRule(lambda x, _: ~_repeats(x) | (_ranks(x) > 1),
              lambda _: ONE_SHARD),
    ShardRule(lambda x, _: ~_repeats(x) | (_ranks(x) % x["ep"] == 0),
              lambda x: f"ep={x['ep'][0]} does not divide shard·cp={_ranks(x)[0]}, whose ranks hold the experts"),
    ShardRule(lambda x, job: ~_repeats(x) | (job.framework != "megatron") | (x["zero"] < 2) | (x["ep"] == 1),
              lambda _: "Megatron-FSDP repeats shards without experts only; use zero=1"),
    ShardRule(lambda x, job: ~_repeats(x) | (job.framework != "deepspeed")
              | (x["zero"] == 3) & (x["offload"] == 0) & (x["tp"] * x["pp"] * x["ep"] == 1),
              lambda _: "DeepSpeed repeats shards (MiCS) only with zero=3, dp alone and no offload; see megatron"),
)  # fmt: skip
"""What HSDP cannot have. DeepSpeed: MiCS takes neighbouring ranks of the whole job, and its all-reduce GPU memory."""

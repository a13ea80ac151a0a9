"""Candidate layouts as columns, one array a degree, so that memory and time are computed for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpuops.layout import Layout, Offload, Recompute

Counts: TypeAlias = "npt.NDArray[Any]"
Numbers: TypeAlias = "npt.NDArray[Any]"
Flags: TypeAlias = "npt.NDArray[Any]"
"""Arrays of int64, float64 and bool; numpy's own types for their sums and products depend on its version."""
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
"""Values of `Layout.recompute`; the column holds an index into this."""
OFFLOAD: tuple[Offload, ...] = ("none", "cpu", "nvme")
"""Values of `Layout.offload`; the column holds an index into this."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Layouts as columns of equal length; the fields are those of `Layout`, without the order of ranks."""

    dp: Counts
    pp: Counts
    tp: Counts
    cp: Counts
    ep: Counts
    zero: Counts
    shard: Counts
    mbs: Counts
    chunks: Counts
    vpp: Counts
    offload: Counts
    recompute: Counts
    sequence_parallel: Flags

    def __len__(self) -> int:
        return len(self.dp)

    @classmethod
    def of(cls, layouts: Sequence[Layout]) -> Candidates:
        """Return ``layouts`` as columns, in their order."""
        words = {"offload": OFFLOAD, "recompute": RECOMPUTE}
        columns: dict[str, Any] = {
            name: np.array(
                [words[name].index(getattr(x, name)) if name in words else getattr(x, name) for x in layouts],
                dtype=np.bool_ if name == "sequence_parallel" else np.int64,
            )
            for name in COLUMNS
        }
        return cls(**columns)

    @classmethod
    def product(cls, **columns: npt.ArrayLike) -> Candidates:
        """Return candidates from ``columns``, broadcast to one length; a missing one has the default of `Layout`."""
        default = cls.of([Layout()])
        given = [np.asarray(columns.get(name, getattr(default, name))) for name in COLUMNS]
        same_length = np.broadcast_arrays(*(np.atleast_1d(column) for column in given))
        types = [getattr(default, name).dtype for name in COLUMNS]
        return cls(*(np.ascontiguousarray(c, dtype=t) for c, t in zip(same_length, types, strict=True)))

    def take(self, rows: Counts | Flags | slice) -> Candidates:
        """Return the candidates at ``rows``: indices, a mask or a slice."""
        return Candidates(*(getattr(self, name)[rows] for name in COLUMNS))

    def layout(self, row: int) -> Layout:
        """Return one candidate as a `Layout`."""
        values = {name: getattr(self, name)[row].item() for name in COLUMNS}
        values |= {"offload": OFFLOAD[values["offload"]], "recompute": RECOMPUTE[values["recompute"]]}
        return Layout(**values)

    @property
    def ranks(self) -> Counts:
        """Number of GPUs."""
        return self.dp * self.pp * self.tp * self.cp

    @property
    def dp_replicate(self) -> Counts:
        """Number of copies of the states that ZeRO partitions: 1, but for HSDP."""
        return np.where(self.shard > 0, self.dp // np.maximum(self.shard, 1), 1)

    @property
    def shards(self) -> Counts:
        """Number of ranks among which ZeRO partitions states: dp·cp, but for HSDP."""
        return np.where(self.shard > 0, self.shard, self.dp) * self.cp

    @property
    def global_batch(self) -> Counts:
        """Samples per optimizer step."""
        return self.mbs * self.chunks * self.dp


COLUMNS = tuple(f.name for f in fields(Candidates))

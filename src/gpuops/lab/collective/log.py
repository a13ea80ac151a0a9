"""The output of nccl-tests for one run, and the lines of NCCL in it under ``NCCL_DEBUG=INFO``."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuops.lab.collective.launch import OPERATIONS, Launch
from gpuops.lab.collective.speed import Place, Speed, collnet, multicast

_NCCL = "2.28.9+cuda13.0"
_NOISE = 0.005
_FLOAT_BYTES = 4
_WRONG_VALUES = 4096
_PID = 48000
_HEADER = """\
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
"""  # noqa: W291 - nccl-tests ends its lines so


@dataclass(frozen=True)
class Plan:
    """The measurements of one run: sizes in bytes, and the number of runs."""

    sizes: tuple[int, ...]
    iterations: int
    warmups: int

    @classmethod
    def of(cls, launch: Launch) -> Plan:
        """Return the plan in the options of nccl-tests, or its defaults."""
        smallest = launch.number("-b", "--minbytes", default=32 << 20)
        largest = launch.number("-e", "--maxbytes", default=32 << 20)
        factor = launch.number("-f", "--stepfactor", default=2)
        sizes = [smallest]
        while 0 < sizes[-1] * factor <= largest and factor > 1:
            sizes.append(sizes[-1] * factor)
        iterations = launch.number("-n", "--iters", default=20)
        return cls(tuple(sizes), iterations, launch.number("-w", "--warmup_iters", default=5))

    def seconds(self, speed: Speed, factor: float) -> float:
        """Return the duration of the measurement, out of place and in place."""
        return sum(2 * (self.iterations + self.warmups) * speed.seconds(size, factor) for size in self.sizes)


def bus_factor(program: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)."""
    if program == "sendrecv_perf":
        return 1.0
    return (2 if program == "all_reduce_perf" else 1) * (ranks - 1) / ranks


def printed(launch: Launch, places: Sequence[Place], speed: Speed, repeat: int) -> str:
    """Return the whole log. ``repeat`` counts equal launches: each has its own noise, the same in every lab."""
    dice = random.Random(f"{launch.words} {[(p.host, p.environment) for p in places]} {repeat}")  # noqa: S311
    debug = any(place.environment.get("NCCL_DEBUG") == "INFO" for place in places)
    log = "".join(f"{line}\n" for line in (_nccl_lines(places, speed) if debug else ()))
    rows = list(_rows(launch, places, speed, dice, debug=debug))
    body = f"{''.join(_devices(places))}{log}{_HEADER}{''.join(row for row, _ in rows)}"
    average, wrong = sum(rate for _, rate in rows) / len(rows), 2 * len(rows) * _wrong(places)
    bounds = f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}\n"
    return f"{_start(launch)}{body}{bounds}# Avg bus bandwidth    : {average:g} \n#\n\n"


def _start(launch: Launch) -> str:
    plan = Plan.of(launch)
    sizes = f"minBytes {plan.sizes[0]} maxBytes {plan.sizes[-1]} step: 2(factor)"
    often = f"warmup iters: {plan.warmups} iters: {plan.iterations} agg iters: 1 validation: 1 graph: 0"
    return f"# nThread 1 nGpus {launch.number('-g', default=1)} {sizes} {often}\n#\n# Using devices\n"


def _devices(places: Sequence[Place]) -> Iterator[str]:
    rank = 0
    for place in places:
        for device, gpu in enumerate(place.gpus):
            where = f"on {place.host:>10} device {device:2} [{gpu.address.rpartition('.')[0]}]"
            yield f"#  Rank {rank:2} Group  0 Pid {_PID + rank:6} {where} {gpu.model.name}\n"
            rank += 1


def _rows(
    launch: Launch, places: Sequence[Place], speed: Speed, dice: random.Random, *, debug: bool
) -> Iterator[tuple[str, float]]:
    """Yield each row with the mean of its two bus bandwidths; NCCL reports the algorithm before each half."""
    ranks = sum(len(place.gpus) for place in places)
    factor = bus_factor(launch.program, ranks)
    reduces = launch.program in ("all_reduce_perf", "reduce_scatter_perf")
    share = 1 if launch.program in ("all_reduce_perf", "sendrecv_perf") else ranks
    for size in Plan.of(launch).sizes:
        algorithm = _algorithm(launch, places, speed, size, factor) if debug else ""
        took = [speed.seconds(size, factor) * dice.gauss(1, _NOISE) for _ in range(2)]
        halves = "".join(
            algorithm + _half(seconds, size / seconds / 1e9, factor) + f"{_wrong(places):7}" for seconds in took
        )
        kind = "sum" if reduces else "none"
        yield (
            f"{size:12}{size // _FLOAT_BYTES // share:14}     float{kind:>8}      -1{halves}\n",
            sum(size / seconds / 1e9 * factor for seconds in took) / 2,
        )


def _half(seconds: float, gb_per_s: float, factor: float) -> str:
    microseconds = seconds * 1e6
    digits = max(0, 6 - len(f"{microseconds:.0f}")) if microseconds < 1e4 else 0
    return f"{microseconds:9.{min(digits, 2)}f}{gb_per_s:8.2f}{gb_per_s * factor:8.2f}"


def _wrong(places: Sequence[Place]) -> int:
    return _WRONG_VALUES if any(gpu.miscounts for place in places for gpu in place.gpus) else 0


def _nccl_lines(places: Sequence[Place], speed: Speed) -> Iterator[str]:
    """Yield NCCL's own lines: version, network, a connection for each node, and readiness."""
    yield f"NCCL version {_NCCL}"
    rank, ranks = 0, sum(len(place.gpus) for place in places)
    yield from _collnet_lines(places)
    for place in places:
        start = f"{place.host}:{_PID + rank}:{_PID + rank}"
        if speed.network:
            yield f"{start} [0] NCCL INFO Using network {speed.network}"
            direct = "/GDRDMA" if speed.network == "IB" else ""
            after = (rank + len(place.gpus)) % ranks
            via = f"{rank}[0] -> {after}[0] [send] via NET/{speed.network}/0{direct}"
            yield f"{start} [0] NCCL INFO Channel 00/0 : {via}"
        for device in range(len(place.gpus)):
            if (found := multicast(place)) is not None:
                text = f"NVLS multicast support is {'' if found else 'not '}available on dev {device}"
                yield f"{start} [{device}] NCCL INFO {text}"
            which = f"comm 0x5581c0de rank {rank} nranks {ranks} cudaDev {device}"
            yield f"{start} [{device}] NCCL INFO ncclCommInitRank {which} - Init COMPLETE"
            rank += 1


def _collnet_lines(places: Sequence[Place]) -> Iterator[str]:
    """Yield what NCCL says about SHARP; nothing if it has no plugin for it, or is not asked to use it."""
    start = f"{places[0].host}:{_PID}:{_PID} [0] NCCL"
    if collnet(places) != "none":
        yield f"{start} INFO NET/Plugin: Loaded collnet plugin SHARP (v8)"
    if collnet(places) == "works":
        yield f"{start} INFO CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA"
    if collnet(places) == "fails":
        yield f"{start} WARN Cannot initialize CollNet, using point-to-point network instead"


def _algorithm(launch: Launch, places: Sequence[Place], speed: Speed, size_bytes: int, factor: float) -> str:
    what = f"{OPERATIONS[launch.program]}: {size_bytes} Bytes"
    how = f"Algo {speed.algorithm} proto {speed.protocol(size_bytes, factor)} channel{{Lo..Hi}}={{0..15}}"
    return f"{places[0].host}:{_PID}:{_PID} [0] NCCL INFO {what} -> {how}\n"

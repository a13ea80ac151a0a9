"""Trains a small transformer over gloo in one layout after the other, and prints a step's seconds and the loss of each.

As Megatron-LM does: columns and rows of matrices over tp, groups of layers over pp with all micro-batches forward, then
all backward, and one all-reduce of the gradients over dp. Nothing is overlapped. Every layout starts from the same
weights and batch, so that all must come to the same loss. Of each step the fastest of several counts: what else runs on
the machine only makes one slower.

python train.py RANK ADDRESS JOB, where JOB is JSON: layouts (dp, tp, pp, mbs, chunks), layers, hidden, heads, vocab,
sequence and steps.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn import functional


class ToGroup(torch.autograd.Function):
    """Goes into matrices that are split by columns: the gradients of all parts are added."""

    @staticmethod
    def forward(context, x, group):
        context.group = group
        return x

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class FromGroup(torch.autograd.Function):
    """Comes out of a matrix that is split by rows: the parts are added."""

    @staticmethod
    def forward(context, x, group):
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(context, gradient):
        return gradient, None


class Stage:
    """The layers of one pipeline stage, of which this rank has one part of ``tp``."""

    def __init__(self, job, layout, place, group):
        self.job, self.place, self.group = job, place, group
        self.is_first, self.is_last = place["pp"] == 0, place["pp"] == layout["pp"] - 1
        self.heads = job["heads"] // layout["tp"]
        each = job["layers"] // layout["pp"]
        mine = range(place["pp"] * each, (place["pp"] + 1) * each)
        self.layers = [self.layer(number, layout["tp"]) for number in mine]
        self.words = self.full(1000, job["vocab"], job["hidden"]).requires_grad_()
        ends = [self.words] if self.is_first or self.is_last else []
        self.weights = [weight for layer in self.layers for weight in layer] + ends

    def full(self, seed, rows, columns):
        """The whole of a matrix, which is the same in every layout."""
        return 0.05 * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))

    def layer(self, number, parts):
        hidden, part = self.job["hidden"], self.place["tp"]
        qkv = self.full(4 * number, 3 * hidden, hidden).view(3, parts, hidden // parts, hidden)[:, part].flatten(0, 1)
        out = self.full(4 * number + 1, hidden, hidden).chunk(parts, 1)[part]
        up = self.full(4 * number + 2, 4 * hidden, hidden).chunk(parts, 0)[part]
        down = self.full(4 * number + 3, hidden, 4 * hidden).chunk(parts, 1)[part]
        return [weight.clone().requires_grad_() for weight in (qkv, out, up, down)]

    def forward(self, x):
        for qkv, out, up, down in self.layers:
            x = x + self.split(functional.layer_norm(x, x.shape[-1:]), lambda y, q=qkv, o=out: self.attention(y, q, o))
            mlp = lambda y, u=up, d=down: functional.gelu(y @ u.T) @ d.T  # noqa: E731
            x = x + self.split(functional.layer_norm(x, x.shape[-1:]), mlp)
        return x

    def split(self, x, compute):
        if self.group is None:
            return compute(x)
        return FromGroup.apply(compute(ToGroup.apply(x, self.group)), self.group)

    def attention(self, x, qkv, out):
        parts = (x @ qkv.T).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        return mixed.transpose(1, 2).flatten(2) @ out.T

    def loss(self, x, tokens):
        scores = functional.layer_norm(x, x.shape[-1:]) @ self.words.T
        return functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def groups_of(layout, rank):
    """This rank's place on each axis, and its groups; every rank makes all groups, in the same order."""
    tp, dp = layout["tp"], layout["dp"]
    place = {"tp": rank % tp, "dp": rank // tp % dp, "pp": rank // (tp * dp)}
    mine = {}
    for stage in range(layout["pp"]):
        grid = [[stage * dp * tp + row * tp + column for column in range(tp)] for row in range(dp)]
        for axis, rows in (("tp", grid), ("dp", [list(column) for column in zip(*grid, strict=True)])):
            for ranks in rows:
                group = dist.new_group(ranks) if len(ranks) > 1 else None
                if rank in ranks:
                    mine[axis] = group
    return place, mine


def step(stage, layout, groups, tokens):
    """One step; the mean loss of this replica, on the last stage."""
    place, near = stage.place, layout["tp"] * layout["dp"]
    rank = dist.get_rank()
    shape = (layout["mbs"], stage.job["sequence"], stage.job["hidden"])
    done, total = [], 0.0
    for micro in tokens.split(layout["mbs"]):
        if stage.is_first:
            came = functional.embedding(micro, stage.words)
        else:
            came = torch.empty(shape)
            dist.recv(came, rank - near)
            came.requires_grad_()
        went = stage.forward(came)
        if stage.is_last:
            went = stage.loss(went, micro) / layout["chunks"]
            total += went.item()
        else:
            dist.send(went.detach().contiguous(), rank + near)
        done.append((came, went))
    for came, went in done:
        gradient = None
        if not stage.is_last:
            gradient = torch.empty(shape)
            dist.recv(gradient, rank + near)
        went.backward(gradient)
        if place["pp"]:
            dist.send(came.grad.contiguous(), rank - near)
    if groups["dp"] is not None:
        flat = torch.cat([weight.grad.flatten() for weight in stage.weights])
        dist.all_reduce(flat, group=groups["dp"])
    for weight in stage.weights:
        weight.grad = None
    return total


def run(job, layout):
    """Seconds of the fastest step, and the loss."""
    rank = dist.get_rank()
    place, groups = groups_of(layout, rank)
    stage = Stage(job, layout, place, groups["tp"])
    own = layout["mbs"] * layout["chunks"]
    everything = torch.randint(
        job["vocab"], (own * layout["dp"], job["sequence"]), generator=torch.Generator().manual_seed(7)
    )
    tokens = everything[place["dp"] * own : (place["dp"] + 1) * own]
    times, loss = [], 0.0
    for _ in range(job["steps"]):
        dist.barrier()
        began = time.perf_counter()
        loss = step(stage, layout, groups, tokens)
        dist.barrier()
        times.append(time.perf_counter() - began)
    mean = torch.tensor(loss / layout["dp"] if stage.is_last and not place["tp"] else 0.0, dtype=torch.float64)
    dist.all_reduce(mean)
    return {"seconds": min(times), "all": times, "loss": mean.item()}


def main(rank, address, job):
    torch.set_num_threads(1)
    size = job["layouts"][0]["dp"] * job["layouts"][0]["tp"] * job["layouts"][0]["pp"]
    os.environ.update(MASTER_ADDR=address, MASTER_PORT="29511", GLOO_SOCKET_IFNAME="eth0")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    found = [run(job, layout) for layout in job["layouts"]]
    if not rank:
        print(json.dumps(found))  # noqa: T201
    dist.barrier()
    dist.destroy_process_group()


main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))

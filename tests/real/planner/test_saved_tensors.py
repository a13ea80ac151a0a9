"""Activations that PyTorch really keeps for the backward pass are those that the planner counts, within 2 %."""

import pytest

from gpuops.planner.candidates import Candidates
from gpuops.planner.memory import layer_activation_bytes
from gpuops.planner.model import TransformerSpec
from gpuops.planner.training import TrainingSetup

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gpuops[launch]')")

SIZES = [  # hidden, heads, key-value heads, feed-forward units, sequence, gated
    (256, 4, 4, 1024, 128, False),
    (512, 8, 8, 2048, 256, False),
    (768, 12, 12, 3072, 64, False),
    (256, 4, 2, 704, 128, True),
    (512, 8, 2, 1408, 256, True),
    (1024, 16, 4, 2816, 64, True),
]


class SwiGlu(torch.autograd.Function):
    """The fused activation of training libraries: it keeps both halves, and computes the rest again."""

    @staticmethod
    def forward(context, gate, up):
        context.save_for_backward(gate, up)
        return torch.nn.functional.silu(gate) * up

    @staticmethod
    def backward(context, gradient):
        return gradient, gradient


def layer(hidden, heads, kv_heads, ffn, gated):
    """A pre-norm layer as libraries fuse it: no scores are stored, and dropout is off."""
    width = hidden // heads
    linear = lambda a, b: torch.nn.Linear(a, b, bias=False, dtype=torch.bfloat16)  # noqa: E731
    qkv, out = linear(hidden, (heads + 2 * kv_heads) * width), linear(hidden, hidden)
    up, down = linear(hidden, ffn * (2 if gated else 1)), linear(ffn, hidden)
    norms = [torch.nn.LayerNorm(hidden, dtype=torch.bfloat16) for _ in range(2)]

    def run(x):
        batch, length, _ = x.shape
        queries, keys, values = qkv(norms[0](x)).split([heads * width, kv_heads * width, kv_heads * width], -1)
        q, k, v = (t.view(batch, length, -1, width).transpose(1, 2) for t in (queries, keys, values))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads != heads)
        x = x + out(mixed.transpose(1, 2).reshape(batch, length, hidden))
        inner = up(norms[1](x))
        return x + down(SwiGlu.apply(*inner.chunk(2, -1)) if gated else torch.nn.functional.gelu(inner))

    weights = [p for module in (qkv, out, up, down, *norms) for p in module.parameters()]
    return run, {weight.untyped_storage().data_ptr() for weight in weights}


def kept_bytes(run, weights, x):
    """Bytes of the distinct storages that autograd keeps, without the weights."""
    storages = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = run(x)
    assert result.requires_grad
    return sum(storage.nbytes() for storage in storages.values())


@pytest.mark.parametrize(("hidden", "heads", "kv_heads", "ffn", "sequence", "gated"), SIZES)
def test_a_layer_keeps_what_is_counted(hidden, heads, kv_heads, ffn, sequence, gated):
    run, weights = layer(hidden, heads, kv_heads, ffn, gated)
    x = torch.randn(4, sequence, hidden, dtype=torch.bfloat16, requires_grad=True)
    model = TransformerSpec("m", 1, hidden, heads, kv_heads, ffn, 100, head_dim=hidden // heads, gated=gated)
    counted = layer_activation_bytes(model, TrainingSetup(sequence, 4), Candidates.product(mbs=4))[0]
    assert kept_bytes(run, weights, x) == pytest.approx(counted, rel=0.02)

"""Our copy of DeepSpeed's estimates equals its formulas to the byte; tests/real asks DeepSpeed itself."""

import itertools

import pytest

from gpuops.planner.deepspeed_memory import zero2_states, zero3_states

SIZES = [(124_439_808, 38_597_376), (8_030_261_248, 525_336_576), (176_247_271_424, 3_596_615_680)]
CLUSTERS = list(itertools.product([1, 2, 4, 8, 16], [1, 2, 3, 4, 7, 16, 64, 100]))


@pytest.mark.parametrize("parameters", [parameters for parameters, _ in SIZES])
@pytest.mark.parametrize("offload", [False, True])
def test_zero_2_equals_the_published_formula(parameters, offload):
    for per_node, nodes in CLUSTERS:
        gpus = per_node * nodes
        host = parameters * (max(4 * gpus, 16) if offload else 4 * per_node) * 1.5
        gpu = 2 * parameters + (0 if offload else int(18 * parameters / gpus))
        assert zero2_states(parameters, per_node, nodes, offload=offload) == (int(host), gpu)


@pytest.mark.parametrize(("parameters", "layer"), SIZES)
@pytest.mark.parametrize("zero_init", [False, True])
def test_zero_3_equals_the_published_formula(parameters, layer, zero_init):
    for per_node, nodes in CLUSTERS:
        factor, gpus = 1 / nodes, per_node * nodes
        expected = {}
        for each, words in ((18, (True, True)), (16, (True, False))):
            host = (
                parameters * each * factor * 1.5 if zero_init else parameters * max(4 * per_node, each * factor) * 1.5
            )
            expected[words] = int(host), 4 * layer + (0 if words[1] else int(2 * parameters / gpus))
        none = (layer if zero_init else parameters) * 4 * per_node * 1.5
        expected[False, False] = int(none), 4 * layer + int(18 * parameters / gpus)
        for (optimizer, weights), states in expected.items():
            assert states == zero3_states(
                parameters,
                layer,
                per_node,
                nodes,
                offload_optimizer=optimizer,
                offload_parameters=weights,
                zero_init=zero_init,
            )

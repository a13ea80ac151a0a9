"""DeepSpeed itself estimates what our copy of its formulas does, to the byte."""

import itertools

import pytest

from gpuops.planner.deepspeed_memory import zero2_states, zero3_states

pytest.importorskip("deepspeed", reason="DeepSpeed is not installed (pip install 'gpuops[launch]')")

SIZES = [(124_439_808, 38_597_376), (8_030_261_248, 525_336_576), (176_247_271_424, 3_596_615_680)]
CLUSTERS = list(itertools.product([1, 2, 4, 8, 16], [1, 2, 3, 4, 7, 16, 64, 100]))


@pytest.mark.parametrize(("parameters", "layer"), SIZES)
def test_estimates_are_deepspeeds(parameters, layer):
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as zero3
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as zero2

    for (per_node, nodes), offload, weights, init in itertools.product(CLUSTERS, *[[False, True]] * 3):
        ours = zero2_states(parameters, per_node, nodes, offload=offload)
        assert ours == zero2(parameters, per_node, nodes, offload)
        ours = zero3_states(
            parameters,
            layer,
            per_node,
            nodes,
            offload_optimizer=offload,
            offload_parameters=offload and weights,
            zero_init=init,
        )
        assert ours == zero3(parameters, layer, per_node, nodes, offload, weights, init)[:2]

"""Step times that llm-analysis (PyPI) predicts: JSON jobs on stdin, JSON seconds (null if it refuses) on stdout.

bench/planner.py runs it with the Python of an environment of its own, because llm-analysis pins transformers:

    python3 -m venv peer && peer/bin/pip install llm-analysis
"""

import contextlib
import io
import json
import logging
import sys

from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
from llm_analysis.config import GPUConfig, ModelConfig, ParallelismConfig

EFFICIENCY = 0.5
"""Its flops_efficiency, which a user must choose; 0.5 is what its README takes for training on A100."""


def seconds(job):
    model = ModelConfig(
        "model",
        job["layers"],
        job["heads"],
        job["hidden"],
        job["vocab"],
        max_seq_len=job["sequence"],
        num_key_value_heads=job["kv_heads"],
        ffn_embed_dim=job["ffn"],
    )
    gpu = GPUConfig(
        "gpu",
        10_000,  # GB: it refuses what it thinks does not fit, and these runs ran
        job["memory_gb_per_s"],
        job["nvlink_gb_per_s"],
        8e-6,
        job["tflops"],
        inter_node_bandwidth_in_GB_per_sec=job["network_gb_per_s"],
    )
    parallel = ParallelismConfig(job["tp"], job["pp"], job["dp"], sp_size=job["tp"] if job["sequence_parallel"] else 1)
    tool = LLMAnalysis(model, gpu, parallelism_config=parallel, flops_efficiency=EFFICIENCY, hbm_memory_efficiency=1.0)
    result = tool.training(
        batch_size_per_gpu=job["mbs"],
        gradient_accumulation_steps=job["chunks"],
        seq_len=job["sequence"],
        activation_recomputation={0: ActivationRecomputation.NONE, 1: ActivationRecomputation.SELECTIVE}.get(
            job["recompute"], ActivationRecomputation.FULL
        ),
        ds_zero=DSZeRO(job["zero"]),
        flash_attn=job["flash_attention"],
        mlp_gated_linear_units=job["gated"],
    )
    return result["latency_per_iter"]


def main():
    logging.disable(logging.CRITICAL)
    found = []
    with contextlib.redirect_stdout(io.StringIO()):
        for job in json.load(sys.stdin):
            try:
                found.append(seconds(job))
            except (AssertionError, ValueError, ZeroDivisionError):
                found.append(None)
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""Finds settings that launchers silently ignore or contradict; each message names the file and the reason; pure.

Files are recognized by name, whether a built-in template, a user's template or a manual edit made them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gpuops.document import YamlNode, parse, parse_json
from gpuops.errors import DocumentError, did_you_mean
from gpuops.placement import Placement
from gpuops.render.rendering import Rendered

_DEEPSPEED_KEYS = frozenset(
    "activation_checkpointing aio amp autotuning bf16 bfloat16 checkpoint comet comms_logger"
    " communication_data_type compile compression_training csv_monitor curriculum_learning data_efficiency"
    " data_types dataloader_drop_last disable_allgather dump_state eigenvalue elasticity flops_profiler fp16"
    " gradient_accumulation_steps gradient_clipping gradient_predivide_factor graph_harvesting hybrid_engine"
    " memory_breakdown nebula optimizer pipeline prescale_gradients progressive_layer_drop quantize_training"
    " scheduler seq_parallel_communication_data_type sparse_attention sparse_gradients steps_per_print"
    " tensor_parallel tensorboard timers torch_autocast train_batch_size train_micro_batch_size_per_gpu"
    " use_data_before_expert_parallelism wall_clock_breakdown wandb weight_quantization"
    " zero_allow_untested_optimizer zero_force_ds_cpu_optimizer zero_optimization".split()
)
"""The top-level keys that DeepSpeed 0.19 reads (runtime/config.py); it silently ignores any other."""

_ACCELERATE_KEYS: Mapping[str, frozenset[str]] = {
    "fsdp_config": frozenset(
        "fsdp_activation_checkpointing fsdp_activation_checkpointing_offload fsdp_auto_wrap_policy"
        " fsdp_backward_prefetch fsdp_cpu_ram_efficient_loading fsdp_forward_prefetch fsdp_ignored_modules"
        " fsdp_min_num_params fsdp_offload_params fsdp_reshard_after_forward"
        " fsdp_sharding_strategy fsdp_state_dict_type fsdp_sync_module_states fsdp_transformer_layer_cls_to_wrap"
        " fsdp_use_orig_params fsdp_version".split()
    ),
    "deepspeed_config": frozenset(
        "deepspeed_config_file deepspeed_exclusion_filter deepspeed_hostfile deepspeed_inclusion_filter"
        " deepspeed_moe_layer_cls_names deepspeed_multinode_launcher gradient_accumulation_steps gradient_clipping"
        " offload_optimizer_device offload_param_device"
        " zero3_init_flag zero3_save_16bit_model zero_stage".split()
    ),
    "megatron_lm_config": frozenset(
        "megatron_lm_attention_backend megatron_lm_attention_dropout megatron_lm_attention_softmax_in_fp32"
        " megatron_lm_calculate_per_token_loss megatron_lm_context_parallel_size"
        " megatron_lm_decoder_last_pipeline_num_layers megatron_lm_eod_mask_loss"
        " megatron_lm_expert_model_parallel_size megatron_lm_expert_tensor_parallel_size"
        " megatron_lm_gradient_clipping megatron_lm_hidden_dropout megatron_lm_no_load_optim"
        " megatron_lm_no_save_optim megatron_lm_num_micro_batches megatron_lm_optimizer_cpu_offload"
        " megatron_lm_overlap_cpu_optimizer_d2h_h2d megatron_lm_pp_degree megatron_lm_recompute_activations"
        " megatron_lm_recompute_granularity megatron_lm_recompute_method megatron_lm_recompute_num_layers"
        " megatron_lm_sequence_parallelism megatron_lm_tp_degree megatron_lm_use_custom_fsdp"
        " megatron_lm_use_distributed_optimizer megatron_lm_use_precision_aware_optimizer"
        " megatron_lm_use_rotary_position_embeddings".split()
    ),
    "parallelism_config": frozenset(
        "parallelism_config_cp_backend parallelism_config_cp_comm_strategy parallelism_config_cp_size"
        " parallelism_config_dp_replicate_size parallelism_config_dp_shard_size parallelism_config_sp_backend"
        " parallelism_config_sp_size parallelism_config_tp_size".split()
    ),
}
"""The keys of each section that reach what Accelerate 1.15 launches; its loader checks only the top level.

Its questionnaire also writes offload_optimizer_nvme_path and offload_param_nvme_path, which it does not pass on."""

_HOST = re.compile(r"(\S+)\s+slots=(\d{1,6})\s*(?:#.*)?\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=\S.*\Z")


def lint(files: Iterable[Rendered], placement: Placement) -> Iterator[str]:
    """Yield what is wrong in ``files`` for this placement, one sentence each."""
    for file in files:
        name = file.path.rpartition("/")[2]
        for pattern, check in _CHECKS.items():
            if re.fullmatch(pattern, name):
                yield from (f"{file.path}{message}" for message in check(file.text, placement))


def _deepspeed_config(text: str, placement: Placement) -> Iterator[str]:
    try:
        config = parse_json(text)
    except ValueError as error:
        yield f": not JSON: {error}"
        return
    if not isinstance(config, dict):
        yield ": not a JSON object, as a DeepSpeed configuration must be"
        return
    for key in sorted(set(config) - _DEEPSPEED_KEYS):
        yield f': DeepSpeed ignores the unknown key "{key}"{did_you_mean(key, _DEEPSPEED_KEYS)}'
    yield from _batch(config, placement)
    zero = config.get("zero_optimization", {})
    stage = zero.get("stage", 0) if isinstance(zero, dict) else 0
    if placement.layout.pp > 1 and isinstance(stage, int) and stage >= 2:
        yield f": pp={placement.layout.pp} with ZeRO {stage}: DeepSpeed's pipeline engine refuses that; use stage 1"


def _batch(config: Mapping[str, Any], placement: Placement) -> Iterator[str]:
    """Compare the three batch sizes: DeepSpeed asserts that they agree, but only after all processes have started."""
    keys = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    numbers = [config[key] for key in keys if isinstance(config.get(key), int)]
    if len(numbers) == len(keys) and numbers[2] != (product := numbers[0] * numbers[1] * placement.layout.dp):
        words = f"{numbers[0]} · {numbers[1]} · dp={placement.layout.dp}"
        yield f": train_batch_size is {numbers[2]}, but {words} is {product}"


def _deepspeed_environment(text: str, _placement: Placement) -> Iterator[str]:
    """Yield lines that DeepSpeed misreads: a comment silently ends the remote command line, a blank line fails."""
    for number, line in enumerate(text.splitlines(), 1):
        if not _VARIABLE.match(line):
            yield f":{number}: expected NAME=VALUE (no comments, no blank lines), found {line!r}"


def _hostfile(text: str, placement: Placement) -> Iterator[str]:
    line_by_host: dict[str, int] = {}
    slots: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _HOST.match(line.strip())
        if match is None:
            yield f":{number}: expected HOST slots=N, found {line!r}"
            continue
        if match[1] in line_by_host:
            yield f":{number}: {match[1]} is listed twice, first on line {line_by_host[match[1]]}"
        line_by_host.setdefault(match[1], number)
        slots.append(int(match[2]))
    expected = [len(placement.on(node.name)) for node in placement.nodes]
    if slots != expected:
        yield f": slots are {slots}, but the nodes of this layout hold {expected} ranks"


def _accelerate(text: str, placement: Placement) -> Iterator[str]:
    try:
        top = parse(text, "").map()
    except DocumentError as error:
        yield str(error)
        return
    if "compute_environment" not in top:
        return
    for section in set(top) & set(_ACCELERATE_KEYS):
        yield from _unknown_keys(section, top[section])
    processes = top.get("num_processes")
    if processes is not None and processes.scalar != str(placement.layout.ranks):
        yield f": num_processes is {processes.scalar}, but this layout has {placement.layout.ranks} ranks"


def _unknown_keys(section: str, node: YamlNode) -> Iterator[str]:
    known_keys = _ACCELERATE_KEYS[section]
    for key in sorted(set(node.map(section)) - known_keys):
        hint = did_you_mean(key, known_keys)
        yield f'{node.keys[key]}: Accelerate ignores the unknown key "{key}" in {section}{hint}'


_CHECKS: Mapping[str, Callable[[str, Placement], Iterator[str]]] = {
    r"ds_config.*\.json": _deepspeed_config,
    r"\.deepspeed_env": _deepspeed_environment,
    r"hostfile": _hostfile,
    r"config.*\.ya?ml": _accelerate,
}

"""Probes of the GPUs, of NVIDIA's driver and tools, and of NCCL."""

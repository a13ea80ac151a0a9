"""Probes of GPUs, NVIDIA's driver and tools, and NCCL."""

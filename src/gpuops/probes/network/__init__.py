"""Probes of InfiniBand, RoCE and Ethernet adapters, and of the fabric that they connect to."""

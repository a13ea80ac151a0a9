"""Probes of InfiniBand, RoCE and Ethernet adapters and of the fabric behind them."""

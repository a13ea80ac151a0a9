"""Probes of the host: kernel, disks, clock, services and the PCI bus."""

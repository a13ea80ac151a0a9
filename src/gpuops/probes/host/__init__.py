"""Probes of the machine itself: kernel, disks, clock, services and the PCI bus."""

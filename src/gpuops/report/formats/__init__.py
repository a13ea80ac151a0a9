"""Formats of the health report, one file each."""

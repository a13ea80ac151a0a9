"""A simulated cluster on one machine: real SSH, a real shell per command, and tools that print one hardware model.

``machines/`` describes hardware, `model` holds one node's state, `faults` are changes to it, ``tools/`` print it the
way the real programs do, `tree` shows it as /sys and /proc, `server` answers on a loopback port for each host, and
`cluster` starts and stops all of that. No module outside this package knows that it exists.
"""

"""A cluster on one machine: real SSH, a real shell per command, and tools that all tell of one hardware model.

``machines/`` describes hardware, `model` holds one node's state, `faults` are changes to it, ``tools/`` print it the
way the real programs do, `tree` shows it as /sys and /proc, `server` answers on a loopback port for each host, and
`cluster` brings all that up and down. Nothing outside this package knows that it exists.
"""

"""Programs of a lab host: one shell script behind every program's name, and two small Python scripts.

They are copied into the lab's directory and run by any Python of the hosts' user, with the standard library only.
"""

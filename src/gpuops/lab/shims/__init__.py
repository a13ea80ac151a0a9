"""What runs on a lab host: one shell script behind every program's name, and two small Python scripts.

They are copied into the lab's folder and run by whatever Python the hosts' user may run: standard library only.
"""

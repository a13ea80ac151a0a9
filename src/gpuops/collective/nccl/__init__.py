"""What the ``nccl`` engine knows: libraries, ranks and their GPUs, verdicts, and a round's course.

All but the course is pure: text and replies of nodes in, values out.
"""

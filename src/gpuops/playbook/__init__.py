"""Playbooks: the desired state of nodes. A task inspects and plans; the engine applies the plan and inspects again."""

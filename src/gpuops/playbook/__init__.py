"""Playbooks: what nodes shall become. A task asks and plans, the engine does, and asks again whether it held."""

"""The life cycle of a node, from a bare machine to one that takes jobs: states, gates and schedulers."""

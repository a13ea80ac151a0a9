"""The rounds inside nodes: what one node showed, which step comes next for it, and the part that is blamed."""

"""Groups of many nodes at once, and the nodes that slow only such groups down."""

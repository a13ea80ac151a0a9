"""Tables of measured runs: how close the planner comes to them, and calibrations by them."""

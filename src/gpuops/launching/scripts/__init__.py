"""The scripts of a launch directory as they stand, compared with the plan from which they were rendered."""

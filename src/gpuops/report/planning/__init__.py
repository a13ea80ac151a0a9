"""Text reports of the planner: layouts, pipeline schedules, scores and calibrations."""

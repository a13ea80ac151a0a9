"""Files on the control machine: atomic replacement, locks, private files, and who else may write to a file."""

"""Why a job cannot start: its launch command is read, its nodes are inspected, and one all-reduce runs on them."""

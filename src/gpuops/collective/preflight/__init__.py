"""Why a job cannot start: its launch command read, its nodes inspected, and one all-reduce on exactly those nodes."""

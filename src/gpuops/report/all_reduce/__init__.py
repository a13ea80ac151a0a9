"""Text reports of all-reduces: measurements, what an isolation blames, and what NVLink, SHARP and loopback add."""

"""Report of a sweep over sizes: as text with a chart, and as SVG."""

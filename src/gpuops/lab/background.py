"""The lab's background process: `cluster.up` starts it with its settings, and sets how it reports."""

from __future__ import annotations

import json
import os
import sys

from gpuops.lab.server import serve


def main() -> None:
    """Serve the hosts of the settings in ``sys.argv[1]`` until the lab ends."""
    settings = json.loads(sys.argv[1])

    def ready(news: dict[str, object]) -> None:
        with os.fdopen(settings["report"], "w", encoding="utf-8") as report:
            json.dump(news, report)

    serve(settings, ready)

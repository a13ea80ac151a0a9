"""The lab's background process: ``python -m gpuops.lab SETTINGS``, where `cluster.up` sets how it reports."""

from __future__ import annotations

import json
import os
import sys

from gpuops.lab.server import serve


def _main() -> None:
    settings = json.loads(sys.argv[1])

    def ready(news: dict[str, object]) -> None:
        with os.fdopen(settings["report"], "w", encoding="utf-8") as report:
            json.dump(news, report)

    serve(settings, ready)


_main()

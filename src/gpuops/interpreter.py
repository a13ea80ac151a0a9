"""How to start this Python again for gpuops' own processes, which import nothing from the current directory."""

from __future__ import annotations

import sys

_CALL = "import sys; sys.path[:] = [place for place in sys.path if place]; from {module} import main; main()"


def calling_main(module: str) -> list[str]:
    """Return the words that call ``main`` of ``module``; its ``sys.argv`` has the words that follow them.

    ``python -m`` and ``python -c`` look in the current directory first, where a ``random.py`` of the user would replace
    Python's own.
    """
    return [sys.executable, "-c", _CALL.format(module=module)]

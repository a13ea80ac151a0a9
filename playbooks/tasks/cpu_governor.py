"""The frequency governor of the processors."""

import re
from dataclasses import dataclass

from gpuops import Failed, Files, Plan, read_files, task, use

_FOLDER = "/sys/devices/system/cpu/cpu*/cpufreq"


@dataclass(frozen=True)
class Params:
    """``governor`` of Linux; performance keeps the clocks high."""

    governor: str = "performance"

    def __post_init__(self) -> None:
        """Raise `ValueError` unless it is one word, because it is written into a script."""
        if not re.fullmatch(r"[a-z]+", self.governor):
            raise ValueError(f'governor must be a word such as performance, found "{self.governor}"')


@task
def cpu_governor(params: Params) -> Plan:
    """Every processor has the governor, now and after every boot; a node without frequency scaling is skipped."""
    answer = yield Files((f"{_FOLDER}/scaling_governor", f"{_FOLDER}/scaling_available_governors"))
    files = read_files(answer.out)
    now = {text.strip() for path, text in files.items() if path.endswith("/scaling_governor")}
    offered = [text.split() for path, text in files.items() if path.endswith("_governors")]
    if not now:
        return
    if not all(params.governor in words for words in offered):
        yield Failed(f"the kernel offers no governor {params.governor}, only {' '.join(offered[0])}")
    script = f'for file in {_FOLDER}/scaling_governor; do\n    echo {params.governor} >"$file"\ndone\n'
    about, due = "clock of the processors", now != {params.governor}
    yield from use("boot_script", name="cpu-governor", about=about, script=script, due=due)

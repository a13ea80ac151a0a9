"""The CUDA toolkit, without the driver that the package cuda would install."""

import re
from dataclasses import dataclass

from gpuops import Failed, Plan, Unknown, task, use
from gpuops.probes.nvidia.nvidia_smi import smi

_PROFILE = """\
# gpuops: task cuda_toolkit
case ":$PATH:" in *:{home}/bin:*) ;; *) PATH=$PATH:{home}/bin ;; esac
"""


@dataclass(frozen=True)
class Params:
    """``version`` of the toolkit as two numbers (13.0); several can be installed side by side.

    ``on_path`` adds nvcc and its companions to the PATH of logins.
    """

    version: str
    on_path: bool = True

    def __post_init__(self) -> None:
        """Raise `ValueError` unless it is two numbers; the third is the newest in the repository."""
        if not re.fullmatch(r"\d+\.\d+", self.version):
            raise ValueError(f'version must be two numbers (13.0), found "{self.version}"')


@task
def cuda_toolkit(params: Params) -> Plan:
    """A toolkit newer than the loaded driver is refused: programs that compile code when they start would fail."""
    name = f"cuda-toolkit-{params.version.replace('.', '-')}"
    report = yield smi
    newest = None if isinstance(report, Unknown) else report.cuda_version
    if newest and _numbers(newest) < _numbers(params.version):
        yield Failed(f"the loaded driver supports CUDA up to {newest}, but the toolkit is {params.version}")
    yield from use("package", names=[name])
    yield from use("package_hold", names=[name])
    if params.on_path:
        content = _PROFILE.format(home=f"/usr/local/cuda-{params.version}")
        yield from use("file", path="/etc/profile.d/gpuops-cuda.sh", content=content)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]

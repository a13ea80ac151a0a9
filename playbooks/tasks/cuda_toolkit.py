"""The CUDA toolkit, without the driver that the package cuda would bring along."""

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
    """``version`` of the toolkit as two numbers (13.0); several may be there, beside one another.

    ``on_path`` puts nvcc and its companions on the path of those who log in.
    """

    version: str
    on_path: bool = True

    def __post_init__(self) -> None:
        """Two numbers: the third is the newest that the repository has."""
        if not re.fullmatch(r"\d+\.\d+", self.version):
            raise ValueError(f'version is two numbers (13.0), found "{self.version}"')


@task
def cuda_toolkit(params: Params) -> Plan:
    """A toolkit newer than the loaded driver is refused, because programs that are compiled at start-up would fail."""
    name = f"cuda-toolkit-{params.version.replace('.', '-')}"
    report = yield smi
    newest = None if isinstance(report, Unknown) else report.cuda_version
    if newest and _numbers(newest) < _numbers(params.version):
        yield Failed(f"the loaded driver knows CUDA up to {newest}, and the toolkit is {params.version}")
    yield from use("package", names=[name])
    yield from use("package_hold", names=[name])
    if params.on_path:
        content = _PROFILE.format(home=f"/usr/local/cuda-{params.version}")
        yield from use("file", path="/etc/profile.d/gpuops-cuda.sh", content=content)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]

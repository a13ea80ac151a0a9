"""Boot images that contain the current modprobe.d files."""

import re
from dataclasses import dataclass

from gpuops import Change, Command, Failed, Files, Plan, read_files, task

_RELEASE = "/proc/sys/kernel/osrelease"
_TOOLS = {
    "initrd.img-": ("update-initramfs", "-u", "-k", "all"),  # Debian, Ubuntu
    "initramfs-": ("dracut", "--force", "--regenerate-all"),  # RHEL, Rocky
}


@dataclass(frozen=True)
class Params:
    """``files`` on the node that the image must contain; set ``due`` if one of them is about to change."""

    files: tuple[str, ...]
    due: bool = False


@task
def initramfs(params: Params) -> Plan:
    """If the image of the running kernel is older than one of the files, all images are rebuilt.

    A node that boots without an initramfs is skipped.
    """
    answer = yield Files((_RELEASE,))
    kernel = read_files(answer.out).get(_RELEASE, "").strip()
    if not kernel:
        yield Failed("cannot read the kernel's release")
    images = {f"/boot/initrd.img-{kernel}": "initrd.img-", f"/boot/initramfs-{kernel}.img": "initramfs-"}
    stat_answer = yield Command(("stat", "-c", "%.9Y %n", "--", *images, *params.files), become="if-refused")
    times = {name: float(seconds) for seconds, name in re.findall(r"^(\d+\.\d+) (/.*)$", stat_answer.out, re.MULTILINE)}
    newest = max((times[name] for name in params.files if name in times), default=0.0)
    for image, kind in images.items():
        if image in times and (params.due or newest > times[image]):
            tool = Command(_TOOLS[kind], timeout_seconds=600, become="always")
            yield Change("rebuild the initramfs", tool, kind="rebuild")

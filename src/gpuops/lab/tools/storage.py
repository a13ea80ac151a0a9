"""nvme smart-log, and /proc/mdstat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from gpuops.lab.identity import SERIAL
from gpuops.lab.model import Node
from gpuops.lab.model.storage import Drive, Mirror
from gpuops.lab.tools.answer import Answer


def nvme(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``nvme smart-log -o json /dev/nvmeN`` prints; only root can open the device."""
    device = words[-1] if words else ""
    drive = next((d for d in node.drives if f"/dev/{d.name}" == device), None)
    if "smart-log" not in words or drive is None:
        return Answer(err=f"{device}: No such file or directory\n", code=2)
    if not root:
        return Answer(err=f"failed to open {device}: Permission denied\n", code=1)
    if drive.state != "live":
        return Answer(err=f"failed to open {device}: Resource temporarily unavailable\n", code=1)
    return Answer(out=json.dumps(_log(drive), indent=2) + "\n")


def _log(drive: Drive) -> dict[str, int]:
    return {
        "critical_warning": drive.critical,
        "temperature": 311,
        "avail_spare": drive.spare,
        "spare_thresh": drive.threshold,
        "percent_used": drive.used,
        "endurance_grp_critical_warning_summary": 0,
        "data_units_read": 91283471,
        "data_units_written": 188372911,
        "power_cycles": 41,
        "power_on_hours": 9120,
        "unsafe_shutdowns": 27,
        "media_errors": drive.media_errors,
        "num_err_log_entries": 156609,
    }


def sysfs(node: Node) -> Iterator[tuple[str, str]]:
    """Yield the files of each drive, and /proc/mdstat."""
    for drive in node.drives:
        folder = f"/sys/class/nvme/{drive.name}"
        yield f"{folder}/state", drive.state
        yield f"{folder}/model", f"{drive.model:<40}"
        yield f"{folder}/serial", f"S64G{SERIAL}{drive.name[4:]:<8}"
        yield f"{folder}/firmware_rev", "GDC5602Q"
        yield f"{folder}/transport", "pcie"
    rows = [row for mirror in node.mirrors for row in _mirror(mirror)]
    yield (
        "/proc/mdstat",
        "\n".join(["Personalities : [raid1] [raid6] [raid5] [raid4] ", *rows, "unused devices: <none>"]),
    )


def _mirror(mirror: Mirror) -> Iterator[str]:
    left = [name for name in mirror.members if name not in mirror.lost]
    members = " ".join(f"{name}p2[{mirror.members.index(name)}]" for name in reversed(left))
    yield f"{mirror.name} : active raid1 {members}"
    marks = "".join("_" if name in mirror.lost else "U" for name in mirror.members)
    yield f"      937165824 blocks super 1.2 [{len(mirror.members)}/{len(left)}] [{marks}]"
    yield "      bitmap: 3/7 pages [12KB], 65536KB chunk"
    yield ""

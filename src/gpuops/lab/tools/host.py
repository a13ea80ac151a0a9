"""Basic commands: hostname, uname, id, whoami, df, timedatectl, chronyc."""

from __future__ import annotations

from collections.abc import Sequence

from gpuops.lab.identity import HOST, NOW
from gpuops.lab.model import Disk, Node
from gpuops.lab.tools.answer import Answer

_KIB_PER_GIB = 1024 * 1024


def hostname(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return the host's name, whichever form is requested."""
    del node, words, root
    return Answer(out=f"{HOST}\n")


def uname(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``uname`` prints for -s, -n, -r, -v, -m, -o and -a."""
    del root
    fields = {
        "s": "Linux",
        "n": HOST,
        "r": node.system.kernel,
        "v": "#129-Ubuntu SMP",
        "m": node.system.machine,
        "o": "GNU/Linux",
    }
    letters = "".join(w[1:] for w in words if w.startswith("-")) or "s"
    return Answer(out=" ".join(value for name, value in fields.items() if name in letters or "a" in letters) + "\n")


def id_(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``id`` prints: the lab's user, or root under sudo."""
    del node
    number, name = (0, "root") if root else (1000, "lab")
    short = {"-u": str(number), "-g": str(number), "-un": name, "-nu": name}
    if words and words[0] in short:
        return Answer(out=f"{short[words[0]]}\n")
    return Answer(out=f"uid={number}({name}) gid={number}({name}) groups={number}({name})\n")


def whoami(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return the user's name."""
    del node, words
    return Answer(out="root\n" if root else "lab\n")


def df(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``df -P -k`` prints about the local file systems."""
    del root
    mounts = [w for w in words if not w.startswith("-")]
    chosen = [d for d in node.disks if not mounts or d.mount in mounts]
    if mounts and not chosen:
        return Answer(err=f"df: {mounts[0]}: No such file or directory\n", code=1)
    rows = [("Filesystem", "1024-blocks", "Used", "Available", "Capacity", "Mounted on"), *map(_disk, chosen)]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    return Answer(out="".join(_row(row, widths) for row in rows))


def _disk(disk: Disk) -> tuple[str, ...]:
    size = disk.gib * _KIB_PER_GIB
    used = int(size * disk.used)
    # ext4 reserves a twentieth for root; a file system that is full for users has 0 available
    available = max(0, size - used - size // 20)
    return disk.device, str(size), str(used), str(available), f"{-(-100 * used // (used + available))}%", disk.mount


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    first, last = f"{row[0]:<{widths[0]}}", row[5]
    return (
        " ".join([first, *(f"{cell:>{width}}" for cell, width in zip(row[1:5], widths[1:], strict=True)), last]) + "\n"
    )


def timedatectl(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``timedatectl show`` prints about the clock's synchronization."""
    del root
    properties = {
        "Timezone": "Etc/UTC",
        "LocalRTC": "no",
        "CanNTP": "yes",
        "NTP": "yes",
        "NTPSynchronized": "no" if node.behaviour.clock_skew_seconds else "yes",
    }
    if "show" not in words:
        return Answer(
            out=f"{'Universal time':>25}: {NOW}\n{'System clock synchronized':>25}: {properties['NTPSynchronized']}\n"
        )
    options = (word.partition("=")[2] for word in words if word.startswith(("--property=", "-p=")))
    names = next((option.split(",") for option in options), list(properties))
    if "-p" in words[:-1]:
        names = words[words.index("-p") + 1].split(",")
    bare = "--value" in words
    return Answer(out="".join(f"{v}\n" if bare else f"{n}={v}\n" for n, v in properties.items() if n in names))


def chronyc(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``chronyc tracking`` prints; machines without chronyd do not have it."""
    del root
    if "chronyd" not in node.services:
        return Answer(err="chronyc: not found\n", code=127)
    if "tracking" not in words:
        return Answer(out="506 Cannot talk to daemon\n", code=1)
    skew = node.behaviour.clock_skew_seconds
    direction = "fast" if skew > 0 else "slow"
    leap = "Not synchronised" if skew else "Normal"
    facts = (
        ("Reference ID", "C0A80001 (192.168.0.1)"),
        ("Stratum", "3"),
        ("Ref time (UTC)", NOW),
        ("System time", f"{abs(skew) or 0.000022151:.9f} seconds {direction} of NTP time"),
        ("Last offset", f"{skew or -0.00004104:+.9f} seconds"),
        ("RMS offset", f"{abs(skew) or 0.000053422:.9f} seconds"),
        ("Frequency", "2.286 ppm slow"),
        ("Residual freq", "-0.000 ppm"),
        ("Skew", "0.012 ppm"),
        ("Root delay", "0.000706812 seconds"),
        ("Root dispersion", "0.000430042 seconds"),
        ("Update interval", "1029.8 seconds"),
        ("Leap status", leap),
    )
    return Answer(out="".join(f"{name:<16}: {value}\n" for name, value in facts))

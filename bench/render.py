"""Measure ``gpuops render`` with 1,024 saved nodes of 8 GPUs, from the start of the command to its last file.

    python bench/render.py

One lab host answers over real SSH. Its saved facts become those of 1,024 nodes, each with its own names, serials,
UUIDs, addresses, GUIDs, clock, temperatures and power values: whatever surely differs on real nodes. Each target is
rendered several times; the median counts.
"""

import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

NODES = 1024
LAYOUT = "dp=256,pp=4,tp=8,chunks=8"
TARGETS = ("torchrun", "deepspeed")
TIMES = 5


def gpuops(folder, *words):
    subprocess.run([sys.executable, "-m", "gpuops", *words], cwd=folder, check=True, capture_output=True)


def save_nodes(folder):
    """Save the facts of one healthy hgx-h100 host, and variants of them as the facts of the other nodes."""
    gpuops(folder, "lab", "up", "--nodes", "1")
    try:
        gpuops(folder, "facts", "-i", ".gpuops/lab/inventory.yml", "--save", "one")
    finally:
        gpuops(folder, "lab", "down")
    said = (folder / "one" / "gpu01.json").read_text()
    (folder / "saved").mkdir()
    for number in range(NODES):
        (folder / "saved" / f"gpu{number:04d}.json").write_text(as_node(number, said))


def as_node(number, said):
    """Return the facts of one more node: with its own value wherever those of two like nodes surely differ."""
    own = {
        r"gpu01": f"gpu{number:04d}",
        r"<serial>\d{6}": f"<serial>{100_000 + number}",
        r"GPU-[0-9a-f]{8}": f"GPU-{number:08x}",
        r"\d+ C</gpu_temp>": f"{28 + number % 9} C</gpu_temp>",
        r"\.\d\d W</instant_power_draw>": f".{number % 100:02d} W</instant_power_draw>",
        r"boot_id\\u0000[0-9a-f]{8}": f"boot_id\\\\u0000{number:08x}",
        r"uptime\\u0000\d+": f"uptime\\\\u0000{1_000_000 + number}",
        r'(?<="[0-9]{10}\.)[0-9]{9}': f"{number * 9_000:09d}",  # the clock
        r"(/dev/md0 +\d+ +)\d{9}": f"\\g<1>{332_000_000 + number}",  # df
        r"a0:88:c2": f"a0:{number >> 8:02x}:{number & 255:02x}",  # MAC addresses
        r"a088:[0-9a-f]{4}:": f"a088:{number:04x}:",  # GUIDs
        r"fe00:[0-9a-f]{4}\b|(?<=0a63:)[0-9a-f]{4}": f"{number:04x}",  # GIDs
        r"192\.0\.2\.2(.{,20}prefixlen..:)24": f"192.0.{number >> 8}.{number & 255}\\g<1>16",
        r"S64G8\d{4}": f"S64G8{number:04d}",  # NVMe drives
        r"\b4702382\b": f"{4_702_382 + number}",  # inodes of /proc
    }
    for pattern, text in own.items():
        said = re.sub(pattern, text, said)
    return said


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(folder, target, output):
    began, used = time.monotonic(), cpu_seconds()
    gpuops(folder, "render", "--from", "saved", "--layout", LAYOUT, "-t", target, "-o", output)
    return time.monotonic() - began, cpu_seconds() - used


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        save_nodes(folder)
        size = (folder / "saved" / "gpu0000.json").stat().st_size / 1024
        print(f"{NODES} nodes, {size:.0f} KiB each")
        for target in TARGETS:
            rounds = [measure(folder, target, f"{target}-{number}") for number in range(TIMES)]
            wall, cpu = map(statistics.median, zip(*rounds, strict=True))
            print(f"{target:<10} {wall:.2f} s, {cpu:.2f} s of CPU")


if __name__ == "__main__":
    main()

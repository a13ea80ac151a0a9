"""Every command that the output proposes can be pasted as it stands: on a lab with the faults of the demonstration."""

import pathlib
import re
import shlex
import subprocess
import time
from types import SimpleNamespace

import pytest
from tests.program import proposed, run_gpuops

from gpuops.errors import InputError
from gpuops.lab import cluster, demo

pytestmark = pytest.mark.long

ROOT = pathlib.Path(__file__).parents[2]
README = re.findall(
    r"^gpuops ((?:\w+ )+.*-i prod\.yml.*?)(?: +[#>].*)?$", (ROOT / "README.md").read_text(), re.MULTILINE
)
TOO_LONG = (
    *("gpuops onboard", "gpuops provision driver -i prod.yml --limit"),
    *("gpuops validate -i prod.yml --level", "gpuops validate --level burnin", "gpuops allreduce -i prod.yml  "),
)
"""What takes minutes: a burn-in, a driver, and the measurement that another test makes."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the lab of the demonstration, and its inventory as prod.yml."""
    here = tmp_path_factory.mktemp("place")
    folder = here / ".gpuops" / "demo"
    cluster.up(folder, demo.MACHINE, demo.NODES, [*(planted.fault for planted in demo.PLANTED), demo.SLOW])
    (here / "prod.yml").write_text((folder / "inventory.yml").read_text())

    def run(line):
        words = shlex.split(line)[1:] if isinstance(line, str) else line
        done = run_gpuops(*words, cwd=here, timeout=240)
        return SimpleNamespace(code=done.returncode, text=done.stdout + done.stderr)

    yield run
    cluster.down(folder)


def paste(place, text):
    """Run all that ``text`` proposes; the number of commands."""
    lines = [words for words in proposed(text) if not shlex.join(["gpuops", *words]).startswith(TOO_LONG)]
    for line in lines:
        pasted = place(line)
        assert pasted.code in (0, 1, 3), f"{line}\n{pasted.text}"
        assert "no host is chosen" not in pasted.text, line
    return len(lines)


def test_what_the_demonstration_proposes(place):
    inventory = ".gpuops/demo/inventory.yml"
    looked, measured = place(f"gpuops validate -i {inventory}"), place(f"gpuops allreduce -i {inventory}")
    assert (looked.code, measured.code) == (1, 1)
    again = rf"gpuops allreduce --limit gpu06,gpu0\d --scope rail -i {re.escape(inventory)}"
    assert re.search(rf"^ *{again}$", measured.text, re.MULTILINE)
    assert paste(place, looked.text + measured.text) >= 1


@pytest.mark.parametrize(
    "line",
    [
        "gpuops fix row-remap-pending gpu04 -i prod.yml",
        "gpuops admit gpu01 -i prod.yml",
        "gpuops onboard gpu02 -i prod.yml",
        "gpuops preflight -i prod.yml -- torchrun --nnodes 2 train.py",
        "gpuops validate --from nothing -i prod.yml",
        "gpuops ping -i prod.yml --limit 'gpu01:!gpu01'",
        "gpuops state show gpu01 -i prod.yml",
    ],
)
def test_what_other_commands_propose(place, line):
    paste(place, place(line).text)


@pytest.mark.parametrize("line", [line for line in README if not f"gpuops {line}  ".startswith(TOO_LONG)])
def test_commands_of_the_readme_work_on_the_lab(place, line):
    done = place(f"gpuops {line}")
    assert done.code in (0, 1, 3), done.text


def test_start_lines_of_render_reach_the_launchers_of_the_lab(lab, ssh, tmp_path):
    """A lab host's launcher refuses to train, which shows that it was reached."""
    words = ("--layout", "tp=8", "-t", "torchrun,deepspeed", "--", "train.py")
    told = run_gpuops("render", "gpu01", "-i", lab.folder / "inventory.yml", *words, cwd=tmp_path, check=True).stdout
    starts = [line.removeprefix("start: ") for line in told.splitlines() if line.startswith("start: ")]
    assert len(starts) == 2
    packed = subprocess.run(["tar", "-c", "launch"], cwd=tmp_path, capture_output=True, check=True).stdout
    ssh("gpu01", "tar -x", stdin=packed)
    for start in starts:
        # a lab host has no pdsh, so the shell that pdsh would start on the node is started here
        done = ssh("gpu01", re.sub(r'pdsh -R ssh -f 1 -w (\S+) "(.*)%h(.*)"', r'sh -c "\2\1\3"', start))
        assert "a lab host runs no training job" in done.err, start


def is_running(folder):
    try:
        return bool(cluster.status(folder))
    except InputError:
        return False


def test_a_lab_with_a_time_limit_stops_by_itself(tmp_path):
    cluster.up(tmp_path / "lab", demo.MACHINE, 1, [], minutes=0.05)
    ends = time.monotonic() + 30
    while is_running(tmp_path / "lab") and time.monotonic() < ends:
        time.sleep(0.2)
    assert not is_running(tmp_path / "lab")
    cluster.down(tmp_path / "lab")


def test_the_hosts_of_the_demonstration_stay_as_long_as_it_says(tmp_path):
    cluster.up(tmp_path / "lab", demo.MACHINE, 1, [], minutes=60)
    began = time.monotonic()
    cluster.end_after(tmp_path / "lab", 0.05)
    while is_running(tmp_path / "lab") and time.monotonic() < began + 30:
        time.sleep(0.2)
    assert not is_running(tmp_path / "lab")
    cluster.down(tmp_path / "lab")

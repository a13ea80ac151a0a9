"""What PyTorch's HSDP keeps of parameters, gradients and Adam's moments on a rank is what the planner counts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuops.layout import parse_layout
from gpuops.planner.candidates import Candidates
from gpuops.planner.constants import MemoryConstants
from gpuops.planner.hardware import from_catalogue
from gpuops.planner.memory import memory
from gpuops.planner.model import TransformerSpec
from gpuops.planner.training import TrainingSetup
from gpuops.profile import known

pytest.importorskip("torch", reason="PyTorch is not installed (pip install 'gpuops[launch]')")

SIZES = {"layers": 2, "hidden": 64, "heads": 4, "ffn": 256}
RANKS = 4
RAW = MemoryConstants(reserved_bytes=0, fragmentation=0, bucket_bytes=0)


def held(folder, copies, shard, zero):
    """Return what each rank of a job wrote."""
    words = (json.dumps(SIZES), json.dumps({"copies": copies, "shard": shard, "zero": zero}), str(folder))
    script = Path(__file__).with_name("hold_states.py")
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}")
    done = subprocess.run([*launcher, script, *words], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize(("copies", "shard", "zero"), [(2, 2, 3), (2, 2, 2), (1, 4, 3)])
def test_a_rank_holds_what_is_counted(tmp_path, copies, shard, zero):
    first, *others = held(tmp_path, copies, shard, zero)
    assert all(other == first for other in others)
    layout = parse_layout(f"dp={RANKS},zero={zero},shard={shard if copies > 1 else 0}")
    model = TransformerSpec("layers", 2, 64, 4, 4, 256, 0, head_dim=16)
    cluster = from_catalogue("1xhgx-h100", {profile.name: profile for profile in known()}).with_gpus(RANKS)
    space = memory(model, cluster, TrainingSetup(8, RANKS), Candidates.of([layout]), RAW)
    counted = {name: float(getattr(space, name)[0]) for name in ("parameters", "gradients", "optimizer")}
    assert counted["gradients"] / 4 == pytest.approx(first["gradients"], rel=0.02)
    assert counted["optimizer"] / 12 == pytest.approx(first["moments"] / 2, rel=0.02)
    kept = first["parameters"] if zero == 3 else first["between"]  # ZeRO 2 keeps what it gathered for the backward pass
    assert counted["parameters"] / 2 == pytest.approx(kept, rel=0.02)
    assert first["parameters"] == pytest.approx(first["total"] / shard, rel=0.01)

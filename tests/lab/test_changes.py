"""gpuops validate, time after time: what is new fails once, and what is gone is told."""

import pytest
from tests.program import run_gpuops

from gpuops.lab import cluster


@pytest.mark.long
def test_only_what_is_new_fails_with_fail_on_new(lab, plant, tmp_path):
    def code(*words):
        done = run_gpuops("validate", "-i", lab.folder / "inventory.yml", *words, cwd=tmp_path)
        return done.returncode, " ".join(done.stdout.split())

    plant("gpu02:gpu2:lost")
    assert code("--fail-on", "new")[0] == 1
    known, text = code("--fail-on", "new")
    assert (known, "0 new, 1 continuing, 0 gone" in text) == (0, True)
    assert code()[0] == 1
    assert code("--fail-on", "new", "--no-save")[0] == 1  # nothing is known of the runs before
    plant("gpu01:mlx5_3:port-down")
    new, text = code("--fail-on", "new")
    assert (new, "new gpu01 mlx5_3 ib-ports" in text) == (1, True)
    plant("gpu03:host:refuse")
    assert code("--fail-on", "new")[0] == 3
    assert code("--fail-on", "new")[0] == 0
    cluster.clear(lab.folder, [])
    assert "gone gpu02 gpu2 gpu-lost, seen in 6 runs" in code("--fail-on", "new")[1]

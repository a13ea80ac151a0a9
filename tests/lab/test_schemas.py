"""The JSON documents of commands that need nodes, from a running lab, match docs/schemas/."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
LAUNCH = ("--", "torchrun", "--nnodes=2", "--nproc-per-node=8", "train.py")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("allreduce-report", ("allreduce", "gpu01,gpu02", "--scope", "node")),
        ("expectation", ("allreduce", "expect")),
        ("nvlink", ("allreduce", "nvlink", "gpu01")),
        ("placement", ("place", "--layout", "dp=2,tp=8")),
        ("launches", ("render", "gpu01,gpu02", "-t", "torchrun,slurm", "--layout", "dp=2,tp=8")),
        ("preflight", ("preflight", "gpu01,gpu02")),
        ("report", ("validate",)),
        ("values", ("facts", "gpu01")),
        ("repair", ("fix", "clock", "gpu01")),
    ],
)
def test_document_matches_its_schema(lab, plant, tmp_path, name, words):
    plant("gpu03:gpu2:lost")
    inventory = str(lab.folder / "inventory.yml")
    command = [sys.executable, "-m", "gpuops", *words, "-i", inventory, "--json"]
    command += LAUNCH if name == "preflight" else ()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    document = json.loads(done.stdout)
    assert document["schema"] == f"gpuops.{name}/1"
    Draft202012Validator(json.loads((SCHEMAS / f"{name}-1.json").read_text())).validate(document)


def test_lab_status_matches_its_schema(lab):
    done = subprocess.run(
        [sys.executable, "-m", "gpuops", "lab", "status", "--json"],
        cwd=lab.folder.parents[1], capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    document = json.loads(done.stdout)
    Draft202012Validator(json.loads((SCHEMAS / "lab-1.json").read_text())).validate(document)

"""The JSON documents of commands that need nodes, from a running lab, match docs/schemas/."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.program import run_gpuops

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
LAUNCH = ("--", "torchrun", "--nnodes=2", "--nproc-per-node=8", "train.py")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("allreduce-report", ("allreduce", "gpu01,gpu02", "--scope", "node")),
        ("learned-profile", ("profiles", "learn", "gpu01,gpu02")),
        ("topology", ("topology",)),
        ("expectation", ("allreduce", "expect")),
        ("nvlink", ("allreduce", "nvlink", "gpu01")),
        pytest.param("sharp", ("allreduce", "sharp", "gpu01,gpu02"), marks=pytest.mark.long),
        ("sweep", ("allreduce", "sweep", "gpu01", "--max-size", "1M")),
        ("placement", ("place", "--layout", "dp=2,tp=8")),
        ("launches", ("render", "gpu01,gpu02", "-t", "torchrun,slurm", "--layout", "dp=2,tp=8")),
        ("preflight", ("preflight", "gpu01,gpu02")),
        ("report", ("validate",)),
        ("answers", ("trust", "gpu01")),
        ("values", ("facts", "gpu01")),
        ("repair", ("fix", "clock", "gpu01")),
    ],
)
def test_document_matches_its_schema(lab, plant, tmp_path, name, words):
    plant("gpu03:gpu2:lost")
    command = (*words, "-i", lab.folder / "inventory.yml", "--json", *(LAUNCH if name == "preflight" else ()))
    done = run_gpuops(*command, cwd=tmp_path)
    document = json.loads(done.stdout)
    assert document["schema"] == f"gpuops.{name}/1"
    Draft202012Validator(json.loads((SCHEMAS / f"{name}-1.json").read_text())).validate(document)


def test_lab_status_matches_its_schema(lab):
    done = run_gpuops("lab", "status", "--json", cwd=lab.folder.parents[1])
    document = json.loads(done.stdout)
    Draft202012Validator(json.loads((SCHEMAS / "lab-1.json").read_text())).validate(document)

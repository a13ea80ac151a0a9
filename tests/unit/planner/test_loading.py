"""numpy takes longer to load than most commands run, so only what computes with arrays loads it."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module", ["gpuops.cli", "gpuops.cluster", "gpuops.planner.hardware", "gpuops.planner.model_config"]
)
def test_numpy_is_not_loaded_by(module):
    code = f"import sys, {module}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

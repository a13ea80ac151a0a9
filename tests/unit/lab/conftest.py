import pathlib

import pytest

CAPTURES = pathlib.Path(__file__).parents[4] / "shared" / "captures"


@pytest.fixture
def capture():
    def read(name):
        path = CAPTURES / name
        if not path.is_file():
            pytest.skip(f"no recorded outputs at {CAPTURES}")
        return path.read_text(encoding="utf-8")

    return read

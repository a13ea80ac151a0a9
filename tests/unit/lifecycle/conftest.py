import pytest

from gpuops.store import Store


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "state.db") as store:
        yield store

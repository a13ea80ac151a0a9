import textwrap

import pytest

from gpuops.inventory import Inventory


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes files into the current, empty folder; messages then name them as a person would."""
    monkeypatch.chdir(tmp_path)

    def write_file(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path.relative_to(tmp_path)

    return write_file


@pytest.fixture
def load(write):
    def load_text(text, name="prod.yml", **options):
        return Inventory.load(write(name, text), **options)

    return load_text

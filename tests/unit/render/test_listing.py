"""``gpuops targets list``: what to use, and what is kept for old code, a line each."""

import pytest
from click.testing import CliRunner

from gpuops.cli.targets import command
from gpuops.render import targets


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """The lines of each group, by its title."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    groups, title = {}, ""
    for line in CliRunner().invoke(command, ["list"]).stdout.splitlines():
        title = title if line.startswith(" ") else line
        groups.setdefault(title, []).extend([line] if line.startswith(" ") else [])
    return groups


def test_every_target_is_one_line_of_80_columns_in_its_group(listed):
    assert list(listed) == ["use these:", "kept for old code:"]
    lines = [line for group in listed.values() for line in group]
    assert [line for line in lines if len(line) > 80] == []
    names = {title: [line.split()[0] for line in group] for title, group in listed.items()}
    assert names["use these:"] == [name for name, target in targets().items() if not target.instead]
    assert names["kept for old code:"] == [name for name, target in targets().items() if target.instead]


def test_what_is_kept_for_old_code_names_what_to_use(listed):
    for line in listed["kept for old code:"]:
        instead = line.rpartition("; now ")[2]
        assert targets()[instead].instead == "", line

import pytest

from gpuops.errors import OutputError
from gpuops.launching.logs import Logs


def test_jobs_that_start_in_the_same_second_have_logs_of_their_own(tmp_path):
    folders = [Logs.beside(tmp_path / "new" / "train-1", 4).folder.name for _ in range(3)]
    assert folders == ["train-1", "train-1-2", "train-1-3"]


def test_a_directory_that_was_named_is_not_shared(tmp_path):
    with pytest.raises(OutputError, match="file exists"):
        Logs(tmp_path, 4)


def test_logs_that_cannot_be_created_are_not_tried_under_other_names(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"train-1: cannot create it: (not a directory|file exists)"):
        Logs.beside(tmp_path / "file" / "train-1", 4)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]

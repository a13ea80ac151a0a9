"""A slice of the fuzzing: every input that once broke a reader, and a few new ones for each."""

import gzip

import pytest
from hypothesis import given, settings
from tests.fuzz.every import READERS
from tests.fuzz.inputs import inputs
from tests.fuzz.reader import SEEDS, attempt

from gpuops.errors import GpuopsError

KEPT = [(name, path) for name, one in READERS.items() for path in one.kept]

LARGE = {
    "messages-of-a-worker": b"gpuops-0123456789 {" * 20_000,
    "text-for-a-bundle": b"Xid " * 60_000,
    "bug-report": gzip.compress(b"<process_name>" * 30_000, mtime=0),
    "answer-of-slurm": b"gpu[0-99999999]|7|ops|train\n",
}
"""What took minutes, or all memory, because the time was not linear."""


@pytest.mark.parametrize("name", LARGE)
def test_time_grows_no_faster_than_the_input(name):
    attempt(READERS[name], LARGE[name])


@pytest.mark.parametrize("name", READERS)
def test_usual_inputs_are_read_and_most_accepted(name, tmp_path):
    refused = []
    contents = READERS[name].usual()
    for number, content in enumerate(contents):
        folder = tmp_path / str(number)
        folder.mkdir(mode=0o700)
        try:
            READERS[name].read(content, folder)
        except GpuopsError as error:
            refused.append(str(error))
    assert len(refused) < len(contents), refused[:3]


@pytest.mark.parametrize(("name", "path"), KEPT, ids=[f"{name}/{path.name}" for name, path in KEPT])
def test_input_that_broke_a_reader_no_longer_does(name, path):
    attempt(READERS[name], path.read_bytes())


@pytest.mark.sampled
@pytest.mark.parametrize("name", READERS)
def test_odd_input_is_read_or_refused(name):
    @settings(max_examples=30, database=None)
    @given(inputs(READERS[name]))
    def one(content):
        attempt(READERS[name], content)

    one()


def test_every_folder_of_kept_inputs_has_a_reader():
    assert {path.name for path in SEEDS.iterdir() if path.is_dir()} <= READERS.keys()

"""gpuops render on a lab: what it writes, what it refuses, and that it asks and reports everything once."""

import pytest
from tests.program import run_gpuops


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Save the facts of two healthy hosts."""
    folder = tmp_path_factory.mktemp("rendering")
    inventory = ("-i", ".gpuops/lab/inventory.yml")
    try:
        for words in (("lab", "up", "--nodes", "2"), ("facts", *inventory, "--save", "facts")):
            run_gpuops(*words, cwd=folder, check=True)
    finally:
        run_gpuops("lab", "down", cwd=folder, check=True)
    return folder / "facts"


@pytest.fixture
def render(saved, tmp_path):
    def run(*words):
        return run_gpuops("render", "--from", saved, "--layout", "dp=2,pp=2,tp=4", *words, cwd=tmp_path)

    return run


def test_every_warning_is_told_once(render):
    done = render("-t", "deepspeed")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("chunks=1") == 1
    assert done.stdout.startswith("deepspeed  launch/\n  .deepspeed_env\n")
    assert done.stdout.endswith("start: cd launch && ./run.sh\n")


def test_the_files_of_all_nodes_are_one_word_and_no_line_but_the_command_is_wider_than_the_page(render):
    said = render("-t", "torchrun,deepspeed").stdout.splitlines()
    assert said[:2] == ["torchrun  launch/torchrun/", "  static-gpu[01-02].sh"]
    assert [line.split(" && ")[0] for line in said if line.startswith("start: ")] == [
        "start: (cd launch/torchrun",
        "start: (cd launch/deepspeed",
    ]
    assert [line for line in said if len(line) > 80 and not line.startswith("start: ")] == []


def test_several_targets_have_a_folder_each(render, tmp_path):
    assert render("-t", "torchrun,slurm", "-o", "out").returncode == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["slurm", "torchrun"]
    assert (tmp_path / "out" / "torchrun" / "static-gpu02.sh").read_text().count("--node-rank=1 ") == 1


def test_of_several_targets_none_is_written_if_a_file_of_one_exists(render, tmp_path):
    (tmp_path / "launch" / "torchrun").mkdir(parents=True)
    (tmp_path / "launch" / "torchrun" / "static-gpu02.sh").write_text("mine")
    assert render("-t", "deepspeed,torchrun").returncode == 2
    assert [path.name for path in (tmp_path / "launch").rglob("*") if path.is_file()] == ["static-gpu02.sh"]


def test_files_of_nodes_that_left_the_layout_are_named(render, tmp_path):
    render("-t", "torchrun")
    done = render("-t", "torchrun", "--layout", "tp=8", "--limit", "gpu01", "--overwrite")
    assert "  warning: launch/static-gpu02.sh: for nodes that are not in this layout; delete" in done.stdout


def test_standing_files_are_kept_unless_forced(render, tmp_path):
    render("-t", "deepspeed")
    (tmp_path / "launch" / "hostfile").write_text("mine")
    again = render("-t", "deepspeed")
    assert again.returncode == 2
    assert "already exists; pass --overwrite" in again.stderr
    assert (tmp_path / "launch" / "hostfile").read_text() == "mine"
    assert render("-t", "deepspeed", "--overwrite").returncode == 0
    assert (tmp_path / "launch" / "hostfile").read_text() != "mine"


def test_a_check_complains_of_what_lies_there_and_writes_nothing(render, tmp_path):
    done = render("-t", "deepspeed", "--check")
    assert (done.returncode, list(tmp_path.iterdir())) == (1, [])
    assert "missing; gpuops render writes it" in done.stdout
    render("-t", "deepspeed")
    assert render("-t", "deepspeed", "--check").stdout == "no problems\n"
    with (tmp_path / "launch" / ".deepspeed_env").open("a") as file:
        file.write("# a comment\n")
    done = render("-t", "deepspeed", "--check")
    assert done.returncode == 1
    assert done.stdout.startswith("launch/.deepspeed_env:4: expected NAME=VALUE")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-t", "deepspeed", "--layout", "dp=2,pp=2,tp=4,zero=2"), "use zero=1"),
        (("-t", "torchrun", "--layout", "tp=16"), "does not fit the 8 GPUs"),
        (("-t", "torchrn"), 'did you mean "torchrun"?'),
    ],
)
def test_what_cannot_be_launched_is_refused_and_nothing_is_written(render, tmp_path, words, reason):
    done = render(*words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert list(tmp_path.iterdir()) == []

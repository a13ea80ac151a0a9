"""``render --check`` reads a file as its reader does: flux its sentinels, Kubernetes YAML, and a program its words."""

from dataclasses import replace

import pytest
from tests.unit.render.test_comparing import launch_of, one

from gpuops.render.comparing import differences


def edited(target, path, before, after):
    """What is told of an edit of a rendered file, and whether it is a mistake."""
    (file,) = [each for each in launch_of(target).files if each.path == path]
    assert before in file.text
    found = replace(file, text=file.text.replace(before, after, 1))
    return [(each.what, each.is_checked) for each in differences(file, found)]


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ("# flux: --nodes=2\nset -eu", ":7: flux refuses the job: sentinel changed from #flux: to # flux:"),
        ("## flux: off\nset -eu", ":7: flux refuses the job: sentinel changed from #flux: to ## flux:"),
        ("#FLUX: --queue=a\nset -eu", ":7: flux refuses the job: sentinel changed from #flux: to #FLUX:"),
        ("set -e\n#flux: -t 24h\nset -u", ":8: flux refuses the job: orphan directive, since line 7 ends them"),
        ("set -e\n  # flux: is slow\nset -u", ":8: flux refuses the job: orphan directive, since line 7 ends them"),
    ],
)
def test_a_line_for_which_flux_refuses_the_job_is_told(after, told):
    assert (told, True) in edited("flux", "job.flux", "set -eu", after)


@pytest.mark.parametrize("after", ["# ours\nset -eu", "\nset -eu", "# on flux\nset -eu", "#flux:\nset -eu"])
def test_a_comment_that_flux_does_not_read_is_no_alarm(after):
    assert edited("flux", "job.flux", "set -eu", after) == []
    assert edited("flux", "job.flux", "set -euo pipefail\n", "set -euo pipefail\n# runs on flux: fast\n") == []
    of_another = edited("torchrun", "static-n1.sh", "set -eu", "# flux: not ours\nset -eu")
    assert not any(is_checked for _, is_checked in of_another)


@pytest.mark.parametrize("word", ["1e-4", "0o17", ".5e3", "1_0e3", "0O17", "y", "N", "08"])
def test_a_word_that_only_kubernetes_reads_as_a_number_is_told_without_its_quotes(word):
    manifest = f'apiVersion: v1\nspec:\n  command: [train.py, --lr, "{word}"]\n  env: "{word}"\n'
    for quoted in (f'"{word}"]', f'env: "{word}"'):
        ((what, is_checked),) = one("job.yaml", manifest, manifest.replace(quoted, quoted.replace('"', "")))
        assert what.endswith(f'but gpuops renders "{word}"')
        assert is_checked
    assert one("job.yaml", manifest, manifest.replace('"', "'")) == []
    other = manifest.replace("apiVersion: v1\n", "")
    assert one("task.yaml", other, other.replace('"', "")) == [], "its reader is PyYAML"


@pytest.mark.parametrize("word", ["_1", "1e", "1-2", "a_1", "10.0.0.1", "v1", "1e-4x", "yy", "0o18", "host:1"])
def test_a_word_that_kubernetes_reads_as_text_needs_no_quotes(word):
    manifest = f'apiVersion: v1\nspec: "{word}"\n'
    assert one("job.yaml", manifest, manifest.replace('"', "")) == []


@pytest.mark.parametrize(
    ("two", "joined"),
    [("-x\n- PATH\n", "-x PATH\n"), ("-l\n- one\n", "-l one\n"), ("--lr\n- one\n", "--lr one\n"),
     ("-x\n- PATH\n", "-x\n  PATH\n"), ("-np\n- '32'\n", "-np 32\n"), ("train.py\n- one\n", "train.py one\n")],
)  # fmt: skip
def test_two_items_of_a_command_are_not_one(two, joined):
    command = f"- mpirun\n- --bind-to\n- none\n- {two}- bash\n- -c\n- |\n  exec a\n  exec b\n"
    assert one("job.yaml", command, command.replace(two, joined))[0][1]
    assert one("job.yaml", command, command.replace(two, two.replace("PATH", '"PATH"').replace("one", "'one'"))) == []
    assert one("job.yaml", command, command.replace("exec a", "exec   a  # first")) == []
    assert one("job.yaml", command, command.replace("none", "none --x"))[0][1]


def test_an_option_in_quotes_with_its_value_is_one_word_also_in_a_script():
    assert one("run.sh", "mpirun -x PATH a\n", "mpirun '-x PATH' a\n")[0][1]
    assert one("run.sh", "mpirun -x PATH a\n", "mpirun '-x' \"PATH\" a\n") == []
    assert one("run.sh", "a.py -l one\n", "a.py '-l one'\n")[0][1]


@pytest.mark.parametrize("more", ["n1\nn1\n", "n1\nn3\n"])
def test_a_host_that_is_added_to_a_here_document_is_told_and_another_document_is_not(more):
    run = "cat >\"$HOSTS\" <<'HOSTS'\nn1\nn2\nHOSTS\nsrun a\n"
    added = ":2: n1 was added" if more == "n1\nn1\n" else ":3: n3 was added"
    assert one("run.sh", run, run.replace("n1\n", more)) == [(added, True)]
    assert one("run.sh", run, run.replace("'HOSTS'\nn1\n", f'"HOSTS"\n{more}'))[-1] == (added, True)
    mine = run.replace("srun", "cat >mine <<END\nn1\nEND\nsrun")
    assert {is_checked for _, is_checked in one("run.sh", run, mine)} == {False}


def test_a_host_that_is_added_to_the_job_of_slurm_is_told():
    assert edited("slurm", "job.sbatch", "<<'HOSTS'\nn1\n", "<<'HOSTS'\nn1\nn1\n")[0][1]

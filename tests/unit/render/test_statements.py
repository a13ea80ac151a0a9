"""``render --check`` reads the statements of scripts by what they do: what may stand elsewhere, what breaks a job."""

import random
import re
import time
from dataclasses import replace

import pytest
from tests.unit.render.test_comparing import launch_of, one

from gpuops.render.comparing import differences
from gpuops.render.shell_statements import lines_of
from gpuops.render.shell_words import spelled_words
from gpuops.report.launch import checked


def told(target, path, before, after):
    """What is told of an edited file of a target, and whether it is a mistake."""
    file = next(file for file in launch_of(target).files if file.path == path)
    text = re.sub(before, after, file.text, count=1)
    assert text != file.text
    return [(each.what, each.is_checked) for each in differences(file, replace(file, text=text))]


@pytest.mark.parametrize(
    ("target", "path", "before", "after"),
    [
        ("deepspeed", "run.sh", r'"\$here/hostfile"', r'"$here"/hostfile'),
        ("deepspeed", "run.sh", r'"\$here/hostfile"', r'"${here}/hostfile"'),
        ("deepspeed", "run.sh", r'\$\(dirname "\$\(realpath "\$0"\)"\)', r'$( dirname "$(realpath "${0}")" )'),
        ("slurm", "job.sbatch", "<<'HOSTS'", '<<"HOSTS"'),
        ("slurm", "job.sbatch", "(?s)<<'HOSTS'(.*)\nHOSTS", r"<<'NODES'\1\nNODES"),
        ("flux", "job.flux", "#flux: --exclusive", "#flux: -x"),
        ("flux", "job.flux", "--ntasks=2 --exclusive", "-x --ntasks=2"),
        ("flux", "job.flux", r"(--setopt=gpu\S+) (--setopt=cpu\S+)", r"\2 \1"),
        ("slurm", "job.sbatch", "--kill-on-bad-exit=1", "-K1"),
        ("slurm", "job.sbatch", "--ntasks-per-node", "--ntasks-per-n"),
        ("slurm", "job.sbatch", "--nodes=2", "-N 2"),
        ("slurm", "job.sbatch", "--open-mode=append", "--open append"),
        ("openmpi", "rankfile", r"(rank 0.*\n)(rank 1=.*\n)", r"\2\1"),
        ("slurm", "job.sbatch", "set -euo pipefail", "set -e -u -o pipefail"),
        ("slurm", "job.sbatch", "set -euo pipefail", "set -euo pipefail;"),
        ("slurm", "job.sbatch", "set -euo pipefail", "set -o pipefail\nset -ue"),
        ("slurm", "job.sbatch", "set -euo pipefail", "set -o errexit -o nounset -o pipefail"),
        ("slurm", "job.sbatch", r"(export CUDA_D.*)\nexport (NCCL.*)", r"\1 \2"),
        ("slurm", "job.sbatch", r"(export CUDA_D.*)\n(export NCCL.*)", r"\1; \2"),
        ("slurm", "job.sbatch", r"export (CUDA_DEVICE_ORDER)=(.*)", r"\1=\2\nexport \1"),
        ("slurm", "job.sbatch", r"export (CUDA_DEVICE_ORDER)=(.*\n(?:.*\n)*?)cat", r"\1=\2export \1\ncat"),
        ("fsdp2", "run-n1.sh", r"(export CUDA_DEVICE_ORDER.*\n)((.*\n)*)exec", r"\2\1exec"),
        ("slurm", "job-per-gpu.sbatch", r"(export MASTER.*\n)((.*\n)*)srun", r"\2\1srun"),
        ("torchtitan", "train-n1.sh", r"--parallelism.tensor_parallel_degree (\d+)",
         r"--parallelism.tensor-parallel-degree=\1"),
        ("pytorchjob", "pytorchjob.yaml", r'\["n1", "n2"\]', '["n2", "n1"]'),
    ],
)  # fmt: skip
def test_what_means_the_same_is_no_alarm(target, path, before, after):
    assert told(target, path, before, after) == []


@pytest.mark.parametrize(
    ("target", "path", "before", "after"),
    [
        ("deepspeed", "run.sh", r'"\$here/hostfile"', r"$here/hostfile"),
        ("deepspeed", "run.sh", r'"\$here/hostfile"', r'"$hero/hostfile"'),
        ("deepspeed", "run.sh", r'"\$here/hostfile"', r"'$here/hostfile'"),
        ("slurm", "job.sbatch", "<<'HOSTS'", "<<HOSTS"),
        ("flux", "job.flux", "--setopt=cpu-affinity=off", "--setopt=cpu-affinity=on"),
        ("flux", "job.flux", "(--setopt=gpu-affinity=)off", r"\1off \1on"),
        ("slurm", "job.sbatch", "--kill-on-bad-exit=1", "-K0"),
        ("slurm", "job.sbatch", "--ntasks-per-node", "--ntasks"),
        ("openmpi", "rankfile", "rank 0=n1", "rank 0=n2"),
        ("slurm", "job.sbatch", "set -euo pipefail", "set -eu"),
        ("slurm", "job.sbatch", r"(export CUDA_D.*)\nexport (NCCL.*)", r"\1\n\2"),
        ("slurm", "job.sbatch", r"(export NCCL.*\n)((?s:.*))", r"\2\1"),
        ("slurm", "job-per-gpu.sbatch", r"(export SLURM_HOSTFILE\n)((?s:.*))", r"\2\1"),
        ("slurm", "job-per-gpu.sbatch", r"(SLURM_HOSTFILE=.*\n)((?:.*\n)*)srun", r"\2\1srun"),
        ("torchtitan", "train-n1.sh", r"tensor_parallel_degree (\d+)", r"tensor-parallel-degree=9"),
        ("pytorchjob", "pytorchjob.yaml", r'\["n1", "n2"\]', '["n2", "n3"]'),
        ("pytorchjob", "pytorchjob.yaml", "operator: In", "operator: NotIn"),
    ],
)  # fmt: skip
def test_what_means_something_else_is_a_mistake(target, path, before, after):
    assert any(is_checked for _, is_checked in told(target, path, before, after))


@pytest.mark.parametrize(
    ("target", "path", "before", "after", "added"),
    [
        ("slurm", "job-per-gpu.sbatch", "\nsrun", "\nexit 0\nsrun", ":42: exit 0"),
        ("slurm", "job-per-gpu.sbatch", "\nsrun", "\ntrue && x\nreturn\nsrun", ":43: return"),
        ("slurm", "job-per-gpu.sbatch", "\nsrun", "\nexec true\nsrun", ":42: exec true"),
        ("slurm", "job-per-gpu.sbatch", "\nsrun", "\ncd /; exit 1\nsrun", ":42: exit 1"),
        ("slurm", "job-per-gpu.sbatch", "\nsrun", "\nunset MASTER_ADDR\nsrun", ":42: unset MASTER_ADDR"),
        ("slurm", "job-per-gpu.sbatch", "\nsrun", "\nunset PYTHON X\nsrun", ":42: unset PYTHON X"),
        ("slurm", "job-per-gpu.sbatch", "\nsrun", "\nexport -n MASTER_PORT\nsrun", ":42: export -n MASTER_PORT"),
        ("slurm", "job-per-gpu.sbatch", "\nsrun", "\ndeclare -x MASTER_PORT=1\nsrun", ":42: declare -x MASTER_PORT=1"),
        ("deepspeed", "run.sh", "--force_multi", "--force_multi --exclude n1", ":6: --exclude=n1"),
        ("deepspeed", "run.sh", "--force_multi", "--force_multi -i n1", ":6: --include=n1"),
        ("deepspeed", "run.sh", "--force_multi", "--num_gpus=4 --force_multi", ":6: --num_gpus=4"),
        ("deepspeed", "run.sh", "--force_multi", "--num_nodes 1 --force_multi", ":6: --num_nodes=1"),
        ("slurm", "job.sbatch", "#SBATCH --mem=0", "#SBATCH --mem=0\n#SBATCH -a 1-4", ":9: #SBATCH --array=1-4"),
        ("slurm", "job.sbatch", "#SBATCH --mem=0", "#SBATCH --mem=0\n#SBATCH --exclude=n1", ":9: #SBATCH --exclude=n1"),
        ("slurm-block", "job.sbatch", "#SBATCH --mem=0", "#SBATCH --mem=0\n#SBATCH -w n1", ":9: #SBATCH --nodelist=n1"),
        ("accelerate-ddp", "run-n1.sh", "launch", "launch --num_processes 4", ":8: --num-processes=4"),
        ("accelerate-ddp", "run-n1.sh", "launch", "launch --num-machines=1", ":8: --num-machines=1"),
        ("fsdp2", "run-n1.sh", "torchrun", "torchrun --standalone", ":8: --standalone"),
    ],
)  # fmt: skip
def test_an_addition_that_surely_breaks_the_job_is_a_mistake(target, path, before, after, added):
    assert (f"{added} was added", True) in told(target, path, before, after)


@pytest.mark.parametrize(
    "added",
    [
        "if ! true; then\n  exit 1\nfi",
        "if ! true; then exit 1; fi",
        "[ -d /data ] || exit 1",
        "[ -d /data ] || { echo no; exit 1; }",
        "stop() {\n  exit 1\n}",
        "exec >log 2>&1",
        "exec 3>&1",
        "unset DISPLAY",
        "module load cuda",
        "export NCCL_DEBUG=INFO",
    ],
)
def test_an_addition_that_may_be_right_is_not_checked(added):
    found = told("slurm", "job-per-gpu.sbatch", "\nsrun", f"\n{added}\nsrun")
    assert found
    assert not any(is_checked for _, is_checked in found)


def test_a_script_ends_again_behind_a_block():
    for block in ("if x; then y; fi", "for a in b; do\n  c\ndone", "f() { g; }", "case $x in\na) b ;;\nesac", "( c )"):
        found = one("run.sh", "export A=1\nsrun x\n", f"export A=1\n{block}\nexit 0\nsrun x\n")
        assert found[-1][0].endswith("exit 0 was added")
        assert found[-1][1], block


def test_exports_that_use_each_other_keep_their_order():
    text = "export A=1\nexport B=$A\nexec x\n"
    assert one("run.sh", text, "export B=$A\nexport A=1\nexec x\n")
    assert one("run.sh", text, "export A=1 B=$A\nexec x\n"), "the shell expands B before it sets A"
    assert one("run.sh", text, "A=1\nexport B=$A\nexport A\nexec x\n")[0][1], "a variable that is used in between"
    assert one("run.sh", text, "A=1\nexport A\nB=$A\nexport B\nexec x\n") == []
    assert one("run.sh", "export A=1\nexport B=2\nexec x\n", "export B=2\nexport C=3\nexport A=1\nexec x\n") == [
        (":2: export C=3 was added", False)
    ]
    moved = one("run.sh", "module load y\nexport A=1\nexec x\n", "export A=1\nmodule load y\nexec x\n")
    assert any(is_checked for _, is_checked in moved), "a module may use or set any variable"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"$here/x y"', "\"$here\"'/x y'"),
        ('"${a}b"', '"$a"b'),
        ("${a}/b", "$a/b"),
        ('"a\\$b"', "'a$b'"),
        ("B='x y'", 'B="x y"'),
        ("'--opt=x y'", '--opt="x y"'),
        ("$(a 'b')", "$( a b )"),
        ("a''", "a"),
    ],
)
def test_words_that_a_shell_reads_alike_are_spelled_alike(one, other):
    assert spelled_words(one) == spelled_words(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"$a"', "$a"),
        ('"${a}b"', '"$ab"'),
        ("'*'", "*"),
        ("a b", "'a b'"),
        ("$((1<<2))", "$((1<<3))"),
        ('"$(a\nb)"', '"$(a b)"'),
        ("${a:-b}", "${a:-c}"),
        ("$'a'", "$'b'"),
        ("'{'", "{"),
        ("a;b", "a b"),
    ],
)
def test_words_that_a_shell_reads_otherwise_are_spelled_otherwise(one, other):
    assert spelled_words(one) != spelled_words(other)


@pytest.mark.parametrize("line", ["'a", '"a', '"$(a"', '"a$(b', "`a", '"`a"'])
def test_a_line_whose_quotes_are_open_is_refused(line):
    with pytest.raises(ValueError, match="quotes span lines"):
        spelled_words(line)


def test_the_first_line_states_how_many_things_were_not_checked():
    assert [*checked([([], [])])] == ["no problems"]
    assert [*checked([([], ["a"])])] == ["1 thing was not checked; the rest has no problems", "not checked: a"]
    assert next(checked([([], ["a"]), ([], ["b"])])) == "2 things were not checked; the rest has no problems"
    assert [*checked([(["c"], ["a"])])] == ["c", "not checked: a"]


@pytest.mark.parametrize("seed", range(20))
def test_any_text_has_one_spelling_and_is_equal_to_itself(seed):
    chance = random.Random(seed)
    pieces = [*"ab=$(){}'\"\\`;|&<> \t\n#*-!", "$(", "${", "<<'X'\n", "\nX\n", "A=1", "\nif ", "fi\n", "bash -c '"]
    for _ in range(200):
        text = "".join(chance.choices(pieces, k=chance.randint(0, 24)))
        own, found = lines_of(text, text)
        assert own == found, text


@pytest.mark.parametrize("text", ["$(" * 3000 + ")" * 3000, '"$(' * 2000, "${" * 2000 + "}" * 2000, "$(" * 30])
def test_deep_substitutions_take_no_time(text):
    began = time.process_time()
    lines_of(text, f"{text}\nb")
    assert time.process_time() - began < 5


def test_a_thousand_exports_in_another_order_are_no_alarm():
    exports = [f"export A{number}=1\n" for number in range(1000)]
    assert one("run.sh", "".join(exports), "".join(reversed(exports))) == []

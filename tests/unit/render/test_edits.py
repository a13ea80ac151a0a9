"""``render --check`` reads scripts as their schedulers and launchers do: order and spelling of options are no mistakes,
a lost directive is one in every target."""

import random
import re
from dataclasses import replace

import pytest
from tests.unit.render.test_comparing import launch_of, one

from gpuops.render import targets
from gpuops.render.comparing import differences

DIRECTIVE = re.compile(r"#(!|SBATCH |PBS |flux: )")
FILES = [(name, file) for name in targets() for file in launch_of(name).files]


def mistakes(file, text):
    return [str(each) for each in differences(file, replace(file, text=text)) if each.is_checked]


def is_script(file):
    return file.path.endswith((".sh", ".sbatch", ".pbs", ".flux"))


def directives_of(file):
    """The lines that begin as a comment does, and are none."""
    lines = file.text.splitlines(keepends=True)
    return [at for at, line in enumerate(lines) if is_script(file) and DIRECTIVE.match(line)], lines


@pytest.mark.parametrize("name", targets())
def test_every_directive_that_is_lost_or_disabled_is_told(name):
    for file in launch_of(name).files:
        numbers, lines = directives_of(file)
        for at in numbers:
            for gone in ("", f"#{lines[at]}", f"# {lines[at]}"):
                text = "".join([*lines[:at], gone, *lines[at + 1 :]])
                assert mistakes(file, text), (file.path, lines[at], gone)
        for at, line in enumerate(lines):
            is_comment = line.startswith("# ")
            assert not is_script(file) or not line.startswith("#") or is_comment or at in numbers, (file.path, line)


@pytest.mark.parametrize("name", ["slurm", "slurm-block", "pbs", "flux"])
def test_a_directive_behind_the_first_command_is_told(name):
    for file in (file for file in launch_of(name).files if is_script(file)):
        numbers, lines = directives_of(file)
        for at in numbers[1:]:
            text = "".join([*lines[:at], *lines[at + 1 :]]).replace("pipefail\n", f"pipefail\n{lines[at]}")
            assert mistakes(file, text), (file.path, lines[at])


@pytest.mark.parametrize(
    ("name", "given", "again"),
    [("slurm", "#SBATCH --nodes=2\n", "#SBATCH -N 3\n"), ("flux", "#flux: --nodes=2\n", "#flux: --nodes=3\n"),
     ("pbs", "#PBS -j oe\n", "#PBS -j n\n")],
)  # fmt: skip
def test_an_option_of_the_job_that_is_given_again_is_told_and_another_one_is_not_checked(name, given, again):
    file = next(file for file in launch_of(name).files if given in file.text)
    number = file.text[: file.text.index(given)].count("\n") + 2
    (told,) = mistakes(file, file.text.replace(given, given + again))
    assert told.startswith(f"{file.path}:{number}: ")
    other = given.split()[0] + (" -M me\n" if name == "pbs" else " --comment=mine\n")
    added = list(differences(file, replace(file, text=file.text.replace(given, given + other))))
    assert [each.is_checked for each in added] == [False]


@pytest.mark.parametrize("name", targets())
def test_a_first_line_that_does_not_count_is_told(name):
    for file in (file for file in launch_of(name).files if file.text.startswith("#!")):
        first = file.text.partition("\n")[0]
        for above, found in (("\n", "an empty line"), ("# mine\n", "# mine"), (" ", first)):
            told = f"{file.path}:1: the first line must be {first}; found {found}"
            assert mistakes(file, above + file.text)[0] == told


def swapped(before, text):
    """The text with what matches ``before`` as two groups in the other order."""
    return re.sub(before, lambda match: f"{match[3]}{match['gap']}{match[1]}", text, count=1)


GAP = r"(?P<gap>(?: \\\n)?\s+(?:- )?)"
WORD = r"(?:\"[^\"]*\"|[^\s\"])+"
SWAPS = [
    rf"(--nnodes={WORD}){GAP}(--nproc-per-node={WORD})",
    rf"(--master-addr={WORD}){GAP}(--master-port={WORD})",
    rf"(--ntasks={WORD}){GAP}(--distribution={WORD})",
    rf"(--tensor-model-parallel-size \d+){GAP}(--pipeline-model-parallel-size \d+)",
    rf"(--launcher pdsh){GAP}(--force_multi)",
    rf"(--parallelism\.tensor_parallel_degree \d+){GAP}(--parallelism\.context_parallel_degree \d+)",
    rf"(model\.tensor_model_parallel_size=\d+){GAP}(model\.pipeline_model_parallel_size=\d+)",
    r"(#SBATCH --nodes=\d+)(?P<gap>\n)(#SBATCH --\S+)",
    r"(#flux: --nodes=\d+)(?P<gap>\n)(#flux: --\S+)",
    r"(#PBS -j oe)(?P<gap>\n)(#PBS -r y)",
    r"(nodes=len\(NODES\),)(?P<gap>\n *)(ntasks_per_node=GPUS,)",
    r"(\"tensor_parallel_degree\": \d+,)(?P<gap>\n *)(\"ddp\": True,)",
]
SPELLINGS = [
    (r"--nnodes=(\d+)", r"--nnodes \1"),
    (r"--nproc-per-node=(\d+)", r"--nproc_per_node=\1"),
    (r"--node-rank=(\d+)", r"--node_rank '\1'"),
    (r"--master-port=(\d+)", r'--master-port="\1"'),
    (r"#SBATCH --nodes=(\d+)", r"#SBATCH -N \1"),
    (r"#SBATCH --nodes=(\d+)", r"#SBATCH -N\1"),
    (r"#SBATCH --nodes=(\d+)", r"#SBATCH --nodes \1  # mine"),
    (r"#SBATCH --nodelist=n\[1-2\]", "#SBATCH -w n1,n2"),
    (r"#SBATCH --job-name=(\w+)\n#SBATCH", r"#SBATCH -J '\1'"),
    (r"#SBATCH --gres=gpu:(\d)\n#SBATCH", r"#SBATCH --gres gpu:\1"),
    (r"#flux: --nodes=(\d+)", r"#flux: -N\1"),
    (r"#flux: --requires=host:n\[1-2\]", "#flux: --requires host:n2,n1 # both"),
    (r"#PBS -j oe", "#PBS -joe"),
    (r"#PBS -l place", "\n# ours\n#PBS   -l place"),
    (r"(srun|flux run)(.*)--ntasks=(\d+)", r"\1\2-n \3"),
    (r"mpirun\}\" -np (\d+)", r'mpirun}" -n \1'),
    (r"--tensor-model-parallel-size (\d+)", r"--tensor-model-parallel-size=\1"),
    (r"--bf16 (True )?", r"\\\n  --bf16 \1"),
    (r"--config_file ", "--config-file="),
    (r"--deepspeed_config ", "--deepspeed_config="),
    (r"--hostfile \"", '--hostfile="'),
    (r"--per_device_train_batch_size (\d+)", r"--per_device_train_batch_size=\1"),
    (r"--parallelism.tensor_parallel_degree (\d+)", r"--parallelism.tensor_parallel_degree=\1"),
    (r"--batch_size (\d+)", r"--batch_size=\1"),
]


def edits():
    """Every harmless edit of every file that has what it changes: target, file and new text."""
    for name, file in FILES:
        texts = [swapped(before, file.text) for before in SWAPS]
        texts += [re.sub(f"(?<!- ){before}", after, file.text, count=1) for before, after in SPELLINGS]
        yield from ((name, file, text) for text in dict.fromkeys(texts) if text != file.text)


EDITS = [*edits()]


def test_options_in_another_order_or_spelling_are_no_alarm():
    assert len(EDITS) >= 100
    assert {file.path: told for _, file, text in EDITS if (told := mistakes(file, text))} == {}


def test_the_same_edits_with_a_mistake_in_one_number_are_told():
    planted = 0
    for name, file, text in random.Random(7).sample(EDITS, 60):
        edited = next(at for at, (a, b) in enumerate(zip(file.text, text, strict=False)) if a != b)
        numbers = [match for match in re.finditer(r"(?<![\w\[.])\d+(?![\w\].])", text) if match.start() >= edited]
        number = next(iter(numbers), None)
        if number:
            wrong = f"{text[: number.start()]}{int(number[0]) + 1}{text[number.end() :]}"
            assert mistakes(file, wrong), (name, file.path, wrong[edited : edited + 80])
            planted += 1
    assert planted >= 44


def test_what_a_program_may_read_alike_is_not_checked_and_what_a_launcher_does_not_know_is_named():
    run = "torchrun --nnodes=2 train.py data --lr 1 --wd 2 more\n"
    ((what, is_checked),) = one("run.sh", run, run.replace("--lr 1 --wd 2 more", "--wd 2 more --lr=1"))
    assert "the program's own arguments are " in what
    assert not is_checked
    for wrong in ("--wd 2 --lr 1 more", "--lr 1 --wd 2", "--lr 1 --wd 2 more --wd 3", "--wd 2 more"):
        assert one("run.sh", run, run.replace("--lr 1 --wd 2 more", wrong))[0][1], wrong
    assert one("run.sh", run, run.replace("--nnodes=2", "--nnodes=2 --tee 3")) == [(":1: --tee=3 was added", False)]
    assert one("run.sh", run, run.replace("--nnodes=2", "--nnodes=2 --nnodes=3"))[0][1]


def test_a_script_in_quotes_is_read_as_a_script():
    run = (
        "srun -N 2 bash -c '\nexport A=1\nexport B=2\nexec torchrun --nnodes=2 \\\n  \"$@\"' rank --master-port=1 a.py"
    )
    assert one("run.sh", run, run.replace("A=1\nexport B=2", "B=2\n# mine\nexport A=1")) == []
    assert one("run.sh", run, run.replace("A=1", "A=2"))[0][1]
    assert one("run.sh", run, run.replace("'\nexport", "\nexport")), "its quotes have no end"


def test_the_scripts_and_words_of_yaml_are_read_as_commands():
    text = "run: |\n  exec torchrun --nnodes=2 --node-rank=$R a.py\nenv: [A=1, B=2]\n"
    assert one("a.yaml", text, text.replace("--nnodes=2 --node-rank=$R", "--node_rank=$R --nnodes 2")) == []
    assert one("a.yaml", text, text.replace("A=1, B=2", "B=2, A=1")) == []
    assert one("a.yaml", text, text.replace("--nnodes=2", "--nnodes=3"))[0][1]
    named = "env: [{name: A, value: 1}, {name: B, value: 2}]\n"
    assert one("a.yaml", named, "env: [{name: B, value: 2}, {name: A, value: 1}]\n") == []
    assert one("a.yaml", named, "env: [{name: B, value: 2}]\n")[0][1]
    assert one("a.yaml", named, named.replace("1}", "1}, {name: A, value: 3}"))[0][1]


def test_an_encoding_that_python_takes_from_a_comment_is_told():
    assert one("a.py", "A = 1\n", "# -*- coding: utf-8 -*-\nA = 1\n") == []
    assert one("a.py", "A = 1\n", "# coding: latin-1\nA = 1\n") == [
        (": its encoding is latin-1, but gpuops writes UTF-8", True)
    ]

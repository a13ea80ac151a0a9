"""``render --check`` finds every mistake in the files of every target, or says what it did not check; edits that change
nothing are no mistakes."""

import contextlib
import functools
import itertools
import json
import random
import re
from dataclasses import replace

import pytest
import yaml

from gpuops.errors import GpuopsError, OutputError
from gpuops.layout import parse_layout
from gpuops.placement import GpuShape, NodeShape, place
from gpuops.render import Job, Rendered, environment_of, launch_for, targets
from gpuops.render.comparing import differences

LAYOUTS = (
    "dp=16,chunks=4",
    "dp=16,zero=2",
    "dp=16,zero=3",
    "dp=4,pp=4,chunks=8",
    "tp=16",
    "dp=2,tp=8",
    "tp=8",
    "dp=8",
    "dp=2,tp=8,recompute=full",
)


def node(name, rack):
    gpus = tuple(GpuShape(k, f"GPU-{k}", "", 0, f"mlx5_{k}", 0, k, f"L{k}") for k in range(8))
    return NodeShape(name, name, gpus, tuple(f"L{k}" for k in range(8)), "r1", rack or name)


@functools.cache
def launch_of(name):
    """The files of a target for the first layout that it takes."""
    target = targets()[name]
    order = target.orders[0] if target.orders else "tp-cp-ep-dp-pp"
    for image, rack, text in itertools.product(("", "img:1"), ("", "rack1"), LAYOUTS):  # most take the first
        layout = parse_layout(text, order)
        placement = place(layout, [node("n1", rack), node("n2", rack)][: max(1, layout.ranks // 8)], force=True)
        job = Job("train.py", ("--lr=1",), env=environment_of(placement, target.engine), image=image)
        try:
            return launch_for(target, placement, job)
        except GpuopsError:
            continue
    raise AssertionError(name)


FILES = [(name, file) for name in targets() for file in launch_of(name).files]


def is_told(name, file, text):
    """Whether a check of the directory fails, or says of this file that it was not checked."""
    return any(differences(file, replace(file, text=text)))


def mistakes_in(file):
    """Every number, and every word after an equals sign or a colon, changed; every line that means something, gone."""
    for match in re.finditer(r"(?<![A-Za-z0-9_])\d+(?![A-Za-z0-9_])", file.text):
        yield match.start(), f"{file.text[: match.start()]}{int(match[0]) + 1}{file.text[match.end() :]}"
    lines = file.text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.strip() and not line.lstrip().startswith(("# ", '"""')) and line.strip() not in ("{", "}", "---"):
            yield number, "".join(lines[:number] + lines[number + 1 :])


def is_comment(file, at):
    line = file.text[file.text.rfind("\n", 0, at) + 1 : file.text.find("\n", at)]
    before = file.text[file.text.rfind("\n", 0, at) + 1 : at]
    return not line.startswith(("#SBATCH", "#PBS", "#flux:", "#!")) and (
        re.search(r"(^|\s)#", before) is not None or '"""' in line
    )


@pytest.mark.parametrize("name", targets())
def test_nothing_is_told_of_files_as_rendered(name, tmp_path):
    launch = launch_of(name)
    launch.write(tmp_path)
    assert (launch.complaints(tmp_path), launch.unchecked(tmp_path)) == ([], [])


@pytest.mark.parametrize("name", targets())
def test_mistakes_in_every_file_are_told(name):
    chance, planted = random.Random(name), 0
    for file in launch_of(name).files:
        found = [text for at, text in mistakes_in(file) if not is_comment(file, at)]
        for text in chance.sample(found, min(6, len(found))):
            assert is_told(name, file, text), (file.path, text)
            planted += 1
    assert planted


@pytest.mark.parametrize("name", targets())
def test_a_file_that_is_missing_or_not_executable_is_told(name, tmp_path):
    launch = launch_of(name)
    for file in launch.files:
        folder = tmp_path / file.path.replace("/", "_")
        launch.write(folder)
        (folder / file.path).unlink()
        assert any("missing" in line for line in launch.complaints(folder))
    for file in (file for file in launch.files if file.mode & 0o111):
        assert [each.what for each in differences(file, replace(file, mode=0o644))] == [": not executable; chmod +x"]


def harmless(chance, file):
    """One edit that changes nothing for the reader of the file."""
    lines, suffix = file.text.splitlines(), file.path.rpartition(".")[2]
    if suffix == "json":
        return json.dumps(shuffled(chance, json.loads(file.text)), indent=chance.choice((None, 1, 8)))
    if suffix in ("yaml", "yml"):
        return remarked(chance, lines)
    if suffix in ("sh", "sbatch"):
        text = set(here_documents(lines))
        heads = [n for n, line in enumerate(lines) if n and not lines[n - 1].endswith("\\") and n not in text]
        at = chance.choice(heads or [len(lines)])
        edit = chance.choice(("# our own remark", "", "   # indented"))
        return "\n".join([*lines[:at], edit, *lines[at:], ""])
    if suffix == "py":
        return f"# our own remark\n\n{file.text}\n\n# the end\n"
    return f"{file.text}\n# our own remark\n" if "." not in file.path.strip(".") else file.text + "\n"


def here_documents(lines):
    """The numbers of the lines in here-documents, with their ends."""
    end = None
    for number, line in enumerate(lines):
        if end:
            yield number
            end = None if line == end else end
        elif match := re.search(r"<<'?(\w+)'?", line):
            end = match[1]


def remarked(chance, lines):
    """A remark between two lines, where YAML takes it for one: not among the lines of a script."""
    meant = list(yaml.safe_load_all("\n".join([*lines, ""])))
    places = range(min(1, len(lines)), len(lines) + 1)
    for at in chance.sample(places, len(places)):
        text = "\n".join([*lines[:at], "# our own remark", *lines[at:], ""])
        with contextlib.suppress(yaml.YAMLError):
            if list(yaml.safe_load_all(text)) == meant:
                return text
    raise AssertionError("no place for a remark")


def shuffled(chance, value):
    if isinstance(value, dict):
        return {key: shuffled(chance, value[key]) for key in chance.sample(list(value), len(value))}
    return value


@pytest.mark.parametrize("seed", range(100))
def test_a_harmless_edit_is_no_alarm(seed):
    chance = random.Random(seed)
    name, file = chance.choice(
        [each for each in FILES if each[1].path not in (".deepspeed_env", "varuna.env", "machine_list")]
    )
    assert list(differences(file, replace(file, text=harmless(chance, file)))) == [], (name, file.path)


def one(path, rendered, found):
    return [
        (each.what, each.is_checked)
        for each in differences(Rendered(path, 0o644, rendered), Rendered(path, 0o644, found))
    ]


def test_exports_and_directives_may_change_places_but_not_values():
    text = "#!/bin/bash\nexport A=1  # why\nexport B='x y'\nexec torchrun \\\n  --n=2 train.py\n"
    same = '#!/bin/bash\n\nexport B="x y"\nexport A=1\n# mine\nexec   torchrun --n=2 train.py\n'
    assert one("run.sh", text, same) == []
    assert one("run.sh", text, text.replace("A=1", "A=2"))[0][1]
    assert one("run.sh", text, text + "export A=3\n") == [(":6: export A=3 was added", True)]
    assert one("run.sh", text, text.replace("exec", "module load cuda\nexec")) == [
        (":4: module load cuda was added", False)
    ]
    assert one("job.sbatch", "#!/bin/sh\n#SBATCH --nodes=2\n", "#!/bin/sh\n#SBATCH --nodes=3\n")[0][1]


def test_a_here_document_is_compared_as_it_is():
    text = "cat >hosts <<'HOSTS'\nn1\nn2\nHOSTS\nexec srun\n"
    assert one("run.sh", text, text.replace("exec", " exec ")) == []
    for change in (
        ("'HOSTS'", "HOSTS"),
        ("n1\nn2\n", "n2\nn1\n"),
        ("n1\n", "#n1\n"),
        ("n1\n", " n1\n"),
        ("n1\n", "export n1\n"),
    ):
        assert one("run.sh", text, text.replace(*change)), change


def test_a_hash_in_quotes_is_no_comment():
    assert one("run.sh", 'echo "$A # b"\n', 'echo "$A # c"\n')
    assert one("run.sh", 'echo "$A" # b\n', 'echo "$A" # c\n') == []


@pytest.mark.parametrize(("name", "layout"), [("fsdp2", "dp=8,tp=2,zero=3"), ("torch-pipeline", "dp=8,pp=2,chunks=8")])
def test_the_axes_of_a_mesh_have_an_order(name, layout):
    target = targets()[name]
    placement = place(
        parse_layout(layout, target.orders[0] if target.orders else "tp-cp-ep-dp-pp"), [node("n1", ""), node("n2", "")]
    )
    files = launch_for(target, placement, Job("train.py", (), env=environment_of(placement, target.engine))).files
    (file,) = [each for each in files if "AXES = {" in each.text]
    head, axes, rest = re.split(r"(?<=AXES = \{\n)((?:    \"\w+\": \d+,\n)+)", file.text)
    for order in itertools.permutations(axes.splitlines(keepends=True)):
        text = head + "".join(order) + rest
        told = list(differences(file, replace(file, text=text)))
        assert any(each.is_checked for each in told) == (text != file.text), text


def test_keys_that_nobody_reads_in_order_have_none():
    text = "A = {'x': 1, 'y': 2}\nrun(**A)\nB = {'x': 1, 'y': 2}\nprint(tuple(B))\n"
    file = Rendered("run.py", 0o644, text)
    assert not list(differences(file, replace(file, text=text.replace("A = {'x': 1, 'y': 2}", "A = {'y': 2, 'x': 1}"))))
    assert list(differences(file, replace(file, text=text.replace("B = {'x': 1, 'y': 2}", "B = {'y': 2, 'x': 1}"))))


def test_keys_and_hosts_in_ssh_config_have_no_order_and_no_case():
    text = "Host a\n  HostName 10.0.0.1\n  Port 22\nHost b\n  Port 23\n"
    assert one("ssh_config", text, "# mine\nHost a\n  port 22\n  hostname=10.0.0.1\n\nHost b\n  Port 23\n") == []
    assert one("ssh_config", text, text.replace("22", "24"))[0][1]


def test_hosts_may_not_be_added_or_change_places():
    assert one("hostfile", "a slots=2\nb slots=2\n", "a   slots=2 # mine\nb slots=2\n\n") == []
    assert one("hostfile", "a slots=2\nb slots=2\n", "b slots=2\na slots=2\n")
    assert one("hostfile", "a slots=2\n", "a slots=2\nc slots=2\n") == [(":2: c slots=2 was added", True)]


def test_a_comment_in_varunas_list_is_a_host():
    assert one("machine_list", "a\nb\n", "a\n\nb\n") == []
    assert one("machine_list", "a\nb\n", "a\n# b\nb\n") == [(":2: # b was added", True)]
    assert one("machine_list", "a\nb\n", "a\nb # mine\n")[0][1]


def test_values_are_compared_by_type_and_added_keys_are_not_checked():
    assert one("a.json", '{"a": 1, "b": {"c": true}}', '{"b": {"c": true}, "a": 1.0}') == []
    assert one("a.json", '{"a": 1}', '{"a": true}')
    assert one("a.json", '{"a": {"b": 1}}', '{"a": {"b": 1, "c": 2}}') == [(": a.c was added", False)]
    assert one("a.yaml", "a: [1, 2]", "a: [2, 1]")
    assert one("a.yaml", "a: 1\nb: x", "b: 'x'\na: 1\n") == []
    assert "not JSON" in one("a.json", "{}", "{")[0][0]


def test_what_is_shown_of_two_values_is_where_they_differ():
    assert one("a.json", '{"a": 8}', '{"a": "8"}') == [(': a is "8", but gpuops renders 8', True)]
    assert one("a.yaml", "a: '8'", "a: 8") == [(': a is 8, but gpuops renders "8"', True)]
    assert one("a.yaml", "a: x", "b: x")[0] == (': a is (nothing), but gpuops renders "x"', True)
    assert one("a.yaml", "a: (nothing)", "b: x")[0] == (': a is (nothing), but gpuops renders "(nothing)"', True)
    long = "exec torchrun " + " ".join(f"--option-{k}=value" for k in range(20)) + "\n"
    ((what, _),) = one("run.sh", long, long.replace("--option-15=value", "--option-15=other"))
    found, _, rendered = what.partition(", but gpuops renders ")
    assert "--option-15=other" in found
    assert "--option-15=value" in rendered
    assert max(len(found), len(rendered)) < 80
    ((what, _),) = one("a.json", json.dumps({"a": "x" * 99 + "1"}), json.dumps({"a": "x" * 99 + "2"}))
    assert re.fullmatch(': a is …x+2", but gpuops renders …x+1"', what)


def test_a_file_that_is_not_of_the_target_is_said_to_be_unchecked(tmp_path):
    launch = launch_of("torchrun")
    launch.write(tmp_path)
    (tmp_path / "mine.sh").write_text("")
    assert launch.unchecked(tmp_path) == [f"{tmp_path}/mine.sh: not a file of this target"]


@pytest.mark.parametrize(("folder", "odd"), [("it's", "'"), ("100%h", "%h")])
def test_a_path_that_pdsh_cannot_take_is_refused_for_targets_that_pdsh_starts(tmp_path, folder, odd):
    with pytest.raises(OutputError, match=f"contains {odd}, which torchrun's start command cannot quote"):
        launch_of("torchrun").write(tmp_path / folder)
    assert not (tmp_path / folder).exists()
    launch_of("slurm").write(tmp_path / folder)
    launch_of("torchrun").write(tmp_path / 'a "b" $c %x')


RUN = "#!/bin/bash\nexport A=1\nexec torchrun --nnodes=2 --nproc-per-node=8 --master-addr=h1 train.py --a_b 1 ''\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("=h1", '="h1"'),
        ("--master-addr=h1", "'--master-addr'=\"h1\""),
        ("--nproc-per-node=8", "--nproc_per_node 8"),
        ("--nproc-per-node=8", "--nproc_per_node='8'"),
        ("#!/bin/bash", "#!/usr/bin/env bash"),
        ("#!/bin/bash", "#! /usr/bin/bash"),
        ("''", '""'),
        ("A=1", 'A="1"'),
    ],
)
def test_another_spelling_that_the_shell_or_the_launcher_reads_alike_is_no_alarm(before, after):
    assert one("run.sh", RUN, RUN.replace(before, after, 1)) == []
    of_accelerate = 'exec accelerate launch --config_file "$here"/c.yaml --num_processes 8 train.py\n'
    other = of_accelerate.replace("--config_file ", "--config-file=").replace("--num_processes ", "--num-processes=")
    assert one("run.sh", of_accelerate, other) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("=h1", "=$h1"),
        ("=h1", "='$h1'"),
        ("=8", " 7"),
        ("=8", ""),
        ("--a_b 1", "--a-b 1"),
        ("--a_b 1", "--a_b=1"),
        (" ''", ""),
        ("/bin/bash", "/bin/sh"),
        ("/bin/bash", "/bin/bash -l"),
        ("A=1", "A='~'"),
    ],
)
def test_a_spelling_that_is_read_otherwise_is_told(before, after):
    assert one("run.sh", RUN, RUN.replace(before, after, 1))


@pytest.mark.parametrize(
    ("quoted", "bare"), [('"$A"', "$A"), ("'$A'", '"$A"'), ("'*'", "*"), ("'~'", "~"), (r"\$A", "$A")]
)
def test_quotes_that_keep_the_shell_from_expanding_count(quoted, bare):
    assert one("run.sh", f"ls {quoted}\n", f"ls {bare}\n")
    assert one("run.sh", f"ls {bare}/'x y'\n", f'ls {bare}/"x y"\n') == []


@pytest.mark.parametrize(
    ("before", "after"),
    [("--nnodes=2 \\\n", "--nnodes=2 \\ \n"), ("\n", "\r\n"), ("#SBATCH --nodes=2\n", " #SBATCH --nodes=2\n")],
)
def test_white_space_that_a_shell_or_sbatch_reads_is_told(before, after):
    text = "#!/bin/bash\n#SBATCH --nodes=2\nexec torchrun --nnodes=2 \\\n  train.py\n"
    assert before in text
    rendered, found = (Rendered("job.sbatch", 0o755, each) for each in (text, text.replace(before, after)))
    assert list(differences(rendered, found))

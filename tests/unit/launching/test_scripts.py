"""Edits of rendered scripts: what would break the job is told with file and line, what changes nothing is not."""

import re

import pytest

from gpuops.collective.preflight import causes
from gpuops.collective.preflight.diagnosis import StepLog
from gpuops.launching.plan import read_plan
from gpuops.launching.scripts.checking import check_scripts
from gpuops.launching.scripts.reading import read_script
from gpuops.layout import parse_layout
from gpuops.operations.jobs import command_of_scripts
from gpuops.placement import GpuShape, NodeShape, place
from gpuops.render import Job, environment_of, launch_for, targets

FOLDERS = {}
INTERFACES = {name: {"lo": "127.0.0.1", "eth0": f"10.0.0.{name[1:]}"} for name in ("n1", "n2", "n3")}
OWN = dict.fromkeys(INTERFACES, "eth0")


def node(number):
    gpus = tuple(GpuShape(k, f"GPU-{number}{k}aaaa", "", 0, f"mlx5_{k}", 0, k, f"L{k}") for k in range(2))
    return NodeShape(f"n{number}", f"10.0.0.{number}", gpus, ("L0", "L1"), "r1", f"n{number}")


def edited(folder, target, name, *edits):
    """The plan of freshly rendered files, with each regular expression in those that match ``name`` replaced."""
    if target not in FOLDERS:
        order = (*targets()[target].orders, "tp-cp-ep-dp-pp")[0]
        layout = parse_layout("dp=6" if target == "accelerate-ddp" else "dp=3,tp=2", order)
        placement = place(layout, [node(1), node(2), node(3)], force=True)
        environment = environment_of(placement, targets()[target].engine)
        job = Job("/srv/train.py", ("--lr=1",), env=environment, port=29500, master="10.0.0.1")
        FOLDERS[target] = launch_for(targets()[target], placement, job)
    FOLDERS[target].write(folder)
    for file in (file for file in folder.glob("*n[0-9].*") if re.search(name, file.name)):
        text = file.read_text()
        for old, new in zip(edits[::2], edits[1::2], strict=True):
            assert re.search(old, text), (old, text)
            text = re.sub(old, new.replace("@NODE@", file.stem[-2:]), text)
        file.write_text(text)
    return read_plan(folder, "/srv", {})


def told(plan):
    """What preflight tells of the scripts of ``plan``: their differences, and what the nodes do not have."""
    checked = check_scripts(plan, {"n1", "10.0.0.1"})
    command = command_of_scripts(plan, checked)
    settings = {name: command.environment_on(name) for name in INTERFACES}
    log = StepLog()
    log.add("files", [*checked.causes, *causes.interfaces(command, settings, INTERFACES, OWN)])
    if wrong := causes.rendezvous(command, list(INTERFACES)):
        log.causes.append(causes.Cause("meeting", (), wrong, ""))
    return log.causes, checked


TWO, ALL, ONE, CONFIG = r"n2\.sh", r"\.sh", r"n1\.sh", r"n2\.yaml"
STATIC, ELASTIC, ACCELERATE, MEGATRON = "torchrun", "torchrun-elastic", "accelerate-ddp", "megatron-lm"
NO_SUCH = "but no such interface has an address here (found: lo, eth0)"
HARMFUL = [
    (STATIC, TWO, "static-n2.sh:6: lines end with CR LF, which no shell on Linux takes", "\n", "\r\n"),
    (
        STATIC,
        TWO,
        "static-n2.sh:6: no --master-addr (the default is 127.0.0.1), the plan says 10.0.0.1",
        r"(--node-rank=1) \\\n",
        r"\1 \\ \n",
    ),
    (STATIC, TWO, "static-n2.sh:5: CUDA_VISIBLE_DEVICES=, the plan says 0,1", "DEVICES=0,1", "DEVICES="),
    (STATIC, TWO, "static-n2.sh:6: --node-rank=0, the plan says 1", "--node-rank=1", "--node-rank=0"),
    (STATIC, TWO, "static-n2.sh:6: --node-rank=2, the plan says 1", "--node-rank=1", "--node_rank 2"),
    (STATIC, TWO, "static-n2.sh:6: no --node-rank (the default is 0), the plan says 1", "--node-rank=1 ", ""),
    (STATIC, TWO, "static-n2.sh:6: --nnodes=4, the plan says 3", "--nnodes=3", "--nnodes=4"),
    (STATIC, ALL, "static-n[1-3].sh:6: --nnodes=4, the plan says 3", "--nnodes=3", "--nnodes=4"),
    (STATIC, TWO, "static-n2.sh:6: --nnodes=2:4, the plan says 3", "--nnodes=3", "--nnodes=2:4"),
    (STATIC, TWO, "static-n2.sh:6: --nproc-per-node=1, the plan says 2", "--nproc-per-node=2", "--nproc-per-node=1"),
    (
        STATIC,
        TWO,
        "static-n2.sh:6: --standalone, the plan says 3 nodes",
        "--nproc-per-node=2",
        "--standalone --nproc-per-node=2",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:7: --master-addr=127.0.0.1, the plan says 10.0.0.1",
        "--master-addr=10.0.0.1",
        "--master-addr=127.0.0.1",
    ),
    (
        STATIC,
        ALL,
        "localhost means each node itself, so the nodes cannot find each other",
        "--master-addr=10.0.0.1",
        "--master-addr=localhost",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:7: --master-addr=10.0.0.9, the plan says 10.0.0.1",
        "--master-addr=10.0.0.1",
        "--master-addr=10.0.0.9",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:7: --master-port=29501, the plan says 29500",
        "--master-port=29500",
        "--master-port=29501",
    ),
    (
        STATIC,
        ONE,
        "static-n1.sh:7: --master-port=29501, the plan says 29500",
        "--master-port=29500",
        "--master-port '29501'",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:7: port of --rdzv-endpoint=1, the plan says 29500",
        "--master-addr=10.0.0.1 --master-port=29500",
        "--rdzv-endpoint=10.0.0.1:1",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:7: --rdzv-backend=c10d, the other scripts say static",
        "(--master-port=29500)",
        r"\1 --rdzv-backend=c10d",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:5: CUDA_VISIBLE_DEVICES=0, the plan says 0,1",
        "VISIBLE_DEVICES=0,1",
        "VISIBLE_DEVICES=0",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:5: CUDA_VISIBLE_DEVICES=1,0, the plan says 0,1",
        "VISIBLE_DEVICES=0,1",
        "VISIBLE_DEVICES=1,0",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:6: CUDA_VISIBLE_DEVICES=, the plan says 0,1",
        "exec torchrun",
        "CUDA_VISIBLE_DEVICES= exec torchrun",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:6: NCCL_SOCKET_IFNAME is nope0, NO_SUCH",
        "exec",
        "export NCCL_SOCKET_IFNAME=nope0\nexec",
    ),
    (
        STATIC,
        ALL,
        "static-n[1-3].sh:6: NCCL_SOCKET_IFNAME is nope0, NO_SUCH",
        "exec",
        "export NCCL_SOCKET_IFNAME=nope0\nexec",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:6: GLOO_SOCKET_IFNAME is nope0, NO_SUCH",
        "exec",
        "export GLOO_SOCKET_IFNAME=nope0\nexec",
    ),
    *(
        (STATIC, TWO, f"static-n2.sh:6: unset {name}, the plan says {value}", "exec", f"{words} {name}\nexec")
        for name, value in (("CUDA_VISIBLE_DEVICES", "0,1"), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"))
        for words in ("unset", "unset -v", "export -n", "declare +x")
    ),
    *(
        (STATIC, TWO, "static-n2.sh:6: unset CUDA_VISIBLE_DEVICES, the plan says 0,1", "exec torchrun", words)
        for words in (
            "exec env -u CUDA_VISIBLE_DEVICES torchrun",
            "unset A CUDA_VISIBLE_DEVICES && exec torchrun",
            "exec /usr/bin/env A=1 --unset=CUDA_VISIBLE_DEVICES torchrun",
        )
    ),
    *(
        (STATIC, TWO, "static-n2.sh:6: CUDA_DEVICE_ORDER=FASTEST_FIRST, the plan says PCI_BUS_ID", "exec", words)
        for words in (
            "export CUDA_DEVICE_ORDER=FASTEST_FIRST\nexec",
            "CUDA_DEVICE_ORDER='FASTEST_FIRST'\nexec",
            "readonly CUDA_DEVICE_ORDER=FASTEST_FIRST\nexec",
            "declare -r CUDA_DEVICE_ORDER=FASTEST_FIRST\nexec",
            "CUDA_DEVICE_ORDER=FASTEST_FIRST exec",
            "exec env CUDA_DEVICE_ORDER=FASTEST_FIRST",
        )
    ),
    *(
        (
            STATIC,
            TWO,
            f"static-n2.sh:6: {end} ends the script before it starts the job, the plan says 2 ranks here",
            *edit,
        )
        for end, *edit in (
            ("exit 0", "exec", "exit 0\nexec"),
            ("exit", "exec", "(cd /srv; exit 3); exit # done\nexec"),
            ("exec bash ./mine", "exec", "exec bash ./mine\nexec"),
        )
    ),
    (
        ELASTIC,
        TWO,
        "elastic-n2.sh:8: host of --rdzv-endpoint=10.0.0.3, the plan says 10.0.0.1",
        "--rdzv-endpoint=10.0.0.1:29500",
        "--rdzv-endpoint=10.0.0.3:29500",
    ),
    (
        ELASTIC,
        TWO,
        r"elastic-n2.sh:8: --rdzv-id=other-\w+, the other scripts say train-\w+",
        "--rdzv-id=train",
        "--rdzv-id=other",
    ),
    (
        ELASTIC,
        TWO,
        r"elastic-n2.sh:9: --local-addr=10.0.0.9 makes it node 2 \(sorted as text\), the plan says 1",
        "--local-addr=10.0.0.2",
        "--local-addr=10.0.0.9",
    ),
    (ELASTIC, TWO, "elastic-n2.sh:7: --nnodes=4:8, the plan says 3", "--nnodes=3", "--nnodes=4:8"),
    (
        MEGATRON,
        TWO,
        r"train-n2.sh:\d+: --tensor-model-parallel-size=1, the other scripts say 2",
        "--tensor-model-parallel-size 2",
        "--tensor-model-parallel-size 1",
    ),
    (ACCELERATE, CONFIG, "config-n2.yaml:6: --machine-rank=0, the plan says 1", "machine_rank: 1", "machine_rank: 0"),
    (
        ACCELERATE,
        CONFIG,
        "config-n2.yaml:5: --num-processes=4, the plan says 6",
        "num_processes: 6",
        "num_processes: 4",
    ),
    (
        ACCELERATE,
        CONFIG,
        "config-n2.yaml:8: --main-process-port=1, the plan says 29500",
        "main_process_port: 29500",
        "main_process_port: 1",
    ),
    (
        ACCELERATE,
        TWO,
        r"run-n2.sh:\d+: --machine-rank=2, the plan says 1",
        "accelerate launch",
        "accelerate launch --machine_rank 2",
    ),
]


@pytest.mark.parametrize("row", HARMFUL)
def test_an_edit_that_breaks_the_job_is_told_with_its_line(tmp_path, row):
    target, name, why, *edits = row
    found, _ = told(edited(tmp_path, target, name, *edits))
    why = why.replace("NO_SUCH", NO_SUCH)
    assert any(cause.why == why or re.fullmatch(why, cause.why) for cause in found), found
    assert len(found) == 1 or "local-addr" in why, found


HARMLESS = [
    (STATIC, ALL, "VISIBLE_DEVICES=0,1", "VISIBLE_DEVICES="),
    (STATIC, ALL, "VISIBLE_DEVICES=0,1", "VISIBLE_DEVICES=-1"),
    (STATIC, ALL),
    (STATIC, TWO, "exec torchrun", "# --node-rank=7\nexec torchrun"),
    (STATIC, TWO, "train.py", "train.py # --nnodes=9", " # --nnodes=9 --lr=1", " --lr=1 # --nnodes=9"),
    (STATIC, ALL, "--lr=1", "--lr=2 --node-rank 5 --nnodes=9"),
    (STATIC, TWO, "exec", "export WANDB_MODE=offline NCCL_DEBUG=INFO\nexec"),
    (STATIC, TWO, "exec", "module load cuda\ncd /srv && exec"),
    (STATIC, TWO, "--node-rank=1", "--node_rank '1'"),
    (STATIC, TWO, "#!/bin/bash", "#!/usr/bin/env bash", "--nproc-per-node=2", "--nproc_per_node 2"),
    (STATIC, TWO, "--master-addr=10.0.0.1", '--master-addr="10.0.0.1"'),
    (STATIC, TWO, "--nnodes=3 (.*) \\\\\\n", '--nnodes "3" \\1 \\\\\n'),
    (STATIC, TWO, "(export CUDA_DEV.*\\n)(export NCCL_IB_HCA.*\\n)?(export CUDA_VIS.*\\n)", r"\3\1"),
    (STATIC, TWO, "--nnodes=3 --nproc-per-node=2 --node-rank=1", "--node-rank=01 --nnodes=3:3 --nproc-per-node=gpu"),
    (STATIC, TWO, "exec torchrun", "exec numactl --interleave=all /opt/venv/bin/torchrun --max-restarts 0"),
    (
        STATIC,
        TWO,
        "exec torchrun",
        "env OMP_NUM_THREADS=4 python3 -m torch.distributed.run",
        "--lr=1",
        r"--lr=1 2>\&1 | tee log",
    ),
    (STATIC, TWO, "exec torchrun", 'echo "torchrun --nnodes=9"\nexec torchrun'),
    (STATIC, TWO, "exec", "cat >/tmp/x <<EOF\ntorchrun --nnodes=9\nexport CUDA_VISIBLE_DEVICES=7\nEOF\nexec"),
    (STATIC, TWO, "exec", "if [ -d /scratch ]; then cd /scratch; fi\nexec"),
    (STATIC, TWO, "exec", "cd /srv || exit 1\ngrep -q done log && exit 0\nexec"),
    (
        STATIC,
        TWO,
        "exec",
        "( exit 0 )\n(\nexit 0\n)\nf() {\nexit 1\n}\nif false; then exit 0; fi\nexec >log 2>&1\nexec",
    ),
    (STATIC, TWO, "exec", "trap 'exit 1' TERM\nexec", "--lr=1", "--lr=1\nexit 0"),
    (STATIC, TWO, "exec", "unset CUDA_DEVICE_ORDER\nexport CUDA_DEVICE_ORDER=PCI_BUS_ID\nexec"),
    (STATIC, TWO, "exec", "export CUDA_VISIBLE_DEVICES=0,1\nunset WANDB_MODE\nunset -f CUDA_VISIBLE_DEVICES\nexec"),
    (STATIC, TWO, "exec", "export PATH=/a:$PATH\nexport PATH=/b:$PATH\nexec"),
    (STATIC, TWO, "VISIBLE_DEVICES=0,1", "VISIBLE_DEVICES=GPU-20aaaa,GPU-21"),
    (STATIC, TWO, "export CUDA_VISIBLE_DEVICES=0,1\\n", ""),
    (STATIC, TWO, "exec", "export NCCL_SOCKET_IFNAME==eth0\nexport RANK=7 MASTER_PORT=5\nexec"),
    (STATIC, ALL, "--master-port=29500", "--master-port=29777"),
    (STATIC, ALL, "--master-addr=10.0.0.1", "--master-addr=10.1.0.1"),
    (STATIC, ONE, "--master-addr=10.0.0.1", "--master-addr=localhost"),
    (STATIC, TWO, "--master-addr=10.0.0.1", "--master-addr=n1"),
    (STATIC, ALL, "--lr=1", "--log-dir=/tmp/@NODE@"),
    (STATIC, TWO, "--node-rank=1 ", "", "exec", "export PET_NODE_RANK=1\nexec"),
    (STATIC, TWO, "--nproc-per-node=2", "--nproc-per-node=$(nvidia-smi -L | wc -l)"),
    (ELASTIC, ALL, "--nnodes=3", "--nnodes=2:4"),
    (ELASTIC, ALL, "--max-restarts=3 ", "--max-restarts=0 --monitor-interval 5 "),
    (
        ACCELERATE,
        CONFIG,
        "(num_machines: 3)\\n(num_processes: 6)",
        "\\2  # ours\\n\\1",
        "mixed_precision: bf16",
        "mixed_precision: fp16",
    ),
    (ACCELERATE, TWO, "accelerate launch", "accelerate launch --multi_gpu --machine_rank 1"),
    (MEGATRON, ALL, "--bf16", "--fp16 --log-interval 5"),
]


@pytest.mark.parametrize("row", HARMLESS)
def test_a_harmless_edit_is_no_alarm(tmp_path, row):
    found, _ = told(edited(tmp_path, *row))
    assert found == []


@pytest.mark.parametrize(
    "lines",
    [
        "cat >x <<-EOF\n\tNO\n\tEOF\n",
        "cat >x <<- EOF\n\tNO\n\t\tEOF\n",
        "cat >x <<-'EOF'\n\tNO\n  EOF\nNO\n\tEOF\n",
        "cat >x <<EOF\n  EOF\nNO\n\tEOF\nEOF\n",
        "cat <<A - <<-B\nNO\nA\nNO\n\tB\n",
        "cat <<'EOF'\nNO \\\nEOF\n",
        "cat <<EOF\nNO \\\nEOF\nEOF\n",
        "cat <<'#' # <<mine\nNO\n#\n",
        "if true; then\n\tcat <<-EOF\n\tdon't NO\n\tEOF\nfi\n",
        "cat <<<EOF '<<EOF' $((1<<2))\n",
    ],
)
def test_a_here_document_is_no_part_of_the_script(lines):
    body = "torchrun --nnodes=9\nexport A=2\nexit 0"
    script = read_script("s.sh", f"export A=1\n{lines.replace('NO', body)}torchrun --nnodes=3 train.py\n")
    assert (script.exports["A"].value, str(script.options["--nnodes"]), script.end) == ("1", "--nnodes=3", None)
    assert script.unread == ()


UNREADABLE = [
    (STATIC, TWO, "static-n2.sh:6: --node-rank=$RANK is known only when it runs", "--node-rank=1", "--node-rank=$RANK"),
    (
        STATIC,
        ALL,
        "static-n[1-3].sh:6: --node-rank=$RANK is known only when it runs",
        "--node-rank=.",
        "--node-rank=$RANK",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:6: --nproc-per-node=$_ is known only when it runs",
        "--nproc-per-node=2",
        "--nproc-per-node=`nproc`",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:5: CUDA_VISIBLE_DEVICES=$MINE is known only when it runs",
        "VISIBLE_DEVICES=0,1",
        'VISIBLE_DEVICES="$MINE"',
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:6: CUDA_DEVICE_ORDER=$MINE is known only when it runs",
        "exec",
        "export CUDA_DEVICE_ORDER=$MINE\nexec",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:6: unset CUDA_VISIBLE_DEVICES … depends on a condition",
        "exec",
        "[ -f x ] && unset CUDA_VISIBLE_DEVICES\nexec",
    ),
    (STATIC, TWO, "static-n2.sh:6: source ./env.sh is not followed", "exec", "source ./env.sh\nexec"),
    (
        STATIC,
        TWO,
        "static-n2.sh: starts neither torchrun nor accelerate, so only its exports are read",
        "exec torchrun",
        "exec ./wrapper",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:6: export CUDA_VISIBLE_DEVICES=7 … depends on a condition",
        "exec",
        "if true; then export CUDA_VISIBLE_DEVICES=7; fi\nexec",
    ),
    (
        STATIC,
        TWO,
        "static-n2.sh:6: export CUDA_VISIBLE_DEVICES=7 … depends on a condition",
        "exec",
        "[ -f x ] && export CUDA_VISIBLE_DEVICES=7\nexec",
    ),
    (STATIC, TWO, "static-n2.sh:6: NCCL_PROTO is not as in the other scripts", "exec", "export NCCL_PROTO=LL\nexec"),
    (
        STATIC,
        TWO,
        "static-n2.sh:6: the program or its arguments are not those of the other scripts",
        "train.py",
        "other.py",
    ),
    (STATIC, TWO, "static-n2.sh: its quotes span lines", "--lr=1", "'--lr=1"),
    (
        STATIC,
        TWO,
        "static-n2.sh:7: --master-addr=n1 is another name of the plan's, which the node may not know",
        "--master-addr=10.0.0.1",
        "--master-addr=n1",
    ),
    (
        ACCELERATE,
        TWO,
        "Accelerate's configuration is not in this directory",
        r'"\$here"/config-n2.yaml',
        "/etc/other.yaml",
    ),
]


@pytest.mark.parametrize("row", UNREADABLE)
def test_what_cannot_be_read_is_said_to_be_unchecked(tmp_path, row):
    target, name, text, *edits = row
    found, checked = told(edited(tmp_path, target, name, *edits))
    assert (found, [line for line in checked.unchecked if text in line]) == ([], list(checked.unchecked)[:1])
    assert len([line for line in checked.unchecked if text in line]) == 1


def test_files_as_rendered_leave_nothing_unchecked(tmp_path):
    for target in ("torchrun", "torchrun-elastic", "accelerate-ddp", "megatron-lm"):
        assert told(edited(tmp_path / target, target, ALL))[1].unchecked == ()


def test_the_rendezvous_of_all_scripts_is_the_one_to_test(tmp_path):
    plan = edited(
        tmp_path, "torchrun", ALL, "--master-addr=10.0.0.1 --master-port=29500", "--master-addr n3 --master-port 7"
    )
    command = command_of_scripts(plan, check_scripts(plan))
    assert (command.master, command.port, command.files) == ("n3", 7, ("/srv", "/srv/train.py"))


def test_what_a_script_exports_counts_over_what_the_command_line_sets(tmp_path):
    plan = edited(tmp_path, "torchrun", TWO, "exec", "export NCCL_DEBUG=INFO\nexec")
    plan.environment.update({"NCCL_DEBUG": "WARN", "CUDA_DEVICE_ORDER": "x"})
    command = command_of_scripts(plan, check_scripts(plan))
    assert command.environment_on("n1")["NCCL_DEBUG"] == "WARN"
    assert command.environment_on("n2")["NCCL_DEBUG"] == "INFO"
    assert command.environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_the_same_wrong_number_on_many_nodes_is_one_cause(tmp_path):
    (cause,), _ = told(edited(tmp_path, "torchrun", ALL, "--nproc-per-node=2", "--nproc-per-node=3"))
    assert cause.nodes == ("n1", "n2", "n3")
    assert cause.fix == "--nproc-per-node=2 in static-n[1-3].sh:6"

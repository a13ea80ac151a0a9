"""Causes in commands that are typed for n1, n2 and n3; docs/preflight.md has them."""

from tests.real.launch.causes.planted import Planted

JOB = "/run/job"
JOIN = "--rdzv-backend=c10d --rdzv-endpoint=n1:29500"
TYPED = (
    Planted(
        "torchrun is not told where its ranks meet",
        "meeting",
        "",
        "the command sets no rendezvous for the ranks of several nodes",
        JOIN,
        words="CUDA_VISIBLE_DEVICES= torchrun --nnodes=3 --nproc-per-node=1 train.py",
    ),
    Planted(
        "the rendezvous is localhost",
        "meeting",
        "",
        "localhost means each node itself, so the nodes cannot find each other",
        JOIN,
        words="CUDA_VISIBLE_DEVICES= torchrun --nnodes=3 --nproc-per-node=1 --rdzv-backend=c10d "
        "--rdzv-endpoint=localhost:29500 train.py",
    ),
    Planted(
        "torchrun waits for more nodes than there are",
        "hosts",
        "",
        "the command needs 4 nodes, but 3 are selected",
        "--nnodes=3",
        words=f"CUDA_VISIBLE_DEVICES= torchrun --nnodes=4 --nproc-per-node=1 {JOIN} train.py",
    ),
    Planted(
        "mpirun cannot log in to a node",
        "ssh",
        "n3",
        "mpirun on this machine cannot log in to n3 by ssh: *Permission denied (publickey*",
        "ssh-copy-id n3   on this machine",
        plant={"n3": "cat {state}/login.pub >/root/.ssh/authorized_keys"},
        back={"n3": "cat {state}/login.pub {state}/user.pub >/root/.ssh/authorized_keys"},
        words=f"mpirun --allow-run-as-root -x CUDA_VISIBLE_DEVICES= -H n1,n2,n3 {JOB}/program",
    ),
    Planted(
        "ssh does not know the host key of a node",
        "ssh",
        "n2",
        "mpirun on this machine cannot log in to n2 by ssh: Host key verification failed.",
        "ssh n2 true   on this machine, and compare and accept its host key",
        plant={"": "grep -v -e n2 -e 10.79.0.12 {state}/user_known_hosts >/root/.ssh/known_hosts"},
        back={"": "cat {state}/user_known_hosts >/root/.ssh/known_hosts"},
        words=f"mpirun --allow-run-as-root -x CUDA_VISIBLE_DEVICES= -H n1,n2,n3 {JOB}/program",
    ),
    Planted(
        "the program may not be executed on a node",
        "environment",
        "n2",
        f"{JOB}/program is not executable",
        f"chmod +x {JOB}/program   on these nodes",
        plant={"n2": f"chmod -x {JOB}/program"},
        words=f"mpirun --allow-run-as-root -x CUDA_VISIBLE_DEVICES= -H n1,n2,n3 {JOB}/program",
    ),
    Planted(
        "the command names a host that is not in the inventory",
        "hosts",
        "",
        "the inventory has no n4",
        "remove n4 from the command's hosts, or add it to the inventory",
        words=f"mpirun --allow-run-as-root -x CUDA_VISIBLE_DEVICES= -H n1,n2,n3,n4 {JOB}/program",
    ),
)

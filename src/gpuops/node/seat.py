"""Seat of a rank: before a rank's first step, compares its host, its GPU and its coordinates with the plan.

Python 3.6 grammar, standard library only. Python imports it as ``sitecustomize`` from a nameless file of ``job.py``,
which writes the constants in front: ``HERE``, the path of that file; ``SUPERVISOR``, the process with the pipes;
``NODE_PIPE``, the device and inode of the node's own output; ``WORLD``; ``AXES``, the degrees, the fastest first; and
``SEATS``, the plan of each rank of this node. A rank in the wrong place ends before the job's own code runs.
"""
import json
import os
import socket
import sys

WRONG_SEAT = 78         # EX_CONFIG of sysexits.h


def take() -> None:
    """Report this process as its rank, and give it an output of its own; a process without a rank is left alone."""
    environ = os.environ
    if not environ.get("RANK", "").isdigit() or not environ.get("WORLD_SIZE", "").isdigit():
        return
    rank = int(environ["RANK"])
    seat = SEATS.get(rank)  # noqa: F821
    wrong = differences(rank, seat, environ)
    pipe = os.open("/proc/%d/fd/%d" % (SUPERVISOR, (seat or next(iter(SEATS.values())))["pipe"]), os.O_WRONLY)  # noqa: F821
    report = {"rank": rank, "pid": os.getpid(), "host": socket.gethostname(), "wrong": wrong}
    os.write(pipe, b"\0" + json.dumps(report).encode() + b"\n")
    if wrong:
        os.write(2, ("gpuops: rank %d is not where the plan has it: %s\n" % (rank, "; ".join(wrong))).encode())
        os._exit(WRONG_SEAT)
    for descriptor in (1, 2):
        status = os.fstat(descriptor)
        if [status.st_dev, status.st_ino] == NODE_PIPE:  # noqa: F821 - else the job has redirected it already
            os.dup2(pipe, descriptor)
    os.close(pipe)
    leave(environ)


def leave(environ) -> None:
    """Hide the seat from the processes that this rank starts: they inherit RANK, but are no rank."""
    rest = [place for place in environ.get("PYTHONPATH", "").split(os.pathsep) if place != HERE]  # noqa: F821
    environ.pop("PYTHONPATH", None)
    if any(rest):
        environ["PYTHONPATH"] = os.pathsep.join(rest)


def differences(rank, seat, environ) -> list:
    """Return what is not as planned, in words."""
    if seat is None:
        return ["rank %d does not belong on this node, which has ranks %s" % (rank, ", ".join(map(str, SEATS)))]  # noqa: F821
    wrong = []
    numbers = (("WORLD_SIZE", WORLD), ("LOCAL_RANK", seat["local_rank"]), ("GROUP_RANK", seat["node_index"]))  # noqa: F821
    for name, planned in numbers:
        if environ.get(name, str(planned)) != str(planned):
            wrong.append("%s is %s, planned is %d" % (name, environ[name], planned))
    if coordinates(rank) != seat["at"]:
        wrong.append("rank %d is %s, planned is %s" % (rank, written(coordinates(rank)), written(seat["at"])))
    return wrong + wrong_gpu(seat, environ)


def wrong_gpu(seat, environ) -> list:
    """Compare the GPU that CUDA will number as this local rank; without CUDA_VISIBLE_DEVICES that is unknown."""
    if "CUDA_VISIBLE_DEVICES" not in environ or not seat["uuid"]:
        return []
    visible = [word.strip() for word in environ["CUDA_VISIBLE_DEVICES"].split(",") if word.strip()]
    if visible in ([], ["-1"]):
        return []           # the job uses no GPU
    index = seat["local_rank"] if len(visible) > 1 else 0
    if index >= len(visible):
        return ["CUDA_VISIBLE_DEVICES=%s has no GPU for local rank %d" % (",".join(visible), seat["local_rank"])]
    word, gpus = visible[index], uuids()
    uuid = gpus[int(word)] if word.isdigit() and int(word) < len(gpus) else word
    if word.isdigit() and not gpus:
        return [] if int(word) == seat["gpu"] else ["GPU %s, planned is GPU %d" % (word, seat["gpu"])]
    return [] if uuid == seat["uuid"] else ["GPU %s is %s, planned is %s" % (word, uuid, seat["uuid"])]


def uuids() -> list:
    """Return the UUIDs of the GPUs in PCI order, as the driver lists them; empty without one."""
    folder = "/proc/driver/nvidia/gpus"
    found = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        with open(folder + "/" + name + "/information") as file:
            found += [line.split(":", 1)[1].strip() for line in file if line.startswith("GPU UUID")]
    return found


def coordinates(rank) -> dict:
    """Return the coordinates of a rank: the axes are numbered one after another, the fastest first."""
    at = {}
    for axis, degree in AXES:  # noqa: F821
        at[axis], rank = rank % degree, rank // degree
    return at


def written(at) -> str:
    return ",".join("%s=%d" % pair for pair in sorted(at.items()))


def call_hidden() -> None:
    """Import the sitecustomize that this one hides, as Python would have."""
    own = sys.modules.pop("sitecustomize")
    sys.path[:] = [place for place in sys.path if place != HERE]  # noqa: F821
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        pass
    sys.modules.setdefault("sitecustomize", own)


if __name__ == "sitecustomize":
    take()
    call_hidden()

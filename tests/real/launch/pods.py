"""Plays Kubernetes: starts the pods of a rendered manifest on hosts, one a host, as its operator and a kubelet would.

pods.py MANIFEST HOST …. What a pod is told is read in the operators: training-operator 1.9 (pytorch/envvar.go,
master.go), Trainer 2.3 (plugins/torch/torch.go), JobSet 0.12 with Kubernetes' indexed jobs, Volcano at ed72c7c
(plugins/env/env.go, plugins/svc/svc.go), and mpi-operator 0.8 (mpi_job_controller.go).
"""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

SERVICE = "default.svc"
"""What stands behind the names of an MPIJob's workers: namespace and cluster domain."""


def containers(part):
    """Every container of a manifest."""
    if isinstance(part, dict):
        yield from part.get("containers", [part] if "command" in part else [])
        part = [value for key, value in part.items() if key != "containers"]
    for inner in part if isinstance(part, list) else ():
        yield from containers(inner)


def started(container, told):
    """The shell line that starts a container: its environment, and ``$(NAME)`` and ``$$`` in its command."""
    env = {**told, **{variable["name"]: variable["value"] for variable in container.get("env", [])}}
    words = (
        re.sub(r"\$\$|\$\((\w+)\)", lambda m: "$" if m[0] == "$$" else env.get(m[1], m[0]), word)
        for word in container["command"]
    )
    return shlex.join(["env", *(f"{name}={value}" for name, value in env.items()), *words])


def torchrun(nodes, rank, processes, master, port):
    """What torchrun takes from the environment in place of options."""
    told = {"NNODES": nodes, "NODE_RANK": rank, "NPROC_PER_NODE": processes, "MASTER_ADDR": master, "MASTER_PORT": port}
    return {f"PET_{name}": str(value) for name, value in told.items()}


def jobset(_spec, _name, _container, rank):
    """An indexed job."""
    return {"JOB_COMPLETION_INDEX": str(rank)}


def pytorchjob(spec, name, container, rank):
    """The master is node 0, and worker i is i + 1; torchrun has to overlook RANK and WORLD_SIZE."""
    nodes = sum(role["replicas"] for role in spec["pytorchReplicaSpecs"].values())
    port = next(port["containerPort"] for port in container["ports"] if port["name"] == "pytorchjob-port")
    told = torchrun(nodes, rank, spec["nprocPerNode"], f"{name}-master-0", port)
    world = {"MASTER_ADDR": f"{name}-master-0", "MASTER_PORT": str(port), "WORLD_SIZE": str(nodes), "RANK": str(rank)}
    return {**told, **world}


def trainjob(spec, name, _container, rank):
    """The runtime's own port is 29500, whatever the job says."""
    trainer = spec["trainer"]
    return torchrun(trainer["numNodes"], rank, trainer["numProcPerNode"], f"{name}-node-0-0.{name}", 29500)


def volcano(spec, _name, _container, rank):
    """What the job's plugin ``env`` tells."""
    assert "env" in spec["plugins"]
    return {"VC_TASK_INDEX": str(rank), "VK_TASK_INDEX": str(rank)}


def mpi(spec, name, hosts):
    """The launcher's line, and the host file that the operator writes for it."""
    lines = [f"{name}-worker-{n}.{name}.{SERVICE} slots={spec['slotsPerWorker']}" for n in range(len(hosts))]
    Path("hostfile").write_text("\n".join(lines) + "\n")
    told = {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": str(Path("hostfile").absolute()),
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10 -o StrictHostKeyChecking=no",
        "OMPI_MCA_orte_set_default_slots": str(spec["slotsPerWorker"]),
    }
    (launcher,) = containers(spec["mpiReplicaSpecs"]["Launcher"])
    return started(launcher, told)


def main(manifest, *hosts):
    """Start every pod, and end as the first that fails."""
    says = yaml.safe_load(Path(manifest).read_text())
    spec, name = says["spec"], says["metadata"]["name"]
    if says["kind"] == "MPIJob":
        lines = [["bash", "-c", mpi(spec, name, hosts)]]
    else:
        told = {"JobSet": jobset, "PyTorchJob": pytorchjob, "TrainJob": trainjob, "Job": volcano}[says["kind"]]
        pods = [one for one in containers(spec) if "command" in one]
        pods += pods[-1:] * (len(hosts) - len(pods))
        lines = [
            ["ssh", host, f"cd {Path.cwd()} && " + started(pod, told(spec, name, pod, rank))]
            for rank, (host, pod) in enumerate(zip(hosts, pods, strict=True))
        ]
    running = [subprocess.Popen(line) for line in lines]
    sys.exit(max(process.wait() for process in running))


if __name__ == "__main__":
    main(*sys.argv[1:])

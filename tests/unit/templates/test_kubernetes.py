import functools
from dataclasses import replace

import jsonschema
import pytest
import yaml
from tests.recorded import CRDS

from gpuops.document import load
from gpuops.errors import TemplateError
from gpuops.layout import parse_layout
from gpuops.placement import GpuShape, NodeShape, place
from gpuops.render import Env, Job, find_target, render, start_command

FROM = pytest.mark.parametrize("folder", CRDS, ids=lambda folder: folder.parent.name)
"""Whose schemas."""
HOSTILE = (
    "--lr=1e-4",
    "two words",
    'it\'s "$HOME" $(JOB_COMPLETION_INDEX) `id` \\ ;#&|: {}',
    "yes",
    "0x10",
    "a\nb",
    "",
)
ENV = (Env("NCCL_IB_HCA", "=mlx5_0", "the port"), Env("NCCL_DEBUG", "yes", "a word that is no truth"))
SCHEMAS = {
    "mpijob": "kubeflow.org_mpijobs.yaml",
    "pytorchjob": "kubeflow.org_pytorchjobs.yaml",
    "trainjob": "trainer.kubeflow.org_trainjobs.yaml",
    "jobset": "jobset.x-k8s.io_jobsets.yaml",
    "volcano": "batch.volcano.sh_jobs.yaml",
}
SIZES = [(1, 8), (2, 8), (4, 4)]


def cards(indices):
    return tuple(GpuShape(g, f"GPU-{g}", f"0000:{g:02x}:00.0", 0, f"mlx5_{g}", 0) for g in indices)


def placed(nodes, gpus, words="tp=4"):
    shapes = cards(range(gpus))
    links = {(a, b): "NV18" for a in range(gpus) for b in range(gpus) if a != b}
    names = [f"gpu{i}" for i in range(1, nodes + 1)]
    layout = parse_layout(f"{words},dp={nodes * gpus // parse_layout(words).ranks}")
    return place(layout, [NodeShape(n, f"10.0.0.{n[3:]}", shapes, (), None, n, links) for n in names])


def manifest(target, nodes, gpus, *args, **job):
    (made,) = render(find_target(target), placed(nodes, gpus), Job(args=args, env=ENV, **job))
    assert made.path == f"{target}.yaml"
    return yaml.safe_load(made.text)


@functools.cache
def schema(target, folder):
    """The kind's schema, with the group, version and kind that its manifests bear."""
    says = load(folder / SCHEMAS[target]).plain()["spec"]
    (version,) = [v for v in says["versions"] if v["served"]]
    strict = closed(version["schema"]["openAPIV3Schema"])
    strict["properties"] |= {
        "apiVersion": {"const": f"{says['group']}/{version['name']}"},
        "kind": {"const": says["names"]["kind"]},
        "metadata": {"type": "object", "required": ["name"]},
    }
    return strict


def schema_in(folder, target):
    """The kind's schema; the larger collection does not have that of every kind."""
    if not (folder / SCHEMAS[target]).is_file():
        pytest.skip(f"optional: {folder.name}/ has no {SCHEMAS[target]}")
    return schema(target, folder)


def closed(part):
    """An OpenAPI schema that refuses unknown fields, which a server would drop without a word."""
    if isinstance(part, list):
        return [closed(item) for item in part]
    if not isinstance(part, dict):
        return part
    inner = {key: closed(value) for key, value in part.items() if not key.startswith("x-kubernetes")}
    if part.get("x-kubernetes-int-or-string") is True:
        inner["type"] = ["integer", "string"]
    free = part.get("x-kubernetes-preserve-unknown-fields") is True or "additionalProperties" in part
    if isinstance(part.get("properties"), dict) and part.get("type") == "object" and not free:
        inner["additionalProperties"] = False
    return inner


def found(value, key):
    """Every value that stands under ``key`` anywhere in a manifest."""
    if isinstance(value, dict):
        return [v for k, v in value.items() if k == key] + [w for v in value.values() for w in found(v, key)]
    return [w for v in value for w in found(v, key)] if isinstance(value, list) else []


def expanded(word, **variables):
    """What Kubernetes makes of a word of a command: ``$(NAME)`` is a variable, ``$$`` a dollar."""
    whole = ""
    while word:
        before, dollar, word = word.partition("$")
        whole += before + dollar
        if word.startswith("$"):
            word = word[1:]
        elif word.startswith("(") and word[1:].partition(")")[0] in variables:
            name, _, word = word[1:].partition(")")
            whole = whole[:-1] + variables[name]
    return whole


def with_gpus(placement, *orders):
    """The same placement, its nodes' GPUs in these orders of local ranks."""
    nodes = (replace(node, gpus=cards(order)) for node, order in zip(placement.nodes, orders, strict=True))
    seats = ((rank, orders[rank.rank // len(orders[0])][rank.local_rank]) for rank in placement.ranks)
    return replace(placement, nodes=tuple(nodes), ranks=tuple(replace(rank, gpu=gpu) for rank, gpu in seats))


@FROM
@pytest.mark.parametrize(("nodes", "gpus"), SIZES)
@pytest.mark.parametrize("target", SCHEMAS)
def test_manifests_are_what_their_operators_schemas_allow(folder, target, nodes, gpus):
    jsonschema.validate(manifest(target, nodes, gpus, *HOSTILE), schema_in(folder, target))


@FROM
@pytest.mark.parametrize(
    ("target", "was", "becomes", "complaint"),
    [
        ("mpijob", "slotsPerWorker: 8", "slotsPerWorker: '8'", "not of type 'integer'"),
        ("mpijob", "OpenMPI", "OpenMP", "is not one of"),
        ("pytorchjob", 'nprocPerNode: "8"', "nprocPerNode: 8", "not of type 'string'"),
        ("pytorchjob", "restartPolicy", "restartPolice", "Additional properties"),
        ("trainjob", "numProcPerNode: 8", "numProcPerNode: auto", "not of type 'integer'"),
        ("trainjob", "runtimeRef", "runtime", "required property"),
        ("jobset", "completions: 2", "completion: 2", "Additional properties"),
        ("volcano", "minAvailable: 2", "minAvailable: two", "not of type 'integer'"),
        ("volcano", "schedulerName", "scheduler", "Additional properties"),
        ("jobset", "nodeSelectorTerms", "nodeSelectorTerm", "Additional properties|required property"),
    ],
)
def test_the_schemas_refuse_a_slip_in_each_of_them(folder, target, was, becomes, complaint):
    (made,) = render(find_target(target), placed(2, 8), Job())
    assert was in made.text
    with pytest.raises(jsonschema.ValidationError, match=complaint):
        jsonschema.validate(yaml.safe_load(made.text.replace(was, becomes)), schema_in(folder, target))


@pytest.mark.parametrize("target", SCHEMAS)
def test_pods_have_all_gpus_of_their_node_and_stand_on_the_nodes_placed(target):
    says = manifest(target, 2, 8)
    assert {limit["nvidia.com/gpu"] for limit in found(says, "limits")} == {8}
    assert [term["values"] for terms in found(says, "matchExpressions") for term in terms] == [["gpu1", "gpu2"]] * len(
        found(says, "affinity")
    )
    assert found(says, "affinity")
    assert {"name": "shm", "mountPath": "/dev/shm"} in found(says, "volumeMounts")[0]


@pytest.mark.parametrize(
    ("target", "labels"),
    [
        # what the operators write on the pods that train (mpi-operator 0.8, training-operator 1.9, jobset 0.12,
        # volcano 1.15: pkg/controllers/job/plugins/svc)
        ("mpijob", {"training.kubeflow.org/job-name": "big", "training.kubeflow.org/job-role": "worker"}),
        ("pytorchjob", {"training.kubeflow.org/job-name": "big"}),
        ("trainjob", {"jobset.sigs.k8s.io/jobset-name": "big"}),
        ("jobset", {"jobset.sigs.k8s.io/jobset-name": "big"}),
        ("volcano", {"volcano.sh/job-name": "big"}),
    ],
)
def test_no_two_pods_of_a_job_share_a_node(target, labels):
    says = manifest(target, 2, 4, name="big")
    for apart in found(says, "podAntiAffinity"):
        (term,) = apart["requiredDuringSchedulingIgnoredDuringExecution"]
        assert (term["topologyKey"], term["labelSelector"]) == ("kubernetes.io/hostname", {"matchLabels": labels})
    assert len(found(says, "podAntiAffinity")) == len(found(says, "nodeAffinity"))


@pytest.mark.parametrize("target", SCHEMAS)
@pytest.mark.parametrize(("order", "said"), [((0, 2, 1, 3), ["0,2,1,3"]), ((0, 1, 2, 3), []), ((1, 2, 4, 5), [])])
def test_pods_count_their_gpus_in_the_order_of_local_ranks(target, order, said):
    (made,) = render(find_target(target), with_gpus(placed(2, 4), order, order), Job())
    says = yaml.safe_load(made.text)
    told = [v["value"] for variables in found(says, "env") for v in variables if v["name"] == "CUDA_VISIBLE_DEVICES"]
    told += [w.partition("=")[2] for w in found(says, "command")[0] if w.startswith("CUDA_VISIBLE_DEVICES=")]
    assert told == said * len([c for c in found(says, "command") if "torchrun" in c or "mpirun" in c])


@pytest.mark.parametrize("target", SCHEMAS)
@pytest.mark.parametrize("orders", [((0, 2, 1, 3), (0, 1, 2, 3)), ((0, 2, 1, 4), (0, 2, 1, 4))])
def test_an_order_of_gpus_that_pods_cannot_have_is_refused(target, orders):
    with pytest.raises(TemplateError, match=r"in the order 0,2,1,[34].*see slurm or torchrun"):
        render(find_target(target), with_gpus(placed(2, 4), *orders), Job())


@pytest.mark.parametrize("target", SCHEMAS)
def test_a_tensor_parallel_group_over_pods_is_refused(target):
    nodes = [replace(node, domain="rack.1") for node in placed(2, 4).nodes]
    with pytest.raises(TemplateError, match="would span them"):
        render(find_target(target), place(parse_layout("tp=8"), nodes), Job())


@pytest.mark.parametrize("target", SCHEMAS)
def test_the_port_is_the_one_where_ranks_meet(target):
    says = manifest(target, 2, 4, port=29600)
    told = [word for command in found(says, "command") for word in command if "29600" in word]
    assert told or {port["containerPort"] for ports in found(says, "ports") for port in ports} == {29600}


@pytest.mark.parametrize("target", SCHEMAS)
def test_the_scripts_words_arrive_unchanged(target):
    commands = found(manifest(target, 2, 8, *HOSTILE), "command")
    for command in commands:
        assert [expanded(word, JOB_COMPLETION_INDEX="1") for word in command[-1 - len(HOSTILE) :]] == [
            "train.py",
            *HOSTILE,
        ]
    assert commands


@pytest.mark.parametrize("target", ["pytorchjob", "trainjob", "jobset", "volcano"])
def test_variables_are_text(target):
    for variables in found(found(manifest(target, 2, 8), "containers"), "env"):
        assert {v["name"]: v["value"] for v in variables} == {"NCCL_IB_HCA": "=mlx5_0", "NCCL_DEBUG": "yes"}


@pytest.mark.parametrize("target", SCHEMAS)
def test_no_empty_list_of_variables_is_left(target):
    (made,) = render(find_target(target), placed(2, 8), Job())
    assert not found(found(yaml.safe_load(made.text), "containers"), "env")


@pytest.mark.parametrize(("nodes", "roles"), [(1, {"Master": 1}), (4, {"Master": 1, "Worker": 3})])
def test_a_pytorchjob_has_a_master_and_the_rest_are_workers(nodes, roles):
    spec = manifest("pytorchjob", nodes, 4)["spec"]
    assert {role: says["replicas"] for role, says in spec["pytorchReplicaSpecs"].items()} == roles
    for says in spec["pytorchReplicaSpecs"].values():
        assert [c["name"] for c in says["template"]["spec"]["containers"]] == ["pytorch"]
    assert spec["nprocPerNode"] == "4"
    assert spec["runPolicy"]["backoffLimit"] == 3 * nodes, "this operator would start a broken script again for ever"


def test_a_trainjob_counts_processes_in_integers():
    trainer = manifest("trainjob", 4, 4)["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (4, 4)


def test_an_mpijob_has_a_slot_a_gpu_and_a_launcher_without_any():
    spec = manifest("mpijob", 4, 4)["spec"]
    roles = spec["mpiReplicaSpecs"]
    assert (spec["slotsPerWorker"], roles["Worker"]["replicas"], roles["Launcher"]["replicas"]) == (4, 4, 1)
    assert not found(roles["Launcher"], "limits")
    command = found(roles["Launcher"], "command")[0]
    assert command[:4] == ["mpirun", "--allow-run-as-root", "-np", "16"]
    assert [command[i + 1] for i, word in enumerate(command) if word == "-x"] == [
        "PATH",
        "LD_LIBRARY_PATH",
        "NCCL_IB_HCA==mlx5_0",
        "NCCL_DEBUG=yes",
    ]
    script = command[command.index("-c") + 1]
    assert expanded(script) == script, "the shell's own variables are the shell's"


def test_pods_of_a_jobset_meet_at_the_first_and_are_ranked_by_their_index():
    says = manifest("jobset", 4, 4, name="big-job", port=29600)
    (replicated,) = says["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert (job["parallelism"], job["completions"], job["completionMode"]) == (4, 4, "Indexed")
    (command,) = found(says, "command")
    assert [expanded(word, JOB_COMPLETION_INDEX="2") for word in command[:-1]] == [
        "torchrun",
        "--nnodes=4",
        "--nproc-per-node=4",
        "--node-rank=2",
        f"--master-addr=big-job-{replicated['name']}-0-0.big-job",
        "--master-port=29600",
    ]


def test_pods_of_volcano_start_together_and_are_ranked_by_their_index():
    spec = manifest("volcano", 4, 4, name="big-job", port=29600)["spec"]
    (task,) = spec["tasks"]
    assert (spec["minAvailable"], task["replicas"], spec["schedulerName"]) == (4, 4, "volcano")
    assert spec["plugins"].keys() == {"env", "svc"}, "they give a pod its index and its name"
    (command,) = found(spec, "command")
    assert [expanded(word, VC_TASK_INDEX="2") for word in command[:-1]] == [
        "torchrun",
        "--nnodes=4",
        "--nproc-per-node=4",
        "--node-rank=2",
        f"--master-addr=big-job-{task['name']}-0.big-job",
        "--master-port=29600",
    ]


@pytest.mark.parametrize("target", SCHEMAS)
@pytest.mark.parametrize("name", ["My-job", "my_job", "-job", "job-", "7b", "a b", 'x"y', "jöb", "", "a" * 46])
def test_a_name_that_is_none_to_kubernetes_is_refused(target, name):
    with pytest.raises(TemplateError, match="lower-case letters"):
        manifest(target, 2, 8, name=name)


@pytest.mark.parametrize("target", SCHEMAS)
def test_the_longest_name_is_one_that_jobset_makes_pods_of(target):
    with pytest.raises(TemplateError, match="at most 45"):
        manifest(target, 2, 8, name="a" * 46)
    assert manifest(target, 2, 8, name="a" * 45)
    assert len(f"{'a' * 45}-node-0-999-abcde") <= 63  # what JobSet's webhook takes for the longest pod's name


@pytest.mark.parametrize("target", SCHEMAS)
def test_nodes_with_unequal_gpus_are_refused(target):
    placement = place(parse_layout("dp=6"), placed(2, 4).nodes)
    with pytest.raises(TemplateError, match="different numbers of GPUs"):
        render(find_target(target), placement, Job())


@pytest.mark.parametrize("target", SCHEMAS)
def test_the_start_command_applies_the_manifest(target):
    assert start_command(find_target(target), placed(2, 8), Job()) == f"kubectl apply -f {target}.yaml"

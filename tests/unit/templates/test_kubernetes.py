import functools
import json
import re
import shlex
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
SCHEMA_FILES = {
    **SCHEMAS,
    "rayjob": "ray.io_rayjobs.yaml",
    "lws-vllm": "leaderworkerset.x-k8s.io_leaderworkersets.yaml",
    "lws-sglang": "leaderworkerset.x-k8s.io_leaderworkersets.yaml",
}
SERVERS = ("lws-vllm", "lws-sglang")
BY_KUEUE = ("jobset", "mpijob", "trainjob", *SERVERS)
"""Targets whose pods Kueue places, if the job names a queue."""
SIZES = [(1, 8), (2, 8), (4, 4)]


def cards(indices):
    return tuple(GpuShape(g, f"GPU-{g}", f"0000:{g:02x}:00.0", 0, f"mlx5_{g}", 0) for g in indices)


def placed(nodes, gpus, words="tp=4", order="tp-cp-ep-dp-pp", racks=None):
    shapes = cards(range(gpus))
    links = {(a, b): "NV18" for a in range(gpus) for b in range(gpus) if a != b}
    names = [f"gpu{i}" for i in range(1, nodes + 1)]
    layout = parse_layout(f"{words},dp={nodes * gpus // parse_layout(words).ranks}", order)
    domains = [f"rack{i * racks // nodes}" if racks else name for i, name in enumerate(names)]
    shapes = [NodeShape(n, f"10.0.0.{n[3:]}", shapes, (), None, d, links) for n, d in zip(names, domains, strict=True)]
    return place(layout, shapes)


def usual(target, nodes, gpus):
    """A layout that the target takes."""
    words = f"tp={gpus}" if target in SERVERS else "tp=4"
    return placed(nodes, gpus, words, (*find_target(target).orders, "tp-cp-ep-dp-pp")[0])


def manifest(target, nodes, gpus, *args, placement=None, **job):
    own = find_target(target)
    placement = placement or usual(target, nodes, gpus)
    (made,) = (f for f in render(own, placement, Job(args=args, env=ENV, **job)) if f.path == f"{target}.yaml")
    return yaml.safe_load(made.text)


@functools.cache
def schema(target, folder):
    """The kind's schema, with the group, version and kind that its manifests bear."""
    says = load(folder / SCHEMA_FILES[target]).plain()["spec"]
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
    if not (folder / SCHEMA_FILES[target]).is_file():
        pytest.skip(f"optional: {folder.name}/ has no {SCHEMA_FILES[target]}")
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
@pytest.mark.parametrize("target", SCHEMA_FILES)
def test_manifests_are_what_their_operators_schemas_allow(folder, target, nodes, gpus):
    jsonschema.validate(manifest(target, nodes, gpus, *HOSTILE), schema_in(folder, target))
    if target in (*BY_KUEUE, "volcano"):
        jsonschema.validate(manifest(target, nodes, gpus, queue="batch"), schema_in(folder, target))


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
        ("rayjob", 'num-gpus: "8"', "num-gpus: 8", "not of type 'string'"),
        ("rayjob", "minReplicas: 1", "minimum: 1", "Additional properties|required property"),
        ("lws-sglang", "size: 1", "size: one", "not of type 'integer'"),
        ("lws-vllm", "RecreateGroupOnPodRestart", "Never", "is not one of"),
    ],
)
def test_the_schemas_refuse_a_slip_in_each_of_them(folder, target, was, becomes, complaint):
    files = render(find_target(target), usual(target, 2, 8), Job())
    (made,) = (file for file in files if file.path == f"{target}.yaml")
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


def kueue(says):
    """The annotations of every pod template, as Kueue reads them."""
    return [
        {key.rpartition("/")[2]: value for key, value in metadata["annotations"].items()}
        for metadata in found(says, "metadata")
        if "annotations" in metadata
    ]


@pytest.mark.parametrize("target", BY_KUEUE)
def test_a_queue_leaves_the_nodes_to_kueue_which_keeps_neighbours_together(target):
    says = manifest(target, 2, 8, queue="batch")
    assert says["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "batch"}
    (told,) = kueue(says["spec"])
    assert told == {"podset-preferred-topology": "kubernetes.io/hostname"}, "upwards from there, level by level"
    assert not found(says, "nodeAffinity"), "it would fight the nodes that Kueue chose"
    assert found(says, "podAntiAffinity")
    assert not kueue(manifest(target, 2, 8)["spec"])


@pytest.mark.parametrize("target", ["jobset", "mpijob", "trainjob"])
def test_pods_that_share_nvlink_are_a_slice_of_kueue(target):
    (told,) = kueue(manifest(target, 4, 4, placement=placed(4, 4, racks=2), queue="batch")["spec"])
    # a preferred level below that of the slice would be refused: tas_flavor_snapshot.go
    assert told == {"podset-slice-required-topology": "nvidia.com/gpu.clique", "podset-slice-size": "2"}


def test_volcano_has_queues_of_its_own():
    spec = manifest("volcano", 2, 8, queue="batch")["spec"]
    assert spec["queue"] == "batch"
    assert found(spec, "nodeAffinity")
    assert "queue" not in manifest("volcano", 2, 8)["spec"]


@pytest.mark.parametrize("queue", ["two words", "a,b", "a\nb", "q;x"])
def test_a_queue_that_is_no_word_is_refused(queue):
    with pytest.raises(TemplateError, match="one word"):
        manifest("jobset", 2, 8, queue=queue)


@pytest.mark.parametrize("target", ["rayjob", "pytorchjob"])
def test_a_target_without_queues_refuses_one(target):
    with pytest.raises(TemplateError, match="no use for --queue"):
        manifest(target, 2, 8, queue="batch")


SERVER_OPTIONS = {
    "lws-vllm": {"tensor-parallel-size", "pipeline-parallel-size", "port", "nnodes", "node-rank", "master-addr"}
    | {"master-port", "headless"},
    "lws-sglang": {"model-path", "tp-size", "pp-size", "host", "port", "nnodes", "node-rank", "dist-init-addr"},
}
"""Options that the documentation of vLLM 0.33 and SGLang 0.5 names for several nodes."""


def servers(target, pods, *args, **job):
    """The command of every pod of a group of ``pods`` pods with 4 GPUs each, as LeaderWorkerSet starts them."""
    placement = placed(2 * pods, 4, f"tp=4,pp={pods}", "tp-cp-ep-pp-dp")
    spec = manifest(target, 0, 0, *args, placement=placement, **job)["spec"]
    group = spec["leaderWorkerTemplate"]
    assert (spec["replicas"], group["size"]) == (2, pods), "dp groups of tp x pp GPUs"
    templates = [group.get("leaderTemplate", group["workerTemplate"]), *[group["workerTemplate"]] * (pods - 1)]
    told = {"LWS_LEADER_ADDRESS": "train-0.train", "LWS_GROUP_SIZE": str(pods)}
    for index, template in enumerate(templates):
        (container,) = template["spec"]["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
        yield [expanded(word, LWS_WORKER_INDEX=str(index), **told) for word in container["command"]]


@pytest.mark.parametrize("target", SERVERS)
@pytest.mark.parametrize("pods", [1, 2, 4])
def test_servers_of_a_group_are_the_nodes_of_one_replica(target, pods):
    job = {"script": 'org/$(model) "x"', "port": 29600}
    for index, command in enumerate(servers(target, pods, "--max-model-len", "8192", "$(HOME)", **job)):
        assert command[-3:] == ["--max-model-len", "8192", "$(HOME)"]
        options = dict(word.removeprefix("--").partition("=")[::2] for word in command[:-3] if word.startswith("--"))
        assert options.keys() <= SERVER_OPTIONS[target]
        if target == "lws-vllm":
            assert command[:3] == ["vllm", "serve", job["script"]]
            split, meeting = ("tensor-parallel-size", "pipeline-parallel-size"), ("master-addr", "master-port")
            assert ("headless" in options) == (index > 0), "only the leader answers requests"
            expected = ["train-0.train", "29600"]
        else:
            assert (command[:3], options["model-path"]) == (["python3", "-m", "sglang.launch_server"], job["script"])
            split, meeting, expected = ("tp-size", "pp-size"), ("dist-init-addr",), ["train-0.train:29600"]
        assert [options[name] for name in split] == ["4", str(pods)]
        assert ("port" in options) == (target == "lws-sglang" or index == 0)
        together = [options.get(name) for name in ("nnodes", "node-rank", *meeting)]
        assert together == ([str(pods), str(index), *expected] if pods > 1 else [None] * len(together))


def test_a_replica_of_the_server_is_in_the_order_of_ranks():
    placement = placed(4, 4, "tp=4,pp=2", "tp-cp-ep-pp-dp")
    assert placement.groups["tp"][1] == [4, 5, 6, 7]
    assert placement.groups["pp"][0] == [0, 4], "the next pod of the group has the next stage"
    assert placement.groups["dp"][0] == [0, 8], "another group"


def test_leader_and_workers_of_a_replica_are_one_group_of_kueue():
    placement = placed(4, 4, "tp=4,pp=2", "tp-cp-ep-pp-dp")
    told = kueue(manifest("lws-vllm", 0, 0, placement=placement, queue="batch")["spec"])
    assert told == [{"podset-preferred-topology": "kubernetes.io/hostname", "podset-group-name": "replica"}] * 2


@pytest.mark.parametrize("target", SERVERS)
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("tp=2", "pods have whole nodes of 4 GPUs"),
        ("tp=4,zero=1", "cp, ep, vpp and zero are of training"),
        ("tp=4,pp=2,vpp=2,chunks=2", "cp, ep, vpp and zero are of training"),
    ],
)
def test_a_layout_that_a_server_cannot_have_is_refused(target, words, reason):
    with pytest.raises(TemplateError, match=reason):
        manifest(target, 0, 0, placement=placed(2, 4, words, "tp-cp-ep-pp-dp"))


def test_ray_knows_each_node_by_a_resource_and_starts_torchrun_on_it_in_order():
    placement = placed(4, 4)
    files = {f.path: f.text for f in render(find_target("rayjob"), placement, Job(args=HOSTILE, env=ENV))}
    groups = yaml.safe_load(files["rayjob.yaml"])["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    for index, (group, node) in enumerate(zip(groups, placement.nodes, strict=True)):
        assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (1, 1, 1)
        assert group["template"]["spec"]["nodeSelector"] == {"kubernetes.io/hostname": node.name}
        (resources,) = shlex.split(group["rayStartParams"]["resources"])  # KubeRay puts it into a line of shell
        assert json.loads(resources) == {f"gpuops-node-{index}": 1}
        assert found(group, "limits") == [{"nvidia.com/gpu": 4}]
    says = {}
    source = (
        files["placement.py"].partition("@ray.remote")[0].replace("import ray", "").replace("from ray", "# from ray")
    )
    exec(compile(re.sub(r"(?m)^#.*|^\.util.*", "", source), "placement.py", "exec"), says)
    assert (says["NODES"], says["GPUS"], says["PORT"]) == (4, 4, "29500")
    assert says["SCRIPT"] == ["train.py", *HOSTILE]
    assert says["ENVIRONMENT"] == {variable.name: variable.value for variable in ENV}
    start = start_command(find_target("rayjob"), placement, Job(name="big"))
    assert start.startswith("kubectl create configmap big-placement --from-file=placement.py ")
    assert start.endswith("kubectl apply -f rayjob.yaml")

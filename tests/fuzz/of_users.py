"""Readers of what users and their tools write: inventories, playbooks, settings, templates and arguments."""

import contextlib
import json
import pathlib

from tests.fuzz.reader import reader
from tests.recorded import outputs
from tests.unit.test_placement import node

from gpuops.document import Where, parse, read_text
from gpuops.errors import GpuopsError
from gpuops.inventory import Host, Inventory
from gpuops.inventory.editing import add_host_to_group
from gpuops.layout import parse_layout, parse_order
from gpuops.placement import place

ROOT = pathlib.Path(__file__).parents[2]
INVENTORY = """\
all:
  vars: {ansible_user: ops, gpuops_rack: r1, profile: hgx-h100}
  children:
    h100:
      hosts:
        gpu[01:04]: {ansible_port: 2222, ansible_become: yes}
        gpu05: {ansible_ssh_common_args: '-o ConnectTimeout=3 -J ops@jump:22', ansible_password: x}
        gpu06: {bmc_address: 192.0.2.9, bmc_user: admin, bmc_password: !vault "$ANSIBLE_VAULT;1.1", gpus: 8}
      vars:
        gpuops_fabric: {0: {leaf: L0, port: 1}, 1: L1}
        gpuops_expect: {gpu.count: 8, driver.version: "580.95.05"}
    racks: {children: {h100: }}
"""
INI = """\
# hosts
gpu0 ansible_host=192.0.2.1 ansible_ssh_private_key_file='~/.ssh/id'
[h100:children]
rack1
[rack1]
gpu[1:4] ansible_port=22 x="a b"
[rack1:vars]
ansible_user=ops
list=[1, 2, {'a': None}]
"""


def _of(*folders, suffix=".yml", most=12_000):
    """Return the shipped files of some folders, without the largest."""

    def read():
        paths = [path for folder in folders for path in sorted((ROOT / folder).rglob(f"*{suffix}"))]
        return [content for path in paths if len(content := path.read_bytes()) < most]

    return read


def _use(inventory):
    """Everything that is done with an inventory before a host is asked."""
    inventory.to_ansible_json()
    for write in (inventory.to_yaml, inventory.to_ini):
        with contextlib.suppress(GpuopsError):
            write()
    with contextlib.suppress(GpuopsError):
        inventory.select("all")


def _recorded(kind):
    return [content for path in outputs(kind) if len(content := path.read_bytes()) < 12_000]


@reader(lambda: [INVENTORY.encode(), *_recorded("inventory")], words="hosts children vars all ansible_host !vault <<")
def inventory_yaml(content, folder):
    (folder / "prod.yml").write_bytes(content)
    _use(Inventory.load(folder / "prod.yml"))


@reader(lambda: [INI.encode(), *_recorded("inventory")], words="[ ] :vars :children ansible_host= [a:z] [1:3]")
def inventory_ini(content, folder):
    (folder / "hosts").write_bytes(content)  # without a suffix, its looks decide
    _use(Inventory.load(folder / "hosts"))


@reader("ansible_port: 22\nansible_host: 192.0.2.1\ngpuops_power: {feeds: [A, B]}\nx: [1, {y: 2}]\n")
def variables_file(content, folder):
    (folder / "prod.yml").write_text("all: {hosts: {gpu01: }}")
    (folder / "host_vars").mkdir()
    (folder / "host_vars" / "gpu01.yml").write_bytes(content)
    _use(Inventory.load(folder / "prod.yml"))


@reader("gpu[01-04],ops@gpu05:2222", "localhost,", "[2001:db8::1]:22,192.0.2.1", words="gpu[1-3] @ : :: localhost [ ]")
def names_of_hosts(content, folder):
    _use(Inventory.open(content.decode("utf-8", "replace"), folder=folder))


@reader("h100:&rack1:!gpu05", "gpu[01-02,4]", "~gpu0[1-4]", "gpu0*", "h100[0]", "h100[1:3]", "all", "@limit")
def pattern(content, folder):
    inventory = Inventory.of_names(["gpu[01-08]", "b1"])
    (folder / "limit").write_bytes(content)
    for text in (content.decode("utf-8", "replace"), f"@{folder / 'limit'}"):
        with contextlib.suppress(GpuopsError):
            inventory.limit(text)


@reader(lambda: [INVENTORY.encode(), b"h100:\n  hosts:\n    a:\n    b: # last\n", b"{h100: {hosts: {a: {}}}}"])
def inventory_to_edit(content, folder):
    (folder / "prod.yml").write_bytes(content)
    add_host_to_group(read_text(folder / "prod.yml"), "prod.yml", "h100", "new01")


@reader(
    _of("playbooks", "tests/specimens"), words="hosts tasks handlers include when notify register until serial vars"
)
def playbook(content, folder):
    from gpuops.catalogue import Catalogue
    from gpuops.playbook.loading import load_playbook

    (folder / "site.yml").write_bytes(content)
    loaded = load_playbook(str(folder / "site.yml"), Catalogue().tasks(), None)
    _plan(loaded)


def _plan(loaded):
    """Everything that is read before the first node is asked: conditions, and parameters that need no variable."""
    from gpuops.playbook.parameters import read_params

    for play in loaded.plays:
        for step in play.every_step:
            with contextlib.suppress(GpuopsError):
                read_params(step.task, step.raw_params, {})
            for condition in (*step.when, *step.until):
                with contextlib.suppress(GpuopsError):
                    condition.holds({"x": 1, "facts": {}, **dict.fromkeys(condition.names, "1.2")})


@reader("gpu_driver: '580.95.05'\npackages: {a: '1.0', b: [1, 2]}\n", "a: [1, 2]\n")
def stack(content, folder):
    from gpuops.playbook.loading import load_playbook
    from gpuops.playbook.task import TaskRegistry

    (folder / "playbooks" / "stacks").mkdir(parents=True)
    (folder / "playbooks" / "stacks" / "own.yml").write_bytes(content)
    (folder / "site.yml").write_text("- {hosts: all, stack: own, tasks: []}")
    load_playbook(str(folder / "site.yml"), TaskRegistry(folder), folder)


@reader("x=1", "y=[1, {a: b}]", "@vars.yml", "z='1.10'")
def extra_variables(content, folder):
    from gpuops.playbook.parameters import extra_variables

    (folder / "vars.yml").write_bytes(content)
    for word in (content.decode("utf-8", "replace"), f"@{folder / 'vars.yml'}"):
        with contextlib.suppress(GpuopsError):
            for value in extra_variables([word]).values():
                value.plain()


@reader(
    "x == 1 and not y",
    "version(v) >= '580.95'",
    "facts.gpus[0].name in ['a', 'b']",
    "x['a'] < -1 or x == none",
    words="version( x y v facts . [0] ['a'] == < in not and or -",
)
def condition(content, _folder):
    from gpuops.playbook.condition import read_conditions

    scope = {"x": {"a": 1, "b": "t"}, "y": [1, "2", None], "v": "580.95", "facts": {"gpus": [{"name": "a"}]}}
    for one in read_conditions(parse(content.decode("utf-8", "replace"), "c")):
        with contextlib.suppress(GpuopsError):
            one.require([*scope, "facts.gpus"])
        one.holds(scope)


@reader(
    "{% for x in names %}{{ x }}\n{% endfor %}", "{{ name | upper }} {{ 3 * 4 }}", words="name names range( | join( *"
)
def task_template(content, folder):
    from gpuops.playbook.templating import fill_template

    (folder / "x.j2").write_bytes(content)
    with contextlib.suppress(ValueError):  # the task names its file and line
        fill_template(folder / "x.j2", {"name": "n", "names": ["a", "b"]})


@reader(_of("templates", suffix=".j2"), words="{{ nodes layout ranks job | for in {# #} refuse_if: order: like:")
def launch_template(content, folder):
    from gpuops.render import Job, launch_for, targets
    from gpuops.render.job import environment_of

    (folder / "templates").mkdir()
    (folder / "templates" / "own.j2").write_bytes(content)
    target = targets(folder)["own"]
    launch = launch_for(target, _placement(), Job("train.py", (), "job", 29500, environment_of(_placement(), "other")))
    launch.complaints()


@reader(_of("templates", suffix="target.yml"), words="about start note engine order rules executable like refuse_if")
def launch_target(content, folder):
    from gpuops.render import Job, launch_for, targets

    own = folder / "templates" / "own"
    own.mkdir(parents=True)
    (own / "target.yml").write_bytes(content)
    (own / "job.sh.j2").write_text("{{ nodes }}")
    launch_for(targets(folder)["own"], _placement(), Job("train.py", (), "job", 29500, ()))


def _placement():
    return place(parse_layout("dp=2,tp=8"), [node("n1"), node("n2")])


@reader('{"train_batch_size": 16, "zero_optimization": {"stage": 2}}', "n1 slots=8\nn2 slots=8\n", "A=1\nB=2\n")
def launch_file(content, _folder):
    from gpuops.render.checking import lint
    from gpuops.render.rendering import Rendered

    text = content.decode("utf-8", "replace")
    names = ("ds_config.json", "hostfile", ".deepspeed_env", "config.yaml")
    list(lint([Rendered(name, 0o600, text) for name in names], _placement()))


@reader('{"hidden_size": 4096, "num_attention_heads": 32, "model_type": "llama", "text_config": {"vocab_size": 9}}')
def model_configuration(content, folder):
    from gpuops.layout import rule_violations
    from gpuops.operations.launch import model_of

    (folder / "config.json").write_bytes(content)
    model = model_of(folder / "config.json")
    list(rule_violations(parse_layout("tp=8,pp=2"), gpus_per_domain=8, engine="megatron", model=model))


@reader("dp=4,pp=2,tp=8,zero=1", "tp=8 gas=4 sp=true ep=2", "tp-cp-ep-dp-pp", words="dp= tp= pp= cp= ep= mbs= vpp= -")
def layout(content, _folder):
    from gpuops.layout import rule_violations

    text = content.decode("utf-8", "replace")
    with contextlib.suppress(GpuopsError):
        parse_order(text)
    parsed = parse_layout(text)
    if all(each.warning or each.forceable for each in rule_violations(parsed, gpus_per_domain=8)):
        place(parsed, [node(f"n{number}") for number in range(4)])


@reader("torchrun --nnodes=2 --rdzv-endpoint=n1:29500 train.py", "NCCL_DEBUG=INFO mpirun -np 16 -H n1:8,n2:8 python t.py",
        "srun -N2 --nodelist=n[1-2] python t.py", "deepspeed --hostfile hostfile --num_nodes 2 t.py")  # fmt: skip
def launch_command(content, _folder):
    import shlex

    from gpuops.collective.preflight.launch_command import read_command

    text = content.decode("utf-8", "replace")
    with contextlib.suppress(GpuopsError):
        read_command(text.split(), lambda _: text, {})
    with contextlib.suppress(ValueError):
        read_command(shlex.split(text), lambda _: text, {})


@reader("n1 slots=8\nn2 slots=8 # second\n", "n1:8\nn2\n", words="slots= max_slots= : #")
def hostfile(content, _folder):
    from gpuops.collective.preflight.launch_command import read_command

    text = content.decode("utf-8", "replace")
    for command in (
        "mpirun --hostfile h -np 2 python t.py",
        "deepspeed --hostfile h t.py",
        "deepspeed --hostfile h -i n1:0 t.py",
    ):
        with contextlib.suppress(GpuopsError):
            read_command(command.split(), lambda _: text, {})


@reader(
    "inventory: prod.yml\nfanout: 32\nscheduler: slurm\nlease: drain\nshadow: [gpu-lost]\n"
    "max_closed: {run: 10%, day: 3}\nkeep_days: 90\n",
    words="inventory fanout fail_on store scheduler lease shadow max_closed keep_mib %",
)
def gpuops_yml(content, folder):
    from gpuops.catalogue import Catalogue
    from gpuops.project import load_project, placed

    (folder / "gpuops.yml").write_bytes(content)
    project = load_project(folder)
    project.max_closed_run.of(64)
    placed(project, folder / "prod.yml", {"HOME": str(folder)})
    Catalogue(folder).checks()


@reader("- {check: gpu-lost, hosts: 'gpu0*', part: gpu3, reason: x, author: a, expires: 2026-12-31}\n")
def waivers(content, folder):
    from gpuops.catalogue import Catalogue

    (folder / "waivers.yml").write_bytes(content)
    Catalogue(folder).waivers()


@reader(_of("checks/profiles"), words="like match gpu_name values grade source value gpus 4-8")
def profile(content, folder):
    from gpuops.catalogue import Catalogue
    from gpuops.profile import detect

    (folder / "checks" / "profiles").mkdir(parents=True)
    (folder / "checks" / "profiles" / "own.yml").write_bytes(content)
    detect("NVIDIA H100 80GB HBM3", 8, list(Catalogue(folder).profiles().values()))


@reader(
    "import pytest\n@pytest.mark.quick\ndef test_own(host):\n    'It holds.'\n    assert host\n",
    words="def class @pytest.mark. (",
)
def test_of_a_project(content, folder):
    from gpuops.judging.own_tests import own_tests

    (folder / "checks").mkdir()
    (folder / "checks" / "test_own.py").write_bytes(content)
    own_tests(folder)


@reader(lambda: [b"gpu01,[gpu02]:2222 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKQ5\n@revoked * ssh-rsa AAAA\n"
                 b"|1|c2FsdA==|aGFzaA== ssh-rsa AAAA\n@cert-authority *.x ssh-rsa AAAA\n!a,b* ssh-rsa AAAA\n"],
        words="@revoked @cert-authority |1| * ! ssh-ed25519 AAAA")  # fmt: skip
def known_hosts(content, folder):
    from gpuops.transport.known_hosts import KnownHosts, lookup_name, record

    path = folder / "known_hosts"
    path.write_bytes(content)
    known = KnownHosts((str(path),))
    for name in ("gpu01", lookup_name("gpu02", 2222), "é"):
        [key.fingerprint for key in known.keys(name)]
    record(path, "gpu01", [("ssh-ed25519", b"new")], replace=True)
    record(path, "gpu09", [("ssh-ed25519", b"new")], replace=False)


@reader("Host gpu*\n  User ops\n  Port 2222\n  ProxyJump jump\n  IdentityFile ~/.ssh/id_%h\nMatch host x\n  HostName y\n",
        words="Host Match Include exec all canonical final ProxyCommand % ! = originalhost localuser")  # fmt: skip
def ssh_config(content, folder):
    path = folder / "config"
    path.write_bytes(content)
    path.chmod(0o600)
    _resolved(Host("gpu01", "gpu01", Where("x")), path)


@reader(
    "-o ConnectTimeout=3 -J ops@jump:22 -i ~/.ssh/id",
    "-o ProxyCommand='ssh -W %h:%p jump' -p 2222",
    words="-o -J -F -i -p -l = ' \\",
)
def ssh_arguments(content, folder):
    text = json.dumps(content.decode("utf-8", "replace"))
    (folder / "prod.yml").write_text(f"all: {{hosts: {{a: {{ansible_ssh_common_args: {text}}}}}}}", "utf-8", "replace")
    for host in Inventory.load(folder / "prod.yml").hosts.values():
        _resolved(host, folder / "none")


def _resolved(host, config):
    from gpuops.transport import settings

    settings._config.cache_clear()
    settings._unsupported.cache_clear()
    return str(settings.resolve(host, config_file=str(config)))


@reader("secret\n", "x")
def bmc_password_file(content, folder):
    from gpuops.transport.bmc import _password_in

    path = folder / "password"
    path.write_bytes(content)
    path.chmod(0o600)
    _password_in(path)


@reader(
    "gpuops://gpu01,gpu[02,03]?inventory=prod.yml&sudo=true", "ssh://x,gpuops://y", words="gpuops:// ? & = , % ssh://"
)
def host_specification(content, _folder):
    from gpuops.testing.hostspec import distributed, is_ours, parsed

    text = content.decode("utf-8", "replace")
    for word in distributed(text).split(","):
        if is_ours(word):
            parsed(word)


@reader("gpu000:mlx5_3:slow=30", "leaf:L3:hang", "unit:U0/rail0:slow=5", words="leaf: unit: slow= hang gpu000: /rail")
def simulated_fault(content, _folder):
    from gpuops.isolation.cabling import Cabling, build_fabric
    from gpuops.isolation.faults import parse_fault

    parse_fault(content.decode("utf-8", "replace"), build_fabric(Cabling(4, 8, 2, 8, 1.0)))


@reader('{"nodes": {"n1": {"gpus": 8, "nics": [{"name": "mlx5_0", "rail": 0, "leaf": "L0", "gb_per_s": 50}]}}}')
def program_that_measures(content, _folder):
    from gpuops.collective.program_lines import parse_fabric, parse_figures
    from gpuops.isolation.rounds import RankGroup, Round

    with contextlib.suppress(GpuopsError):
        parse_figures(content, 1, Round("one", (RankGroup(("n1",)),)))
    parse_fabric(content)

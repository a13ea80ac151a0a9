import json
import os
import re
import stat
import subprocess
from dataclasses import replace

import pytest

from gpuops.document import parse
from gpuops.errors import ContentError, DocumentError, OutputError, TemplateError
from gpuops.layout import Layout, parse_layout
from gpuops.placement import GpuShape, NodeShape, place
from gpuops.render import (
    Env,
    Job,
    Rendered,
    abridged,
    environment_of,
    find_target,
    render,
    start_command,
    targets,
    write,
)


def node(name, gpus=4, nic="mlx5_{}"):
    shapes = tuple(GpuShape(i, f"GPU-{i}", f"0000:{i:02x}:00.0", i // 2, nic and nic.format(i), 0) for i in range(gpus))
    pairs = {(a, b): "NV18" for a in range(gpus) for b in range(gpus) if a != b}
    return NodeShape(name, f"addr-{name}", shapes, ("L0",), "r1", name, pairs)


def placed(words="dp=2,pp=2,tp=2", *names):
    return place(parse_layout(words), [node(name) for name in names or ("n1", "n2")])


@pytest.fixture
def project(tmp_path):
    (tmp_path / "templates").mkdir()
    return tmp_path


def one_file(project, text, name="mine.sh.j2"):
    (project / "templates" / name).write_text(text)
    return find_target(name.split(".")[0], project)


def folder(project, about, **files):
    place_ = project / "templates" / "mine"
    place_.mkdir(exist_ok=True)
    (place_ / "target.yml").write_text(about)
    for name, text in files.items():
        (place_ / name.replace("__", ".")).write_text(text)
    return find_target("mine", project)


def test_a_target_is_one_new_file_in_a_project(project):
    target = one_file(
        project, "{# about: My own launcher. #}\n{% for n in nodes %}{{ n.name }} {{ n.slots }}\n{% endfor %}"
    )
    assert (target.about, target.origin) == ("My own launcher.", "project")
    assert render(target, placed(), Job()) == [Rendered("mine.sh", 0o644, "n1 4\nn2 4\n")]


def test_a_folder_writes_a_file_for_each_template_and_each_node(project):
    target = folder(
        project,
        "about: Two files.\nexecutable: ['run-{node}.sh']\nstart: bash run-{{ nodes[0].name }}.sh\n",
        **{
            "run-{node}__sh__j2": "{{ node.index }} {{ node.cuda_visible_devices }}\n",
            "dot_env__j2": "A={{ job.world }}\n",
        },
    )
    made = {r.path: (r.mode, r.text) for r in render(target, placed(), Job())}
    assert made == {
        ".env": (0o644, "A=8\n"),
        "run-n1.sh": (0o755, "0 0,1,2,3\n"),
        "run-n2.sh": (0o755, "1 0,1,2,3\n"),
    }
    assert start_command(target, placed(), Job()) == "bash run-n1.sh"


def test_the_projects_target_hides_the_built_in_one(project):
    (project / "templates" / "torchrun.sh.j2").write_text("mine")
    assert targets(project)["torchrun"].origin == "project"


def test_templates_of_the_current_folder_do_not_count(project, monkeypatch):
    (project / "templates" / "torchrun.sh.j2").write_text("mine")
    monkeypatch.chdir(project)
    assert targets()["torchrun"].origin == "built-in"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{{ nosuch }}", r"mine\.sh\.j2:1: 'nosuch' is undefined"),
        ("a\n{{ job.nosuch }}", r"mine\.sh\.j2:2: .*nosuch"),
        ("a\n\n{% for %}", r"mine\.sh\.j2:3: "),
        ("{{ ''.__class__.__mro__ }}", r"mine\.sh\.j2:1: .*unsafe"),
        ("{{ cycler.__init__.__globals__ }}", r"mine\.sh\.j2:1: .*unsafe"),
        ("{{ job.args.append('x') }}", r"mine\.sh\.j2:1: .*(unsafe|not safely callable)"),
        ("{{ refuse('no such machine') }}", r"mine: no such machine"),
        ("{% include '/etc/passwd' %}", r"mine\.sh\.j2:1: "),
    ],
)
def test_a_wrong_template_is_told_with_its_line(project, text, complaint):
    with pytest.raises(TemplateError, match=complaint):
        render(one_file(project, text), placed(), Job())


def test_text_that_looks_like_a_template_is_only_text(project):
    target = one_file(project, "{{ job.script }}|{{ job.args | words }}|{{ job.args[0] | json }}")
    made = render(target, placed(), Job("{{ 7*7 }}", ("{% x %}", "a b", "$(id)")))
    assert made[0].text == "{{ 7*7 }}|'{% x %}' 'a b' '$(id)'|\"{% x %}\""


def test_filters_quote_for_where_the_word_goes(project):
    target = one_file(
        project, "{{ 'a\\'b' | sh }} {{ ['x', 'y z'] | words }} {{ 'k: v' | yaml }} {{ ['n1', 'n2'] | fold }}"
    )
    assert render(target, placed(), Job())[0].text == """'a'"'"'b' x 'y z' "k: v" n[1-2]"""


def test_any_character_survives_in_yaml_and_json(project):
    word = "a\u2028b\x85c\U0001f600é\n"
    target = one_file(project, "{{ job.args[0] | yaml }}\n{{ job.args[0] | json }}\n")
    text = render(target, placed(), Job(args=(word,)))[0].text
    first, _, second = text.partition("\n")
    assert parse(first, "x").text() == word
    assert json.loads(second) == word


@pytest.mark.parametrize("wrong", [{"name": "a\nb"}, {"script": "x\x1b.py"}])
def test_a_name_of_several_lines_is_refused(wrong):
    with pytest.raises(TemplateError, match="one line of printable text"):
        Job(**wrong)


@pytest.mark.parametrize("name", ["", "1A", "A B", "A=1", "A;id", "$(id)", "-n", "É", "A\n"])
def test_a_variable_is_refused_if_a_shell_would_not_take_its_name(name):
    with pytest.raises(TemplateError, match="must have a name such as NCCL_DEBUG"):
        Env(name, "1", "asked for")


@pytest.mark.parametrize("value", ["$(id)", "`id`", "; id", "a b", "'", '"', "\\", "a\nb", "é"])
def test_the_value_of_a_variable_reaches_its_program_unchanged(value, tmp_path):
    files = render(find_target("env"), placed(), Job(env=(Env("GPUOPS_TEST", value, "asked for"),)))
    write(files, tmp_path)
    line = '. ./env.sh && printf %s "$GPUOPS_TEST"'
    done = subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout.decode() == value


def test_nodes_that_share_an_address_go_by_their_names(project):
    target = one_file(project, "{% for n in nodes %}{{ n.address }} {% endfor %}{{ job.master }}")
    assert render(target, placed(), Job())[0].text == "addr-n1 addr-n2 addr-n1"
    alike = [replace(node(name), address="127.0.0.1") for name in ("n1", "n2")]
    assert render(target, place(Layout(dp=8), alike), Job())[0].text == "n1 n2 127.0.0.1"


def test_a_rule_refuses_with_its_reason(project):
    about = "rules:\n  - {refuse_if: layout.pp > 1, because: 'no pipelines, and pp is {{ layout.pp }}'}\n"
    target = folder(project, about, a__j2="x")
    with pytest.raises(TemplateError, match=r"mine cannot launch dp=2,pp=2,tp=2: no pipelines, and pp is 2"):
        render(target, placed(), Job())
    assert render(target, placed("dp=4,tp=2"), Job())


@pytest.mark.parametrize("condition", ["layout.ppp > 1", "layout.pp >", "layout.pp > 'x'"])
def test_a_rule_that_cannot_be_decided_is_named(project, condition):
    target = folder(project, f'rules:\n  - {{refuse_if: "{condition}", because: none}}\n', a__j2="x")
    with pytest.raises(TemplateError, match=re.escape(condition)):
        render(target, placed(), Job())


def test_a_system_with_another_rank_order_is_refused_where_that_matters(project):
    target = folder(project, "order: tp-pp-dp\n", a__j2="x")
    with pytest.raises(TemplateError, match=r"--order tp-"):
        render(target, placed(), Job())
    assert render(target, placed("dp=4,tp=2"), Job())
    assert render(target, place(parse_layout("dp=2,pp=2,tp=2", "tp-pp-dp"), [node("n1"), node("n2")]), Job())


def test_what_several_targets_say_alike_stands_in_one_file_and_their_own_goes_with_it(project):
    (project / "templates" / "_ours.yml").write_text(
        "rules: [{refuse_if: layout.cp > 1, because: no cp}]\nnote: shared\n"
    )
    about = "rules: [{refuse_if: layout.pp > 1, because: no pp}]\nlike: _ours.yml\n"
    target = folder(project, about, a__j2="x")
    assert ([rule.because for rule in target.rules], target.note) == (["no cp", "no pp"], "shared")
    assert folder(project, about + "note: own\n", a__j2="x").note == "own"
    assert folder(project, "like: _pods.yml\n", a__j2="x").rules == find_target("jobset").rules
    assert "_ours" not in targets(project)


@pytest.mark.parametrize("like", ["_nosuch.yml", "../rules.yml", "[a]"])
def test_only_a_file_in_templates_can_be_shared(project, like):
    (project / "rules.yml").write_text("note: of somebody else\n")
    with pytest.raises(DocumentError, match=r"target\.yml:1:7: .*(_pods\.yml|found)"):
        folder(project, f"like: {like}\n", a__j2="x")


@pytest.mark.parametrize("about", ["abuot: x\n", "engine: horovod\n", "order: tp-xx\n", "rules: [{refuse: 1}]\n"])
def test_a_wrong_description_is_told_with_its_place(project, about):
    with pytest.raises((DocumentError, ContentError, Exception), match=r"target\.yml:1|--order"):
        folder(project, about, a__j2="x")


def test_what_only_a_job_tells_is_left_out_where_a_target_is_described():
    assert abridged('{{ a | join(" or ") }} and {{ b\n}}, not {c}') == "… and …, not {c}"


def test_an_unknown_target_is_named_with_the_nearest():
    with pytest.raises(ContentError, match=r'"torchrn"; did you mean "torchrun"\?'):
        find_target("torchrn")


def test_files_have_their_mode_whatever_the_umask(tmp_path):
    old = os.umask(0o077)
    try:
        write([Rendered("run.sh", 0o755, "#!/bin/sh\n"), Rendered("sub/hosts", 0o644, "n1\n")], tmp_path)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "sub" / "hosts").stat().st_mode) == 0o644


def test_a_standing_file_is_kept_unless_forced_and_then_nothing_is_written(tmp_path):
    (tmp_path / "b").write_text("old")
    files = [Rendered("a", 0o644, "new"), Rendered("b", 0o644, "new")]
    with pytest.raises(OutputError, match=r"b: already exists; pass --overwrite"):
        write(files, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b"]
    write(files, tmp_path, force=True)
    assert (tmp_path / "b").read_text() == "new"


@pytest.mark.parametrize("path", ["../out", "..", "/etc/gpuops-test", "a/../../out", "link/x"])
def test_nothing_leaves_the_folder(tmp_path, path):
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path)
    with pytest.raises(OutputError, match="must be inside"):
        write([Rendered(path, 0o644, "x")], inside)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]


@pytest.mark.parametrize("victim", ["victim", "in/victim"])
def test_a_link_at_the_target_is_not_followed(tmp_path, victim):
    (tmp_path / "in").mkdir()
    (tmp_path / victim).write_text("old")
    (tmp_path / "in" / "a").symlink_to(tmp_path / victim)
    with pytest.raises(OutputError, match="in/a: a symbolic link, which gpuops does not follow; delete it"):
        write([Rendered("a", 0o644, "x")], tmp_path / "in", force=True)
    assert (tmp_path / victim).read_text() == "old"


def test_each_variable_has_a_reason():
    variables = environment_of(placed(), "megatron")
    assert [v.name for v in variables] == ["CUDA_DEVICE_ORDER", "NCCL_IB_HCA", "CUDA_DEVICE_MAX_CONNECTIONS"]
    assert all(v.reason for v in variables)
    assert Env("NCCL_IB_HCA", "=mlx5_0,mlx5_1,mlx5_2,mlx5_3", variables[1].reason) == variables[1]


def test_what_nccl_finds_out_by_itself_is_left_to_it():
    alone = place(Layout(dp=4), [node("n1")])
    assert [v.name for v in environment_of(alone, "ddp")] == ["CUDA_DEVICE_ORDER"]
    without_nics = place(Layout(dp=8), [node("n1", nic=None), node("n2", nic=None)])
    assert [v.name for v in environment_of(without_nics, "ddp")] == ["CUDA_DEVICE_ORDER"]

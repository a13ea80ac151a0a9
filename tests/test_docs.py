"""The docs tell what is: verbs, checks, profiles, probes and formats are named, and what is printed can be typed."""

import ast
import importlib.util
import pathlib
import re
import shlex
from datetime import datetime, timezone

import click
import pytest
import yaml

from gpuops import errors
from gpuops.cli import program
from gpuops.content import listing
from gpuops.facts import read
from gpuops.judging import discover, judge
from gpuops.playbook.loading import load_playbook
from gpuops.playbook.parameters import as_params
from gpuops.playbook.planning import plan
from gpuops.playbook.task import Machine, TaskRegistry
from gpuops.probes import every_probe
from gpuops.profile import NO_PROFILE, known, load
from gpuops.reasons import EXIT_MEANINGS
from gpuops.report import format_names
from gpuops.shell import Completed

ROOT = pathlib.Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
TOLD = [*PAGES, ROOT / "Vagrantfile", *ROOT.glob("inventory/*.yml"), *ROOT.glob("checks/profiles/*.yml")]


def by_name(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.name)


def page(name):
    return (ROOT / name).read_text("utf-8")


def generator():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verbs(command, path="gpuops"):
    yield path
    for name in command.list_commands(None) if isinstance(command, click.Group) else ():
        yield from verbs(command.get_command(None, name), f"{path} {name}")


@by_name(sorted(ROOT.glob("docs/*.md")))
def test_a_page_says_what_the_code_says(path):
    text = path.read_text("utf-8")
    assert text == generator().current(text), f"{path.name} is behind the code: make docs"


def test_the_generator_replaces_what_is_old_and_keeps_the_rest():
    text = generator().current("mine\n<!-- from the code: checks -->\nold\n<!-- end -->\nmine too\n")
    assert text.startswith("mine\n<!-- from the code: checks -->\n")
    assert text.endswith("<!-- end -->\nmine too\n")
    assert "old" not in text.splitlines()
    assert "### gpu-lost" in text


def test_every_verb_is_documented():
    headings = re.findall(r"^## (gpuops.*)$", page("docs/cli.md"), re.MULTILINE)
    assert headings == list(verbs(program))


def test_every_check_and_profile_is_documented():
    headings = re.findall(r"^### (.*)$", page("docs/checks.md"), re.MULTILINE)
    assert set(headings) == {*discover(ROOT), *(profile.name for profile in known(ROOT))}


def test_every_number_of_a_profile_is_documented_with_its_source():
    lines = page("docs/checks.md").splitlines()
    for profile in known(ROOT):
        for key, expected in profile.values.items():
            assert f"| `{key}` | {expected.value} | {expected.grade} | {expected.source} |" in lines


def test_every_probe_is_documented():
    headings = re.findall(r"^### (.*)$", page("docs/probes.md"), re.MULTILINE)
    assert headings == sorted(every_probe())


def test_every_task_and_playbook_is_documented():
    tasks = re.findall(r"^### (.*)$", page("docs/tasks.md"), re.MULTILINE)
    assert tasks == TaskRegistry(ROOT).names
    playbooks = re.findall(r"^### (.*)$", page("docs/playbooks.md"), re.MULTILINE)
    assert playbooks == list(listing("playbooks", ".yml", ROOT))


@pytest.mark.parametrize("name", format_names())
def test_every_report_format_is_in_the_readme(name):
    assert f"`{name}`" in page("README.md")


def exit_codes(error):
    return {error.exit_code}.union(*map(exit_codes, error.__subclasses__()))


def test_every_exit_code_is_in_the_readme():
    told = {int(code): text for code, text in re.findall(r"^\| (\d+) \| (.*) \|$", page("README.md"), re.MULTILINE)}
    assert set(told) == {0, 1, 70, *exit_codes(errors.GpuopsError)}
    assert told == EXIT_MEANINGS


def test_every_module_that_is_named_exists_with_what_it_defines():
    for file, name in re.findall(r"`([\w/]+\.py): ([\w.]+)`", page("docs/how-a-fault-is-found.md")):
        code = page(f"src/gpuops/{file}")
        assert re.search(rf"(def|class) {name.split('.')[-1]}\b", code), f"{file} has no {name}"


def test_every_verb_that_needs_an_inventory_is_named():
    (named,) = re.findall(r"commands that only look use this machine;(.*?)end with", page("docs/cli.md"), re.DOTALL)
    folder = ROOT / "src" / "gpuops" / "cli"
    verbs = [
        path for path in folder.rglob("*.py") if path.parent.name != "_common" and "chosen(cluster" in path.read_text()
    ]
    for path in verbs:
        assert f"`{' '.join(path.relative_to(folder).with_suffix('').parts)}`" in named


def test_no_default_is_an_internal_name():
    assert "Sentinel" not in page("docs/cli.md")


def functions(path):
    """The tests in a file as pytest names them: ``test_x``, ``TestClass::test_x``."""
    for node in ast.parse(path.read_text("utf-8")).body:
        inner = [each.name for each in getattr(node, "body", []) if isinstance(each, ast.FunctionDef)]
        yield from [node.name] if isinstance(node, ast.FunctionDef) else []
        yield from [f"{node.name}::{name}" for name in inner] if isinstance(node, ast.ClassDef) else []


PROMISES = [promise for group in yaml.safe_load(generator().PROMISES.read_text("utf-8")).values() for promise in group]


def test_there_are_45_promises_and_few_have_a_part_that_is_not_tried():
    assert len(PROMISES) == 45
    assert sum("untried" in promise for promise in PROMISES) <= 3


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise["promise"][:60])
def test_every_promise_has_guards_and_tests_that_exist(promise):
    assert promise["guards"]
    for guard in promise["guards"]:
        text = page(guard["file"])
        assert text.count(guard["remove"]) == 1, guard["what"]
        assert text != text.replace(guard["remove"], guard.get("put", "")), guard["what"]
    for test in (*(guard["test"] for guard in promise["guards"]), *promise.get("more", ())):
        file, _, name = test.partition("::")
        assert name in functions(ROOT / file), test


def commands(text):
    """What is shown as typed: in code blocks, in comments, in backticks."""
    blocks = "".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    lines = re.findall(r"^(?:[$] )?(gpuops [a-z-].*)", blocks, re.MULTILINE)
    lines += re.findall(r"^# +(gpuops [a-z-].*)", text, re.MULTILINE)
    lines += [" ".join(found.split()) for found in re.findall(r"`(gpuops [a-z-][^`]*)`", text)]
    for line in lines:
        yield shlex.split(re.split(r" # |   |[|>…]", line)[0])[1:]


@by_name(PAGES)
def test_code_block_has_one_command_in_a_line(path):
    for block in re.findall(r"^```\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            assert not re.search(r"#.* gpuops [a-z-]+ ", line), f"{path.name}: two commands in a line: {line}"


@by_name(TOLD)
def test_what_is_printed_can_be_typed(path):
    for words in commands(path.read_text("utf-8")):
        command, rest = program, words
        while rest and isinstance(command, click.Group) and rest[0][0] != "-" and rest[0].islower():
            found = command.get_command(None, rest[0])
            assert found is not None, f"{path.name}: gpuops {' '.join(words)}: there is no such verb"
            command, rest = found, rest[1:]
        command.make_parser(click.Context(command)).parse_args(list(rest))


CODE = [
    path
    for folder, suffix in (
        ("src", "py"),
        ("checks", "py"),
        ("playbooks", "py"),
        ("playbooks", "yml"),
        ("templates", "*"),
    )
    for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))
    if "content" not in path.parts and "__pycache__" not in path.parts and path.is_file()
]
_HINT = re.compile(
    r"""(?:^|[:;] |then )gpuops ([a-z][a-z-]*(?: [a-z][a-z-]*)?|[a-z-]+(?: [^ .;]+)* --?[a-z].*)$""", re.MULTILINE
)
_QUOTED = re.compile(r"""(?:`+|")(gpuops [a-z][^`"]*)(?:`|")""")


def literals(path):
    """Every text in a file: the string literals of Python, with X for what is computed, and else the lines."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        yield from (line.lstrip("# ") for line in text.splitlines())
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def hints(texts):
    """The words of each command that a text names: in quotation marks, or at its end."""
    for text in texts:
        lines = [" ".join(found.split()) for found in _QUOTED.findall(text)]
        lines += [f"gpuops {found}" for found in _HINT.findall(text)]
        yield from (line.split()[1:] for line in lines)


def proposals(path):
    """The words of each call of `propose`, with X for what is computed."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "propose":
            yield [str(arg.value) if isinstance(arg, ast.Constant) else "X" for arg in node.args]


def check_command(words, where):
    """A verb, its subcommand and its options exist."""
    command, rest = program, list(words)
    while rest and isinstance(command, click.Group) and rest[0][0] != "-" and rest[0].islower():
        found = command.get_command(None, rest[0])
        if found is None and getattr(command, "invoke_without_command", False):
            break
        assert found is not None, f"{where}: gpuops {' '.join(words)}: there is no such verb"
        command, rest = found, rest[1:]
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"--help", "-h", "--"}
    options = {word.partition("=")[0].rstrip(".,;:)") for word in rest if re.match(r"--?[a-z]", word)}
    before_dashes = options if "--" not in rest else {word for word in options if rest.index(word) < rest.index("--")}
    assert before_dashes <= known, f"{where}: gpuops {' '.join(words)}: no option {before_dashes - known}"


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_message_names_a_command_that_does_not_exist(path):
    for words in hints(literals(path)):
        check_command(words, path.relative_to(ROOT))
    for words in proposals(path) if path.suffix == ".py" else ():
        check_command(words, path.relative_to(ROOT))


@pytest.mark.parametrize(
    "text",
    ["no such task; gpuops tasks list", "`gpuops profile list`", "try: gpuops checks lost", "`gpuops ping --nope`"],
)
def test_a_hint_that_is_wrong_is_found(text):
    (words,) = hints([text])
    with pytest.raises(AssertionError, match="gpuops"):
        check_command(words, "a test")


def test_prose_is_not_a_hint():
    assert (
        list(hints(["an option; gpuops knows only this one", "what gpuops reads", "gpuops keeps the file there."]))
        == []
    )


def test_commands_are_found_in_text():
    block = "```\n$ gpuops ping -i a | head\ngpuops 0.1.0   prod.yml\n```\n"
    text = f"`gpuops lab\nup`, gpuops\n{block}#   gpuops facts   # all\n"
    assert list(commands(text)) == [["ping", "-i", "a"], ["facts"], ["lab", "up"]]


@by_name(PAGES)
def test_make_targets_that_are_named_exist(path):
    targets = set(re.findall(r"^(\w+):", page("Makefile"), re.MULTILINE))
    assert set(re.findall(r"`make (\w+)`|^make (\w+)", path.read_text("utf-8"), re.MULTILINE)) <= {
        pair for target in targets for pair in ((target, ""), ("", target))
    }


@by_name(PAGES)
def test_links_lead_somewhere(path):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", path.read_text("utf-8")):
        file = (path.parent / target) if target else path
        assert file.exists(), f"{path.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text("utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{path.name} links to {target}#{anchor}"


@by_name([*TOLD, ROOT / "Makefile", ROOT / ".ci" / "run"])
def test_no_path_of_this_machine_is_reported(path):
    text = path.read_text("utf-8")
    assert f"{ROOT}/" not in text
    assert not re.search(r"(?<![\w.])/(root|work|home/\w+)/", text)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "checks" / "profiles").mkdir(parents=True)
    texts = re.findall(r"`(checks/\w+\.py)`.*?```python\n(.*?)```", page("docs/extending.md"), re.DOTALL)
    for name, text in texts:
        (tmp_path / name).write_text(text, "utf-8")
    (profile,) = re.findall(r"```yaml\n(.*?)```", page("docs/extending.md"), re.DOTALL)
    (tmp_path / "checks" / "profiles" / "pcie-l40s-4x.yml").write_text(profile, "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "path", "content", "status"),
    [
        ("memlock", "/proc/self/limits", "Limit Soft\nMax locked memory  65536  65536  bytes", "fail"),
        ("memlock", "/proc/self/limits", "Limit Soft\nMax locked memory  unlimited  unlimited  bytes", "pass"),
        ("memlock", "/proc/self/limits", "Limit Soft\nMax open files  1024  1024  files", "unknown"),
        ("huge-pages", "/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n", "warn"),
        ("huge-pages", "/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n", "pass"),
        ("huge-pages", "/sys/kernel/mm/transparent_hugepage/enabled", "always [madv", "unknown"),
    ],
)
def test_the_examples_of_checks_and_probes_work_as_one_new_file(project, name, path, content, status):
    check = discover(project)[name]
    answers = [Completed("gpu01", probe.question, 0, f"{path}\0{content}\0") for probe in check.needs]
    facts = read("gpu01", datetime.now(timezone.utc), answers, check.needs)
    assert judge(check, facts, NO_PROFILE).status == status


def test_the_example_of_a_profile_works_as_one_new_file(project):
    profile = load("pcie-l40s-4x", project)
    assert profile["gpu.count"] == 4
    assert profile.match.fits("NVIDIA L40S", 4)
    assert profile.required <= set(discover(project))


@pytest.fixture
def own_tasks(tmp_path):
    """A project with the tasks and the playbook that the pages show."""
    folder = tmp_path / "playbooks" / "tasks"
    folder.mkdir(parents=True)
    for path in (tmp_path, folder.parent, folder):
        path.chmod(0o755)
    for name, text in re.findall(
        r"`(playbooks/tasks/\w+\.py)`.*?```python\n(.*?)```", page("docs/tasks.md"), re.DOTALL
    ):
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("swaps", "fstab", "expected"),
    [
        ("Filename\n", "/dev/sda1 / ext4 rw 0 1\n", []),
        ("Filename\n/swap.img\n", "/dev/sda1 / ext4 rw 0 1\n", ["swap off"]),
        ("Filename\n", "/dev/sda1 / ext4 rw 0 1\n/swap.img none swap sw 0 0\n", ["replace /etc/fstab"]),
    ],
)
def test_the_example_of_a_task_works_as_one_new_file(own_tasks, swaps, fstab, expected):
    def answer(questions):
        return [Completed("n1", q, 0, "644:root:root:0:0:regular file\n" + fstab if hasattr(q, "words") else
                          f"/proc/swaps\0{swaps}\0/etc/fstab\0{fstab}\0") for q in questions]  # fmt: skip

    library = TaskRegistry(own_tasks)
    found = plan(library["swap"], as_params(library["swap"], {}), Machine("n1"), answer, library)
    assert [change.what for change in found.changes] == expected


def test_the_example_of_a_playbook_can_be_loaded(own_tasks):
    (text,) = re.findall(r"```yaml\n(.*?)```", page("docs/playbooks.md"), re.DOTALL)
    (own_tasks / "p.yml").write_text(text, "utf-8")
    (own_tasks / "more.yml").write_text("- swap:\n", "utf-8")
    (own_tasks / "tuning").write_text("- {hosts: all, tasks: []}\n", "utf-8")
    first, second = load_playbook(str(own_tasks / "p.yml"), TaskRegistry(own_tasks), own_tasks).plays
    assert next(iter(first.every_step)).name == "NCCL, pinned"
    assert second.hosts == "all"

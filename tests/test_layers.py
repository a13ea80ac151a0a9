"""The floors of docs/design.md: imports go down, never sideways between packages, never in a circle."""

import ast
import pathlib
import re
import sys

import pytest

import gpuops

ROOT = pathlib.Path(__file__).parents[1]
SOURCE = ROOT / "src" / "gpuops"
FLOORS = {
    **dict.fromkeys(("cancellation", "errors", "interpreter", "version"), 0),
    "files": 1,
    **dict.fromkeys(
        (
            "shell",
            "document",
            "sandbox",
            "secret",
            "content",
            "events",
            "reasons",
            "proposal",
        ),
        2,
    ),
    **dict.fromkeys(("inventory", "probing", "project"), 3),
    "transport": 4,
    **dict.fromkeys(("fleet", "probes"), 5),
    **dict.fromkeys(("facts", "profile"), 6),
    **dict.fromkeys(("nodes", "layout", "bandwidth"), 7),
    **dict.fromkeys(("judging", "placement", "isolation"), 8),
    **dict.fromkeys(
        ("playbook", "collective", "render", "store", "assessment", "learning", "connectivity", "trends", "planner"), 9
    ),
    **dict.fromkeys(("launching", "lifecycle", "lab", "catalogue"), 10),
    **dict.fromkeys(("results", "workspace"), 11),
    **dict.fromkeys(("requests", "bundle"), 12),
    **dict.fromkeys(("operations", "report"), 13),
    "calls": 14,
    "cluster": 15,
    **dict.fromkeys(("cli", "fabfile", "testing"), 16),
    "__main__": 17,
}
ONLY_IN = {
    "fabric": ("transport", "lab", "fabfile"),
    "paramiko": ("transport", "lab", "fabfile"),
    "asyncssh": ("transport", "lab", "fabfile"),
    "subprocess": ("transport", "lab", "fabfile"),
    **dict.fromkeys(("redfish", "requests", "urllib3"), ("transport",)),
    "click": ("cli",),
    "jinja2": ("sandbox", "render", "playbook", "report"),
    "yaml": ("document",),
    "numpy": ("planner",),
    "pytest": ("testing",),
    "testinfra": ("testing",),
}
BROAD_EXCEPTS = {"fleet.py", "probing.py", "events.py", "cli/_common/ending.py"}
"""Where code that may raise anything is called: work on a node, parsers and checks, a listener, the program itself."""
FILES = sorted(
    p for p in SOURCE.rglob("*.py") if "node" not in p.relative_to(SOURCE).parts[:1] and "content" not in p.parts
)


def room(path):
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported(path):
    """Every absolute module name that ``path`` imports, anywhere in it; names imported from gpuops count as modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            if node.module != "gpuops":
                yield node.module
            for alias in node.names if node.module == "gpuops" else ():
                is_module = (SOURCE / f"{alias.name}.py").exists() or (SOURCE / alias.name).is_dir()
                assert is_module, f"{path}:{node.lineno}: name the module that {alias.name} is from"
                yield f"gpuops.{alias.name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_down(path):
    here = room(path)
    if here == "__init__":
        return
    for module in imported(path):
        parts = module.split(".")
        if parts[0] == "gpuops" and len(parts) > 1 and parts[1] != here:
            assert FLOORS[parts[1]] < FLOORS[here], f"{path.relative_to(ROOT)} imports {module}, which is not below it"
        assert here in ONLY_IN.get(parts[0], (here,)), f"{path.relative_to(ROOT)} must not import {parts[0]}"


PACKAGE_OF = {"ClusterShell": "clustershell", "invoke": "fabric", "testinfra": "pytest-testinfra", "yaml": "pyyaml"}
"""The package that brings a module of another name; invoke is the lower half of fabric's own interface."""


def imported_at_run_time(path):
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


def test_every_library_is_a_declared_dependency():
    """Not one that another dependency happens to bring: `pip install gpuops` brings no extras."""
    text = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")
    needed, optional = (set(re.findall(r'"([a-z][a-z0-9-]*)>=', part)) for part in (text[0], text[2]))
    for path in FILES:
        modules = set(imported_at_run_time(path)) - sys.stdlib_module_names - {"gpuops", "sitecustomize"}
        declared = needed | (optional if room(path) in ("lab", "testing", "transport") else set())
        assert {PACKAGE_OF.get(module, module) for module in modules} <= declared, path


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_only_the_command_line_prints_and_exits(path):
    if room(path) in ("cli", "__main__"):
        return
    calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
    names = {getattr(c.func, "id", "") for c in calls} | {ast.unparse(c.func) for c in calls}
    assert not names & {"print", "sys.exit", "exit", "os._exit"}, path


def test_broad_excepts_stand_in_four_places_only():
    found = [
        str(path.relative_to(SOURCE))
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
    ]
    assert sorted(found) == sorted(BROAD_EXCEPTS)


@pytest.mark.parametrize("path", [p for p in FILES if room(p) == "cli"], ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_verb_is_thin(path):
    """Options in, one operation, a rendering out: 90 lines are enough. Verbs share options, terminal and questions."""
    if path.parent.name == "_common" and path.stem in ("options", "terminal", "asking", "ending", "live"):
        return
    assert path.parent.name != "_common" or path.name == "__init__.py", f"{path}: verbs share no more than five modules"
    assert len(path.read_text().splitlines()) <= 90, path


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_module_keeps_connections(path):
    """Connections belong to a cluster: a module has no mutable value that could hold them."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and room(path) in (
            "transport",
            "nodes",
            "fleet",
            "collective",
        ):
            value = node.value
            empty = isinstance(value, (ast.Dict, ast.List, ast.Set)) and not (
                getattr(value, "elts", None) or getattr(value, "keys", None)
            )
            made = isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] in (
                "dict",
                "list",
                "set",
                "WeakSet",
                "WeakValueDictionary",
                "deque",
                "defaultdict",
            )
            assert not empty, f"{path}:{node.lineno}"
            assert not made, f"{path}:{node.lineno}"


_SENTENCES = ("why", "reason", "message", "sentence", "what")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_is_decided_by_the_wording_of_a_sentence(path):
    for node in ast.walk(ast.parse(path.read_text())):
        texts = []
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("startswith", "endswith"):
            texts = [node.func.value]
        if isinstance(node, ast.Compare) and any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            texts = node.comparators
        names = {getattr(text, "attr", getattr(text, "id", "")) for text in texts}
        assert not names & set(_SENTENCES), f"{path}:{node.lineno}"


def test_every_module_has_a_floor():
    rooms = {room(p) for p in FILES} - {"__init__"}
    assert rooms <= set(FLOORS), rooms - set(FLOORS)


def test_no_circles_inside_a_package():
    graph = {}
    for path in FILES:
        name = "gpuops." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        graph[name.removesuffix(".__init__")] = set(imported(path))
    for start, direct in graph.items():
        seen, edge = set(), set(direct)
        while edge:
            module = edge.pop()
            assert module != start, f"{start} imports itself in a circle"
            if module not in seen:
                seen.add(module)
                edge |= graph.get(module, set())


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "checks").glob("*.py")) + sorted((ROOT / "playbooks" / "tasks").glob("*.py")),
    ids=lambda p: p.name,
)
def test_content_uses_public_names_only(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "gpuops":
            if node.module == "gpuops":
                assert {alias.name for alias in node.names} <= set(gpuops.__all__), path
            else:
                of_judging = ("gpuops.judging.alike", "gpuops.judging.majority")
                public = ("gpuops.probes", "gpuops.isolation", "gpuops.trends", *of_judging)
                assert node.module.startswith(public), f"{path}: {node.module} is not public"


def test_host_keys_are_never_waved_through():
    for folder in ("src", "checks", "playbooks", "templates"):
        for path in (ROOT / folder).rglob("*.*"):
            if path.is_file() and "__pycache__" not in path.parts:
                text = path.read_text(errors="replace")
                assert "AutoAdd" not in text, path
                assert "WarningPolicy" not in text, path
                assert "StrictHostKeyChecking=no" not in text, path

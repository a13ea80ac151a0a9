from dataclasses import dataclass

import pytest

from gpuops.document import parse
from gpuops.errors import DocumentError
from gpuops.playbook.condition import Version, read_conditions
from gpuops.probing import Unknown


@dataclass(frozen=True)
class System:
    kernel: str = "5.15.0-122-generic"
    virtual: bool = False
    nodes: tuple[int, ...] = (0, 1)


SCOPE = {
    "facts": {"system": System(), "driver": Unknown("modinfo is not installed")},
    "nccl": {"version": "2.28.9", "hold": True},
    "count": 8,
    "rack": "r1",
    "probe": {"status": "ok", "changed": False, "value": {"out": "yes", "exit": 0}},
}


def condition(text):
    (found,) = read_conditions(parse(f'"{text}"', "p.yml"))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("count == 8", True),
        ("count != 8", False),
        ("1 < count <= 8", True),
        ("count == -8", False),
        ("not facts.system.virtual and count > 7", True),
        ("facts.system.virtual or rack == 'r1'", True),
        ("rack in ['r1', 'r2']", True),
        ("rack not in ('r1',)", False),
        ("'5.15' in facts.system.kernel", True),
        ("facts.system.nodes[1] == 1", True),
        ("facts.system.nodes[-1] == 1", True),
        ("version(facts.system.kernel) < '5.16'", True),
        ("version(nccl.version) >= version('2.28.10')", False),
        ("version(nccl.version) == '2.28.9'", True),
        ("nccl.hold", True),
        ("nccl['version'] == '2.28.9'", True),
        ("probe.value.exit == 0 and not probe.changed", True),
        ("true and not false", True),
        ("nccl.version == none", False),
    ],
)
def test_what_holds(text, expected):
    assert condition(text).holds(SCOPE) is expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cuont == 8", 'unknown name "cuont"'),
        ("nccl.verison == 'x'", 'nccl has no "verison"'),
        ("nccl['x'] == 'x'", "nccl has no ['x']"),
        ("facts.system.nodes[9] == 1", "facts.system.nodes has no [9]"),
        ("facts.driver.loaded_version == 'x'", "modinfo is not installed"),
        ("count == '8'", "cannot compare text with a number: 8 and '8'"),
        ("rack < 3", "cannot compare text with a number"),
        ("version(count) > '1'", "8 is not a version"),
        ("facts.system.__class__", 'facts.system has no "__class__"'),
        ("count in 8", "not iterable"),
    ],
)
def test_what_nobody_can_tell_is_an_error_and_never_false(text, said):
    with pytest.raises(DocumentError) as told:
        condition(text).holds(SCOPE)
    assert str(told.value).startswith(f"p.yml:1:1: cannot evaluate {text!r}: ")
    assert said in str(told.value)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('id')",
        "open('/etc/passwd')",
        "version('1', '2')",
        "[x for x in rack]",
        "lambda: 1",
        "rack.upper()",
        "f'{rack}'",
        "count + 1",
        "count if rack else 1",
        "nccl[rack]",
        "(x := 1)",
        "count ==",
        "",
        "{{ count }} == 8",
        "await x",
        "*rack",
    ],
)
def test_nothing_else_is_an_expression(text):
    with pytest.raises(DocumentError, match=r"p\.yml:1:1: "):
        condition(text)


def test_names_that_must_be_defined_are_known_before_any_node_is_asked():
    found = condition("facts.system.kernel == nccl.version and facts.driver and rack in ['a'] and true")
    assert found.names == {"facts.system", "facts.driver", "nccl", "rack"}
    assert found.facts == {"system", "driver"}
    found.require(found.names)
    with pytest.raises(DocumentError, match=r'unknown name "facts.sytem"; did you mean "facts.system"'):
        condition("facts.sytem.kernel").require(["facts.system", "nccl"])


def test_a_list_must_hold_whole():
    both = read_conditions(parse("[count == 8, rack == 'r2']", "p.yml"))
    assert [one.holds(SCOPE) for one in both] == [True, False]


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [("580.95.05", "580.126.16"), ("5.12", "5.12.1"), ("2.28.9-1+cuda13.0", "2.28.10-1+cuda12.9"), ("1.2rc1", "1.2.0")],
)
def test_versions_compare_by_their_numbers(smaller, larger):
    assert Version(smaller) < larger
    assert Version(larger) > Version(smaller)
    assert Version(smaller) != larger


def test_a_variable_may_be_called_as_the_function_is():
    found = condition("version(version) < '1.10' and version == '1.9'")
    assert found.names == {"version"}
    assert found.holds({"version": "1.9"})
    assert condition("version('1') < '2'").names == set()

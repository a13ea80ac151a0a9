"""Whatever a file holds, loading it gives an inventory or one sentence."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gpuops.errors import DocumentError, PatternError
from gpuops.inventory import Inventory

WORDS = st.sampled_from(
    "all hosts children vars gpu01 gpu[1:3] gpu[a:f] g h ungrouped profile rack fabric power expect psus rail leaf "
    "ansible_host ansible_port ansible_user ansible_connection ansible_password ansible_become local 22 -1 010 22:30 "
    "yes ~ 1.10 {{x}} -J mlx5_[0:7] {index} ansible_group_priority ansible_ssh_common_args <<".split()
)
SCALARS = st.one_of(WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(SCALARS, inner, max_size=4)),
    max_leaves=25,
)
TAGS = ["", *(f"!!{tag} " for tag in "int float bool null timestamp binary set python/name:os".split()), "!vault "]
SYNTAX = [*'[]:{}"# \n=,-?|>', "\n  ", "&a ", "*a ", *TAGS, "all", "hosts", "a", "1", "vars"]


def loads_or_complains(path):
    try:
        inventory = Inventory.load(path)
    except DocumentError as error:
        sentence = str(error)
        assert "\n" not in sentence
        assert sentence.startswith(str(path))
    else:
        assert inventory.hosts
        for host in inventory.hosts.values():
            assert dict(host.vars) is not None
        inventory.to_yaml()
        inventory.to_ansible_json()


@pytest.mark.parametrize("name", ["prod.yml", "hosts", "prod.ini"])
@given(data=st.binary(max_size=200))
def test_random_bytes(name, data, tmp_path):
    path = tmp_path / name
    path.write_bytes(data)
    loads_or_complains(path)


@given(tree=TREES)
def test_random_yaml(tree, tmp_path):
    path = tmp_path / "prod.yml"
    path.write_text(yaml.dump(tree), encoding="utf-8", errors="replace")
    loads_or_complains(path)


@given(variables=st.dictionaries(WORDS, TREES, max_size=5), name=WORDS)
@example(variables={"power": {"all": "all", None: None}}, name="all")
def test_random_variables(variables, name, tmp_path):
    path = tmp_path / "prod.yml"
    path.write_text(yaml.dump({"all": {"hosts": {name: variables}}}), encoding="utf-8", errors="replace")
    loads_or_complains(path)


@given(words=st.lists(st.sampled_from(SYNTAX), max_size=30))
def test_random_syntax(words, tmp_path):
    for name in ("prod.yml", "prod.ini"):
        path = tmp_path / name
        path.write_text("".join(words))
        loads_or_complains(path)


@given(tag=st.sampled_from(TAGS), text=st.text(alphabet="0123456789-+:.eEx_ TZtrueno=/", max_size=12))
@example(tag="!!int ", text='""')
@example(tag="!!float ", text='""')
@example(tag="!!timestamp ", text="0001-01-01 00:00:00 +23:59")
@example(tag="!!bool ", text="maybe")
def test_random_scalars_with_tags(tag, text, tmp_path):
    path = tmp_path / "prod.yml"
    path.write_text(f"all: {{hosts: {{a: {{x: {tag}{text}}}}}}}")
    loads_or_complains(path)


@given(pattern=st.text(alphabet="gpu0123[]:-,!&*?~@.^/()ax", max_size=14))
def test_random_patterns(pattern):
    inventory = Inventory.of_names(["gpu[01:03]", "a", "g-x"])
    try:
        assert inventory.select(pattern)
    except (PatternError, DocumentError) as error:
        sentence = str(error)
        assert "\n" not in sentence


NAMES = st.text(alphabet="abcxyz019", min_size=1, max_size=6).map(lambda text: f"n{text}")
NUMBERS = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
PLAIN = st.one_of(st.none(), NUMBERS, st.text(max_size=12))
DEEP = st.recursive(PLAIN, lambda x: st.lists(x, max_size=3) | st.dictionaries(NAMES, x, max_size=3))
FREE = st.dictionaries(NAMES.map("v_".__add__), DEEP, max_size=4)


@pytest.mark.parametrize("suffix", ["yml", "ini"])
@given(hosts=st.dictionaries(NAMES, FREE, min_size=1, max_size=4), variables=FREE)
def test_every_plain_inventory_survives_being_written(suffix, hosts, variables, tmp_path):
    path = tmp_path / "prod.yml"
    path.write_text(yaml.safe_dump({"G": {"hosts": hosts, "vars": variables}}), encoding="utf-8")
    before = Inventory.load(path)
    again = tmp_path / f"again.{suffix}"
    again.write_text(before.to_yaml() if suffix == "yml" else before.to_ini(), encoding="utf-8")
    after = Inventory.load(again)
    assert {name: dict(host.vars) for name, host in after.hosts.items()} == {
        name: {**variables, **own} for name, own in hosts.items()
    }

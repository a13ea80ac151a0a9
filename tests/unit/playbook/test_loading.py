import pytest

from gpuops.document import Where, parse
from gpuops.errors import ContentError, DocumentError, InputError
from gpuops.inventory import Host
from gpuops.playbook.loading import load_playbook
from gpuops.playbook.play import Flush, batches
from gpuops.playbook.provisioning import StepSelection
from gpuops.playbook.variables import Variables, own_variables

WHOLE = """\
- name: Everything
  hosts: all
  serial: [1, 25%, rack]
  max_fail_percentage: 5
  any_errors_fatal: true
  vars: {size: "4096", nested: {deep: "7"}}
  tags: [all]
  tasks:
    - name: first
      id: one
      put: {key: a, value: "{{ size }}"}
      when: node.name == "n1"
      tags: base
      notify: restart
      register: first
    - include: more.yml
      vars: {size: "1"}
      when: first.changed
      tags: more
    - flush: handlers
    - act: {what: it}
      retries: 3
      delay: 0.5
      until: [first.changed, true]
      ignore_errors: true
      timeout: 60
  handlers:
    - name: restart
      act: {what: restart, kind: restart}
- include: other.yml
"""


def load(world, text, name="p.yml"):
    return load_playbook(str(world.write(text, name)), world.library, world.folder)


def test_every_key_is_read(world):
    world.write('- put: {key: "{{ nested.deep }}", value: "x{{ size }}y"}\n', "more.yml")
    world.write("- hosts: h100\n  tasks: []\n", "other.yml")
    first, second = load(world, WHOLE).plays
    assert (first.name, first.hosts, first.serial) == ("Everything", "all", (1, 0.25, "rack"))
    assert (first.max_fail_percentage, first.any_errors_fatal, second.hosts) == (5, True, "h100")
    one, included, flush, last = first.steps
    assert (one.id, one.name, one.tags, one.notify, one.register) == (
        "one", "first", {"all", "base"}, ("restart",), "first",
    )  # fmt: skip
    assert (included.name, included.tags) == ("put", {"all", "more"})
    assert [c.text for c in included.when] == ["first.changed"]
    assert isinstance(flush, Flush)
    assert (last.retries, last.delay_seconds, last.timeout_seconds, last.ignore_errors) == (3, 0.5, 60, True)
    assert [c.text for c in last.until] == ["first.changed", "true"]
    assert [handler.name for handler in first.handlers] == ["restart"]
    assert len({step.id for step in first.every_step}) == 4


def test_the_variables_of_an_include_are_above_those_of_the_play(world):
    world.write('- put: {key: "{{ nested.deep }}", value: "x{{ size }}y"}\n', "more.yml")
    world.write("- hosts: h100\n  tasks: []\n", "other.yml")
    (_, included, *_), play = load(world, WHOLE).plays[0].steps, load(world, WHOLE).plays[0]
    given = Variables({**play.vars, **included.vars}, {}).resolve(included.raw_params)
    assert given.plain() == {"key": "7", "value": "x1y"}


def refused(world, text):
    with pytest.raises(DocumentError) as told:
        world.prepare(text)
    assert world.node.asked == []
    return str(told.value).replace(f"{world.folder}/", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- hots: all\n", 'p.yml:1:3: unknown key "hots" in a play; did you mean "hosts"?'),
        ("- tasks: []\n", 'p.yml:1:3: a play needs "hosts"'),
        ("hosts: all\n", "p.yml:1:1: expected a list of plays"),
        ("- hosts: all\n  serial: 0\n", "p.yml:2:11: serial: a number of nodes"),
        ("- hosts: all\n  serial: 200%\n", "p.yml:2:11: serial"),
        ("- hosts: all\n  handlers:\n    - {name: a, act: {what: x}}\n    - {name: a, act: {what: y}}\n",
         'p.yml:4:7: two handlers are named "a"'),
        ("- hosts: all\n  tasks:\n    - {id: x, act: {what: a}}\n    - {id: x, act: {what: b}}\n",
         'p.yml:4:12: the id "x" is used twice, first at'),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_play_is_refused_at_its_place_before_any_node_is_asked(world, text, said):
    assert said in refused(world, text)


STEP = """\
- hosts: all
  vars: {{a: {{b: c}}, x: "{{{{ y }}}}", y: "{{{{ x }}}}"}}
  handlers:
    - {{name: restart, act: {{what: x}}}}
  tasks:
    - {{{}}}
"""


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("ptu: {}", '6:8: no task named "ptu"; did you mean "put"?'),
        ("wehn: x, act: {what: a}", '6:8: unknown key "wehn" in a task; did you mean "when"?'),
        ("put: {}, act: {}", "6:7: an item needs exactly one task, such as package or file; found put and act"),
        ("name: x", "6:7: an item needs exactly one task"),
        ("put: {key: a, valeu: b}", '6:22: unknown key "valeu" under "put"; did you mean "value"?'),
        ("put: {key: a}", '6:13: "put" needs "value"'),
        ('put: {key: a, value: "{{ nothing }}"}', '6:29: no variable named "nothing"'),
        ('put: {key: a, value: "{{ a.c }}"}', '6:29: a has no "c"'),
        ('put: {key: a, value: "{{ a | upper }}"}', "6:29: {{ a | upper }}: upper: expected text, found a map"),
        ('put: {key: a, value: "{{ x }}"}', "refers to itself"),
        ("when: sise == 3, act: {what: a}", "6:14: cannot evaluate 'sise == 3': unknown name \"sise\""),
        ("when: facts.sytem.kernel, act: {what: a}", 'did you mean "facts.system"'),
        ("act: {what: a}, notify: restrat", '6:7: no handler named "restrat"; did you mean "restart"?'),
        ("include: nowhere.yml", "6:17: no file"),
        ("act: {what: a}, retries: -1", "6:33: retries"),
        ("flush: handlers, when: x", '6:25: unknown key "when" beside flush'),
    ],
)
def test_what_is_wrong_with_a_step_is_refused_at_its_place_before_any_node_is_asked(world, step, said):
    assert said in refused(world, STEP.format(step))


def test_a_playbook_is_found_by_its_name_the_projects_first(world):
    (world.folder / "playbooks" / "mine.yml").write_text("- hosts: all\n  tasks: []\n")
    assert load_playbook("mine", world.library, world.folder).path == world.folder / "playbooks" / "mine.yml"
    with pytest.raises(ContentError, match='no playbook named "mien"; did you mean "mine"'):
        load_playbook("mien", world.library, world.folder)


def test_a_playbook_that_includes_itself_is_refused(world):
    with pytest.raises(ContentError, match="check whether it includes itself"):
        load(world, "- include: p.yml\n")


def test_an_empty_playbook_is_refused(world):
    with pytest.raises(ContentError, match="no plays found"):
        load(world, "")


def host(name, rack=None):
    return Host(name, name, Where("i.yml"), rack=rack)


@pytest.mark.parametrize(
    ("serial", "expected"),
    [
        ((1.0,), ["abcdefghij"]),
        ((1, 0.25, 1.0), ["a", "bc", "defghij"]),
        ((4,), ["abcd", "efgh", "ij"]),
        ((0.001,), list("abcdefghij")),
        (("rack",), ["acegi", "bdfhj"]),
        ((1, "rack"), ["a", "bdfhj", "cegi"]),
    ],
)
def test_batches_are_shares_of_all_the_last_one_repeated(serial, expected):
    hosts = [host(name, rack=f"r{number % 2}") for number, name in enumerate("abcdefghij")]
    assert ["".join(h.name for h in batch) for batch in batches(hosts, serial)] == expected


def test_rack_by_rack_needs_the_rack_of_every_node(world):
    text = "- hosts: all\n  serial: rack\n  tasks: []\n"
    assert '"serial: rack" needs the rack of every node; the inventory sets none for n1' in refused(world, text)


STEPS = """\
- hosts: all
  tasks:
    - {name: one, id: i1, tags: [a, b], act: {what: one}}
    - {name: two, tags: b, act: {what: two}}
    - flush: handlers
    - {name: three, act: {what: three}}
- hosts: all
  tasks:
    - {name: four, tags: a, act: {what: four}}
"""


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({}, ["one", "two", "three", "four"]),
        ({"tags": ("a",)}, ["one", "four"]),
        ({"skip_tags": ("b",)}, ["three", "four"]),
        ({"tags": ("a", "b"), "skip_tags": ("a",)}, ["two"]),
        ({"start_at": "two"}, ["two", "three", "four"]),
        ({"start_at": "i1"}, ["one", "two", "three", "four"]),
        ({"start_at": "four"}, ["four"]),
    ],
)
def test_a_part_of_a_playbook(world, selection, expected):
    record = world.run(STEPS, selection=StepSelection(**selection))
    assert [result.name for result in record.results] == expected


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ({"tags": ("aa",)}, 'no step has the tag "aa"'),
        ({"skip_tags": ("c",)}, 'no step has the tag "c"; known: a, b'),
        ({"start_at": "thre"}, 'no step has the name "thre"; did you mean "three"'),
    ],
)
def test_a_part_that_is_not_there_is_refused(world, selection, said):
    with pytest.raises(InputError, match=said):
        world.prepare(STEPS, selection=StepSelection(**selection))


def test_a_playbook_that_selects_no_node_is_refused(world):
    world.hosts = {}
    with pytest.raises(InputError, match="no play matches any of the selected nodes"):
        world.prepare(STEPS)


def resolved(text, **own):
    given = parse("{site: {size: '1', colour: red}, plain: '{{ site.size }}'}", "p.yml").map()
    variables = Variables(given, own_variables(Host("n1", "n1", Where("inventory.yml", 3, 1), rack="r7", vars=own)))
    return variables.resolve(parse(text, "p.yml")).plain()


def test_the_inventory_knows_its_nodes_better_than_the_playbook():
    assert resolved("'{{ site.size }} {{ site.colour }} {{ plain }}'") == "1 red 1"
    assert resolved("'{{ site.size }} {{ site.colour }} {{ plain }}'", site={"size": 2}) == "2 red 2"


def test_a_whole_value_keeps_its_type():
    assert resolved("{a: '{{ n }}', b: ['{{ many }}', 'x{{ n }}']}", n=5, many=[1, "two"]) == {
        "a": 5,
        "b": [[1, "two"], "x5"],
    }


def test_the_node_itself_can_be_named():
    assert resolved("'{{ node.name }} in {{ node.rack }}'") == "n1 in r7"


def test_what_only_ansible_can_read_is_refused_where_it_is_used():
    assert resolved("'{{ plain }}'", other="{{ lookup('env', 'X') }}") == "1"
    with pytest.raises(DocumentError, match=r"other \(inventory.yml:3:1\) is a template or encrypted"):
        resolved("'{{ other }}'", other="{{ lookup('env', 'X') }}")

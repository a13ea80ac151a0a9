"""Loops, conditions on results, blocks, run_once, become, filters, and what was registered as a parameter."""

import pytest

from gpuops.errors import DocumentError
from gpuops.playbook import applying, binding
from gpuops.playbook.provisioning import StepSelection, assign
from gpuops.playbook.templating import fill_template
from gpuops.probing import Probe
from gpuops.shell import Files, read_files

A, B = (f"put: {{key: {key}, value: '1'}}" for key in "ab")


def changes(record):
    return [change.what for result in record.results for change in result.changes]


def test_a_loop_is_one_step_that_counts_the_items_that_it_changed(world, steps):
    world.node.settings["b"] = "x"
    text = steps('{loop: [a, b, c], put: {key: "{{ item }}", value: x}}')
    checked = world.run(text, check=True)
    (result,) = world.run().results
    assert (result.status, result.why, len(result.items)) == ("changed", "2 of 3 items", 3)
    assert changes(checked) == ["a = x", "c = x"]
    assert [(r.status, r.why) for r in checked.results] == [("would_change", "2 of 3 items")]
    assert [r.status for r in world.run().results] == ["ok"]


def test_a_loop_takes_a_variable_and_its_items_have_parts_for_conditions_too(world, steps):
    text = (
        "- hosts: all\n  vars: {all: [{k: a, v: '1', on: true}, {k: b, v: '2', on: false}]}\n  tasks:\n"
        '    - {loop: "{{ all }}", put: {key: "{{ item.k }}", value: "{{ item.v }}"}, when: item.on, register: r}\n'
        "    - put: {key: n, value: '{{ r.results | length | to_json }}'}\n"
        '      when: r.results[1].status == "skipped"\n'
    )
    world.run(text)
    assert world.node.settings == {"a": "1", "n": "2"}


def test_a_loop_ends_at_the_first_item_that_fails_and_names_it(world, steps):
    world.node.refuse.add("put b x")
    (result,) = world.run(steps('{loop: [a, b, c], put: {key: "{{ item }}", value: x}}')).results
    assert (result.status, result.why) == ("failed", "1 of 3 items; b: b = x: ended with 1: refused")
    assert world.node.settings == {"a": "x"}


def test_a_run_that_died_in_a_loop_continues_with_the_items_that_are_left(world, steps):
    world.node.lose = "after"
    text = steps('{loop: [a, b], act: {what: "{{ item }}"}}')
    first = world.run(text)
    assert [r.status for r in first.results] == ["unreachable"]
    (again,) = world.run(resume=world.last.run_id).results
    assert again.status == "needs_operator"  # unknown whether it was done: an act is not repeated
    assert world.node.done == ["act a"]


def test_until_judges_the_steps_own_result_and_tries_again(world, steps):
    told = iter(["no", "no", "yes"])
    answer = world.node.answer

    def changing(question):
        if getattr(question, "globs", ()) == ("/state",):
            return 0, f"/state\0{next(told)}\0"
        return answer(question)

    world.node.answer = changing
    step = '{look: {key: state}, register: r, until: r.value.text == "yes", retries: 5, delay: 2}'
    (result,) = world.run(steps(step)).results
    assert (result.status, result.attempts, world.slept) == ("ok", 3, [2, 2])


def test_check_mode_says_that_until_is_not_yet_true(world, steps):
    text = steps('{look: {key: state}, register: r, until: r.value.text == "yes", retries: 5}')
    (result,) = world.run(text, check=True).results
    assert (result.status, result.why) == ("later", 'not yet: r.value.text == "yes"')
    world.node.settings["state"] = "yes"
    assert [r.status for r in world.run(text, check=True).results] == ["ok"]


def test_a_command_with_until_is_repeated(world, steps):
    said = iter(["starting", "ready"])
    world.node.do = lambda words: (0, next(said))
    (result,) = world.run(
        steps("{act: {what: x}, register: r, until: '\"ready\" in r.value.out', retries: 3, delay: 1}")
    ).results
    assert (result.status, result.attempts) == ("changed", 2)


@pytest.mark.parametrize(("said", "status", "handled"), [("updated", "changed", ["put told 1"]), ("same", "ok", [])])
def test_changed_when_decides_by_the_output_of_a_command(world, steps, said, status, handled):
    done = world.node.do
    world.node.do = lambda words: (0, said) if words[0] == "act" else done(words)
    handler = "{name: tell, put: {key: told, value: '1'}}"
    step = "{act: {what: x}, register: r, changed_when: '\"updated\" in r.value.out', notify: tell}"
    record = world.run(steps(step, handlers=[handler]))
    assert record.results[0].status == status
    assert world.node.done == handled
    again = world.run(steps("stop: {}", handlers=[handler]))
    assert [r.name for r in again.results] == ["stop"]  # no handler is left due


def test_a_run_that_died_after_the_command_counts_it_as_a_change(world, steps):
    text = steps(
        "{act: {what: x}, register: r, changed_when: '\"updated\" in r.value.out'}", "put: {key: a, value: '1'}"
    )
    done, said = world.node.do, iter(["updated"])
    world.node.do = lambda words: (0, next(said)) if words[0] == "act" else done(words)
    world.node.lose = "before"
    assert [r.status for r in world.run(text).results] == ["changed", "unreachable"]
    assert [r.status for r in world.run(resume=world.last.run_id).results] == ["changed", "changed"]


def test_failed_when_decides_by_the_output_of_a_command(world, steps):
    world.node.do = lambda _words: (0, "ERROR: none")
    step = "{act: {what: x}, register: r, failed_when: '\"ERROR\" in r.value.out'}"
    (result,) = world.run(steps(step)).results
    assert (result.status, result.why) == ("failed", 'failed_when: "ERROR" in r.value.out')
    assert [r.status for r in world.run(steps(step), check=True).results] == ["would_change"]


def test_a_block_shares_its_keys_with_its_steps_and_with_blocks_in_it(world):
    text = """\
- hosts: all
  vars: {on: true, off: false}
  tasks:
    - name: Settings
      block:
        - put: {key: a, value: "{{ v }}"}
        - block:
            - put: {key: b, value: "{{ v }}"}
          when: off
        - stop: {failed: it broke}
        - put: {key: c, value: "{{ v }}"}
          vars: {v: own}
          tags: last
      when: on
      vars: {v: shared}
      tags: settings
      ignore_errors: true
"""
    record = world.run(text)
    assert [r.status for r in record.results] == ["changed", "skipped", "failed", "changed"]
    assert world.node.settings == {"a": "shared", "c": "own"}
    assert record.results[2].ignored
    assert [step.tags for step in world.last._playbook.plays[0].steps][-1] == {"settings", "last"}


def test_block_with_parameters_is_still_the_task(world):
    text = "- hosts: all\n  tasks:\n    - block: {path: /etc/x, content: a}\n"
    (play,) = world.prepare(text)._playbook.plays
    assert [step.task.name for step in play.steps] == ["block"]


def test_run_once_is_for_the_first_node_and_all_of_the_batch_know_the_result(cluster, steps):
    world = cluster("n1", "n2", "n3")
    world.nodes["n1"].settings["token"] = "t"
    look = "{look: {key: token}, run_once: true, register: r}"
    record = world.run(steps(look, '{put: {key: got, value: "{{ r.value.text }}"}}'))
    assert [(r.node, r.name) for r in record.results][:2] == [("n1", "look"), ("n1", "put")]
    assert {name: node.settings["got"] for name, node in world.nodes.items()} == {"n1": "t", "n2": "t", "n3": "t"}


def test_where_run_once_failed_no_node_goes_on(cluster, steps):
    world = cluster("n1", "n2")
    record = world.run(steps("{stop: {failed: broken}, run_once: true}", A))
    assert [(r.node, r.status) for r in record.results] == [("n1", "failed"), ("n2", "failed")]
    assert record.results[1].why == "it runs once, on n1, and did not succeed there"


def test_text_of_a_node_is_inserted_as_it_is_and_never_evaluated(world, steps):
    world.node.settings["evil"] = "{{ node.name }}{% raw %}"
    text = (
        "- hosts: all\n  vars: {copy: '{{ r.value.text }}'}\n  tasks:\n"
        "    - {look: {key: evil}, register: r}\n"
        '    - {put: {key: a, value: "{{ r.value.text }}"}}\n'
        '    - {put: {key: b, value: "<{{ copy }}>"}}\n'
        '    - {put: {key: c, value: "{{ copy | upper }}"}}\n'
        '    - {loop: ["{{ copy }}"], put: {key: d, value: "{{ item }}"}}\n'
    )
    world.run(text)
    evil = "{{ node.name }}{% raw %}"
    assert world.node.settings == {"evil": evil, "a": evil, "b": f"<{evil}>", "c": evil.upper(), "d": evil}


def test_what_check_mode_cannot_know_of_a_result_is_later_and_never_a_guess(world, steps):
    text = steps(
        "{act: {what: x}, register: r}",
        '{put: {key: a, value: "{{ r.value.out }}"}}',
        '{when: r.value == "x", ' + B + "}",
    )
    assert [r.status for r in world.run(text, check=True).results] == ["would_change", "later", "later"]


def test_a_result_of_a_step_that_did_not_run_is_told(world, steps):
    text = steps("{look: {key: x}, register: r}", '{name: use, put: {key: a, value: "{{ r.value.text }}"}}')
    (result,) = world.run(text, selection=StepSelection(start_at="use")).results
    assert result.status == "failed"
    assert 'nothing is registered as "r": that step did not run in this run' in result.why


def test_all_parameters_can_be_what_was_registered(world, steps):
    (world.folder / "playbooks" / "tasks" / "tell.py").write_text(TELL)
    world.library = type(world.library)(world.folder)
    world.run(steps("{tell: {}, register: r}", '{put: "{{ r.value }}"}'))
    assert world.node.settings == {"a": "1"}


def test_facts_can_be_inserted(world, steps, monkeypatch):
    colour = Probe("colour", Files(("/colour",)), lambda answer: {"name": read_files(answer.out)["/colour"]})
    for module in (binding, applying):
        monkeypatch.setattr(module, "every_probe", lambda: {"colour": colour})
    world.node.settings["colour"] = "red"
    world.run(steps('{put: {key: a, value: "a-{{ facts.colour.name }}"}}'))
    assert world.node.settings["a"] == "a-red"
    with pytest.raises(DocumentError, match=r'no variable named "facts.color"; did you mean "facts.colour"'):
        world.prepare(steps('{put: {key: a, value: "{{ facts.color.name }}"}}'))


TELL = '''
"""Parameters, as a value."""
from dataclasses import dataclass
from gpuops import Files, Plan, task

@dataclass(frozen=True)
class Params:
    """None."""

@task
def tell(params: Params) -> Plan:
    """Nothing is changed."""
    yield Files(("/x",))
    return {"key": "a", "value": "1"}
'''
FILTERS = [
    ("{{ nothing | default('x') }}", "x"),
    ("{{ m.nothing | default('x') }}", "x"),
    ("{{ empty | default('x', true) }}", "x"),
    ("{{ l | join(',') }}", "b,a,b"),
    ("{{ l | unique | sort | join }}", "ab"),
    ("{{ l | first }}{{ l | last }}{{ l | length }}", "bb3"),
    ("{{ l[1] }}", "a"),
    ("{{ m['k'] | upper }}", "V"),
    ("{{ ' A ' | trim | lower }}", "a"),
    ("{{ '12' | int | to_json }}", "12"),
    ("{{ 'yes' | bool | to_json }}", "true"),
    ("{{ m | to_json }}", '{"k": "v"}'),
    (r"{{ 'gpu-01' | regex_replace('^gpu-(\\d+)$', 'n\\1') }}", "n01"),
    ("{{ 'a b' | split | join('+') }}", "a+b"),
    ("{{ (m | dict2items | first).value }}", "v"),
]


@pytest.mark.parametrize(("text", "value"), FILTERS)
def test_filters(world, text, value):
    play = "- hosts: all\n  vars: {l: [b, a, b], m: {k: v}, empty: ''}\n  tasks:\n    - put: {key: a}\n"
    world.run(
        play.replace(
            "{key: a}", '\n        key: a\n        value: "' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        )
    )
    assert world.node.settings == {"a": value}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ 'x' | int }}", "int: invalid literal"),
        ("{{ 'maybe' | bool }}", "bool: expected true or false"),
        ("{{ [] | first }}", "first: it is empty"),
        ("{{ m | join }}", "join: expected a list, found a map"),
        ("{{ m.__class__ }}", 'm has no "__class__"'),
        ("{{ m.items() }}", "only look-ups, literals and filters are allowed in braces, found call"),
        ("{{ 'a' if m else 'b' }}", "found condexpr"),
        ("{% if m %}{% endif %}", "only {{ name | filter }} is allowed"),
        ("{{ m | upper", "braces that do not end"),
    ],
)
def test_what_is_wrong_in_braces_is_refused_before_any_node_is_asked(world, text, said):
    with pytest.raises(DocumentError) as told:
        world.prepare(f'- hosts: all\n  vars: {{m: {{k: v}}}}\n  tasks:\n    - put: {{key: a, value: "{text}"}}\n')
    assert said in str(told.value)


def test_become_makes_the_commands_of_a_play_a_block_or_a_step_run_as_root(world):
    command = "command: {words: [id], always: true}"
    text = (
        f"- hosts: all\n  tasks:\n    - {{{command}}}\n    - {{{command}, become: true}}\n"
        f"    - block: [{{{command}}}]\n      become: true\n"
        "    - {command: {words: [id], always: true, become: if-refused}, become: true}\n"
        f"- hosts: all\n  become: true\n  tasks:\n    - {{{command}}}\n    - {{{A}}}\n"
    )
    run = world.prepare(text)
    params = [bound["n1"][step.id].turns({})[0].params for bound, step in (
        (assignment.bound, step) for assignment in run._assignments for step in assignment.steps)]  # fmt: skip
    assert [one.become for one in params[:-1]] == ["never", "always", "always", "if-refused", "always"]


def test_a_fabric_function_is_not_root_by_become(world, steps):
    with pytest.raises(DocumentError, match=r"runs as the login user; call c.sudo in it"):
        world.prepare(steps("{call: {words: id}, become: true}"))


def test_a_template_takes_the_variables_of_the_node_and_values_above_them(world):
    world.write("{{ node.name }} {{ port }} {{ who }}\n", "x.j2")
    text = (
        "- hosts: all\n  vars: {port: 80, who: all, foreign: !vault x}\n  tasks:\n"
        "    - template: {src: x.j2, path: /etc/x, values: {who: me}}\n"
    )
    run = world.prepare(text)
    (params,) = [turn.params for turn in run._assignments[0].bound["n1"]["1.1"].turns({})]
    assert fill_template(params.src, params.values) == "n1 80 me\n"
    world.write("{{ given }}\n", "x.j2")
    assert assign(
        run._playbook, lambda _: list(world.hosts.values()), StepSelection(), extra_vars={"given": 1}
    )  # a name that only the template uses
    world.write("{{ prot }}\n", "x.j2")
    with pytest.raises(DocumentError, match=r"x.j2:1: 'prot' is undefined"):
        world.prepare(text)


def test_a_fabric_function_with_any_arguments_is_a_step_too(world, steps):
    (world.folder / "playbooks" / "tasks" / "anything.py").write_text('def anything(c, **words):\n    c.run("act x")\n')
    world.library = type(world.library)(world.folder)
    assert [r.status for r in world.run(steps("anything: {what: x}")).results] == ["changed"]

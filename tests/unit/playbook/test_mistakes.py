"""Twenty mistakes of a person who knows Ansible: all are told at once, each at its place, with the way to write it."""

import pytest

from gpuops.errors import DocumentError, DocumentErrors, Problems
from gpuops.playbook.loading import load_playbook
from gpuops.playbook.provisioning import StepSelection, assign

PLAYBOOK = """\
- hosts: all
  gather_facts: true
  strategy: free
  vars: {port: 80}
  tasks:
    - lineinfile: {path: /etc/x, line: a}
    - apt: {name: nginx}
    - ansible.builtin.shell: echo hi
    - ansible.builtin.file: {path: /etc/x}
    - systemd: {name: nginx}
      notify: restrat
    - file: {path: /etc/x, state: directory}
    - file: {dest: /etc/x}
    - file: {path: /etc/x, mode: "rw"}
      with_items: [a, b]
    - file: {path: "{{ prot }}"}
    - file: {path: /etc/x, content: "{{ port | uper }}"}
    - file: {path: /etc/x}
      delegate_to: localhost
    - block: []
      rescue: []
    - command: uname -r
      register: kernel
    - command: {words: [a], read_only: true}
      register: answer
      until: answer.rc == 0
    - act: {what: "{{ answer.stdout }}"}
    - act: {what: x}
      when: answer is changed
    - act: {what: x}
      loop: port
    - act: {what: x}
      become: false
    - act: {what: x}
      retries: often
  handlers:
    - name: restart
      act: {what: restart}
"""

TOLD = [
    '2:3: "gather_facts" in a play: leave it out; facts.NAME is queried where',
    '3:3: "strategy" in a play: all nodes of a batch take each step together',
    '6:7: no task named "lineinfile"; use `line`',
    '7:7: no task named "apt"; use `package`',
    '8:7: no task named "ansible.builtin.shell"; use `script`',
    '9:7: no task named "ansible.builtin.file"; use `file`, without a collection',
    '10:7: no task named "systemd"; use `service`',
    '10:7: no handler named "restrat"; did you mean "restart"?',
    '12:35: file: state must be one of present, absent; found "directory"; use the task `directory`',
    '13:14: unknown key "dest" under "file"; did you mean "path"?',
    "14:34: file: mode must be three or four octal digits",
    '15:7: "with_items" in a task: use `loop`',
    '16:20: no variable named "prot"; did you mean "port"?',
    '17:37: {{ port | uper }}: no filter named "uper"; did you mean "upper"?',
    '19:7: "delegate_to" in a task: every step runs on its own node',
    '21:7: "rescue" in a block: a failed node stays as it is',
    '22:16: "command" takes a map of words, creates,',
    "26:14: cannot evaluate 'answer.rc == 0': a registered result has no \"rc\"; write answer.value.exit",
    '27:19: a registered result has no "stdout"; write answer.value.out',
    "29:13: a condition cannot contain is; write x.changed",
    '31:13: loop: expected a list, or a variable that is one ("{{ name }}"), found "port"',
    "33:15: become: false has no meaning here",
    "35:16: retries",
]


@pytest.fixture
def told(world):
    problems = Problems()
    world.write(PLAYBOOK)
    book = load_playbook(str(world.folder / "p.yml"), world.library, world.folder, problems)
    with pytest.raises(DocumentErrors) as told:
        assign(book, lambda _: list(world.hosts.values()), StepSelection(), problems=problems)
    return [str(error).replace(f"{world.folder}/p.yml:", "") for error in told.value.errors]


def test_all_mistakes_are_told_at_once_each_at_its_place_with_the_way_to_write_it(told):
    assert len(TOLD) > 20
    assert [line for line in TOLD if not any(one.startswith(line) for one in told)] == []
    assert [one for one in told if not any(one.startswith(line) for line in TOLD)] == []


def test_wrong_names_of_parameters_are_told_without_any_inventory(world):
    text = '- hosts: all\n  tasks:\n    - file: {dest: "{{ x }}"}\n    - file: "{{ whole }}"\n'
    with pytest.raises(DocumentError, match=r'p.yml:3:14: unknown key "dest" under "file"; did you mean "path"\?$'):
        load_playbook(str(world.write(text)), world.library, world.folder)


def test_the_errors_are_in_the_order_of_the_document(told):
    places = [tuple(map(int, one.split(":")[:2])) for one in told]
    assert places == sorted(places)


def test_a_handler_that_cannot_be_read_is_still_there_to_be_notified(world):
    text = (
        "- hosts: all\n  tasks:\n    - {act: {what: x}, notify: again}\n"
        "  handlers:\n    - {name: again, systemd: {name: x}}\n"
    )
    with pytest.raises(Exception, match="systemd") as told:
        load_playbook(str(world.write(text)), world.library, world.folder)
    assert "no handler" not in str(told.value)

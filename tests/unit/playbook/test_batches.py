import pytest

ROLLING = """\
- hosts: all
  serial: [1, 25%, 100%]
  max_fail_percentage: {allowed}
  tasks:
    - put: {{key: a, value: '1'}}
    - put: {{key: b, value: '1'}}
"""


@pytest.mark.parametrize(
    ("allowed", "failing", "touched"),
    [
        (0, ["n03"], 5),  # the second batch, n02 to n05, is the last one
        (25, ["n03"], 16),  # one of four is not more than 25 %
        (24, ["n03"], 5),
        (100, ["n01"], 1),  # a batch that fails as a whole always stops
        (100, ["n02", "n03", "n04", "n05"], 5),
    ],
)
def test_a_rolling_change_stops_where_too_many_failed(cluster, allowed, failing, touched):
    world = cluster(*(f"n{number:02}" for number in range(1, 17)))
    for name in failing:
        world.nodes[name].refuse.add("put a 1")
    record = world.run(ROLLING.format(allowed=allowed))
    reached = {result.node for result in record.results}
    assert len(reached) == touched
    assert bool(record.stopped) == (touched < 16)
    assert all(world.nodes[name].settings == {"a": "1", "b": "1"} for name in reached - {*failing})
    assert all(not world.nodes[name].done for name in world.nodes if name not in reached)
    assert all(not node.lock for node in world.nodes.values())


STOPPING = """\
- hosts: all
  LIMIT
  tasks:
    - {put: {key: a, value: '1'}, notify: restart}
    - put: {key: b, value: '1'}
    - put: {key: c, value: '1'}
  handlers:
    - {name: restart, act: {what: restart, kind: restart}}
"""


@pytest.fixture
def trio(cluster):
    """The second step fails on n1; n2 was changed before it, n3 was not."""
    world = cluster("n1", "n2", "n3")
    world.nodes["n1"].refuse.add("put b 1")
    world.nodes["n3"].settings.update(a="1", b="1")
    return world


def test_where_too_many_failed_no_node_is_left_halfway_and_none_is_begun(trio):
    record = trio.run(STOPPING.replace("LIMIT", "max_fail_percentage: 0"))
    assert trio.nodes["n2"].done == ["put a 1", "put b 1", "put c 1", "act restart"]
    assert trio.nodes["n3"].done == []
    assert record.stopped == '1 of 3 nodes of a batch failed in play "all"; max_fail_percentage is 0'
    assert {node: names for node, names in record.waiting.items() if names} == {"n1": ["restart"]}


def test_a_node_that_only_an_earlier_play_changed_is_not_begun_in_one_that_stops(cluster, steps):
    world = cluster("n1", "n2")
    world.nodes["n1"].refuse.add("put b 1")
    first = steps("put: {key: a, value: '1'}")
    second = steps("put: {key: b, value: '1'}").replace("- hosts: all", "- hosts: all\n  max_fail_percentage: 0")
    world.nodes["n2"].settings["b"] = "1"
    record = world.run(first + second + "    - put: {key: c, value: '1'}\n")
    assert record.stopped
    assert world.nodes["n2"].done == ["put a 1"]


def test_with_any_errors_fatal_every_node_stops_where_it_is(trio):
    record = trio.run(STOPPING.replace("LIMIT", "any_errors_fatal: true"))
    assert trio.nodes["n2"].done == ["put a 1", "put b 1"]
    assert trio.nodes["n3"].done == []
    assert record.waiting["n2"] == ["restart"]


def test_a_node_out_of_reach_counts_among_those_that_failed(cluster):
    world = cluster(*(f"n{number:02}" for number in range(1, 17)))
    world.nodes["n01"].unreachable = True
    record = world.run(ROLLING.format(allowed=5))
    assert record.stopped == '1 of 1 nodes of a batch failed in play "all"'
    assert all(not node.done for node in world.nodes.values())


@pytest.mark.parametrize(("most_open", "closed"), [(2, 1), (1, 4)])
def test_connections_are_kept_from_step_to_step_as_far_as_files_may_be_open(cluster, most_open, closed, steps):
    world = cluster("n1", "n2")
    world.run(steps("put: {key: a, value: '1'}", "put: {key: b, value: '1'}"), most_open=most_open)
    assert [node.closed for node in world.nodes.values()] == [closed, closed]


def test_one_failure_may_be_enough(cluster):
    world = cluster(*(f"n{number:02}" for number in range(1, 17)))
    world.nodes["n09"].refuse.add("put a 1")
    record = world.run("- hosts: all\n  any_errors_fatal: true\n  tasks:\n    - put: {key: a, value: '1'}\n"
                       "    - put: {key: b, value: '1'}\n")  # fmt: skip
    assert record.stopped == '1 of 16 nodes of a batch failed in play "all"; any_errors_fatal'
    assert not any("put b 1" in node.done for node in world.nodes.values())


def test_a_node_that_runs_jobs_is_not_changed_and_says_whose_they_are(cluster, steps):
    world = cluster("n1", "n2", "n3")
    world.nodes["n1"].busy = "busy: job 17 of ann; drain it, or --force"
    world.nodes["n3"].busy = "busy too"
    world.nodes["n3"].settings["a"] = "1"
    record = world.run(steps("put: {key: a, value: '1'}"))
    assert [(r.node, r.status, r.why) for r in record.results] == [
        ("n1", "needs_operator", "busy: job 17 of ann; drain it, or --force"),
        ("n2", "changed", ""),
        ("n3", "ok", ""),
    ]
    assert record.exit_code(check=False) == 3
    assert world.run(force=True).exit_code(check=False) == 0
    assert world.node.settings == {"a": "1"}

HANDLERS = ("{name: restart, act: {what: restart, kind: restart}}", "{name: again, act: {what: again}}")


def test_handlers_run_once_at_the_end_in_the_order_of_the_play_and_only_where_something_changed(cluster, steps):
    world = cluster("n1", "n2")
    world.nodes["n2"].settings = {"a": "1", "b": "1"}
    text = steps(
        "{put: {key: a, value: '1'}, notify: [again, restart]}",
        "{put: {key: b, value: '1'}, notify: restart}",
        handlers=HANDLERS,
    )
    world.run(text)
    assert world.node.done == ["put a 1", "put b 1", "act restart", "act again"]
    assert world.nodes["n2"].done == []


def test_a_flush_runs_them_at_once_and_they_may_be_notified_again(world, steps):
    text = steps(
        "{put: {key: a, value: '1'}, notify: restart}",
        "flush: handlers",
        "{put: {key: b, value: '1'}, notify: restart}",
        handlers=HANDLERS,
    )
    world.run(text)
    assert world.node.done == ["put a 1", "act restart", "put b 1", "act restart"]


def test_a_reboot_comes_last_and_makes_restarts_pointless(world, steps):
    handlers = ("{name: boot, reboot: {reason: a new driver}}", *HANDLERS)
    text = steps("{put: {key: a, value: '1'}, notify: [boot, restart, again]}", handlers=handlers)
    record = world.run(text)
    assert world.node.done == ["put a 1", "act again", "reboot"]
    assert ("restart", "skipped", "the node reboots next") in [(r.name, r.status, r.why) for r in record.results]
    assert world.node.lock == ""
    assert record.exit_code(check=False) == 0


def test_handlers_that_never_ran_are_remembered_by_the_next_run(world, steps):
    text = steps("{put: {key: a, value: '1'}, notify: restart}", "put: {key: b, value: '1'}", handlers=HANDLERS)
    world.node.refuse.add("put b 1")
    assert world.run(text).exit_code(check=False) == 1
    assert world.node.done == ["put a 1"]
    assert world.run().exit_code(check=False) == 1
    world.node.refuse.clear()
    assert world.run().exit_code(check=False) == 0
    assert world.node.done == ["put a 1", "put b 1", "act restart"]
    world.run()
    assert world.node.done.count("act restart") == 1


def test_check_mode_shows_the_handlers_that_would_run(world, steps):
    text = steps("{put: {key: a, value: '1'}, notify: restart}", handlers=HANDLERS)
    record = world.run(text, check=True)
    assert world.statuses(record) == [("put", "would_change"), ("restart", "would_change")]


def test_check_mode_shows_the_handlers_that_what_it_cannot_tell_may_notify(world, steps):
    text = steps(
        "put: {key: a, value: '1'}",
        "{name: second, put: {key: b, value: '1', after: a}, notify: [restart, again]}",
        "{put: {key: c, value: '1'}, notify: again}",
        handlers=HANDLERS,
    )
    told = [(r.name, r.status, r.why) for r in world.run(text, check=True).results[3:]]
    assert told == [("restart", "later", 'due if "second" changes anything'), ("again", "would_change", "")]
    assert world.statuses(world.run(text))[3:] == [("restart", "changed"), ("again", "changed")]

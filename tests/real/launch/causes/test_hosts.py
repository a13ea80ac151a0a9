"""Each planted cause is named, its fix is carried out as it is printed, and the job starts."""

import fnmatch

import pytest
from tests.real.launch.causes.on_hosts import ON_HOSTS
from tests.real.launch.causes.planted import chosen


@pytest.mark.parametrize("planted", chosen(ON_HOSTS), ids=lambda planted: planted.about.replace(" ", "-"))
def test_cause_is_named_and_after_its_fix_the_job_starts(job, planted):
    job.hides_gpus = planted.hides_gpus
    job.render(planted.rendered, planted.hosts)
    job.options = planted.launched.split()
    try:
        job.run_lines(planted.plant)
        code, document = job.launch()
        first, *others = document["preflight"]["causes"]
        assert (code, first["test"], ",".join(first["nodes"])) == (planted.code, planted.test, planted.nodes), first
        assert fnmatch.fnmatchcase(first["why"], job.filled(planted.why).replace("[", "[[]")), first["why"]
        assert first["fix"] == job.filled(planted.fix)
        assert not document["started"]
        job.carry_out(first)
        code, document = job.launch()
        assert (code, document["preflight"]["causes"]) == (0, []), (document["preflight"]["causes"], others)
        assert document["asserted"] == list(range(document["world"])), document["failure"]
    finally:
        job.run_lines(planted.back)

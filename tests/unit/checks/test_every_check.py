"""What holds for every built-in check."""

import datetime as dt
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.facts import Facts, read
from gpuops.judging import SEVERITIES, discover, judge, judge_group
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE, known, load
from gpuops.shell import Completed, Files

CHECKS = discover()
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
DARK = Unknown("could not look")
WORDS = (
    *("<nvidia_smi_log>", "<gpu id='x'>", "GPU 0: ", "GPU0", "NV18", "X", "\tLink 0: 26.562 GB/s\n", "Xid", "100%"),
    *("/sys/class\0", "/proc/driver/nvidia/version\0", "(rev ff)", "[10de:2330]", "0000:1b:00.0", "\n", "\0"),
)
GARBAGE = st.one_of(st.text(max_size=200), st.lists(st.sampled_from(WORDS)).map("".join))
OF_OTHER_MACHINES = {"roce-priority", "power-supply", "imex"}
"""What no HGX H100 has to show."""
PROFILES = [*known(), NO_PROFILE]


def verdicts(check, facts, profile):
    return judge_group(check, {"n1": facts}, profile) if check.scope == "group" else [judge(check, facts, profile)]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda p: p.name)
@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda c: c.name)
class TestEvery:
    def test_it_never_passes_unseen(self, check, profile):
        facts = Facts("n1", NOW, {probe.name: DARK for probe in check.needs})
        assert not {v.status for v in verdicts(check, facts, profile)} & {"pass", "warn", "fail"}

    def test_it_never_passes_unasked(self, check, profile):
        assert "pass" not in {v.status for v in verdicts(check, Facts("n1", NOW, {}), profile)}


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda c: c.name)
@given(out=GARBAGE, status=st.sampled_from([0, 0, 1, 9, 15, 127]))
def test_garbage_never_passes(check, out, status):
    answers = [
        Completed("n1", p.question, 0 if isinstance(p.question, Files) else status, out, out) for p in check.needs
    ]
    facts = read("n1", NOW, answers, check.needs)
    seen = [not isinstance(facts[probe], Unknown) for probe in check.needs]
    needed = [s for s, probe in zip(seen, check.needs, strict=True) if probe not in check.tolerates]
    if not any(seen) or not all(needed):
        assert "pass" not in {v.status for v in verdicts(check, facts, load("hgx-h100"))}


class TestOnAHealthyMachine:
    @pytest.mark.parametrize("check", [c for c in CHECKS.values() if c.scope != "group"], ids=lambda c: c.name)
    def test_it_passes_and_without_a_need_it_is_unknown(self, h100, check):
        assert h100.judge(check.name).status == ("skipped" if check.name in OF_OTHER_MACHINES else "pass")
        for probe in check.needs:
            if probe not in check.tolerates:
                assert h100.but(**{probe.name: DARK}).judge(check.name).status == "unknown", probe.name

    @pytest.mark.parametrize(
        "name",
        "ecc-uncorrectable row-remap-pending row-remap-failed pcie-link power-limit "
        "throttle temperature fabric-manager".split(),
    )
    def test_gpus_that_leave_out_every_field_do_not_pass(self, h100, name):
        silent = tuple(type(g)(g.index, g.address) for g in h100.values["gpus"])
        gone = {unit: replace(s, load="not-found", active="inactive") for unit, s in h100.values["services"].items()}
        assert h100.seeing(*silent).but(pcie=DARK, services=gone).judge(name).status != "pass"


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda c: c.name)
class TestTold:
    def test_its_docstring_names_its_source(self, check):
        assert re.search(r"[Ss]ource|our own figure", check.doc)
        assert not re.search(r"T\d\b|shared", check.doc)

    def test_it_says_what_it_catches_and_what_to_do(self, check):
        assert check.fix
        assert check.catches
        assert check.catches[-1] != "."

    def test_its_words_are_known(self, check):
        tags = {tag for c in CHECKS.values() for tag in c.tags}
        for word in check.explains + check.blinds:
            assert word.partition(":")[0] in {*CHECKS, *tags}, word
        assert check.severity in SEVERITIES
        assert check.level != "quick" or all(probe.cost in ("cheap", "recalled") for probe in check.needs)
        assert set(check.tolerates) <= set(check.needs)

import itertools
import re

import pytest

from gpuops.errors import ContentError, DocumentError
from gpuops.judging import discover
from gpuops.profile import GRADES, NO_PROFILE, Expected, Profile, detect, known, load

MINE = """\
name: mine
about: a test
match: {gpu_name: L40S, gpu_count: 4}
required: [gpu-count]
values:
  gpu:
    count: {value: 4, source: a label, grade: datasheet}
  pcie:
    width: {value: 16, source: a forum, grade: guess}
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "checks" / "profiles").mkdir(parents=True)
    return tmp_path


def write(project, text, name="mine"):
    (project / "checks" / "profiles" / f"{name}.yml").write_text(text)


def test_a_profile_is_one_new_file(project):
    write(project, MINE)
    mine = load("mine", project)
    assert mine["gpu.count"] == 4
    assert mine.values["gpu.count"] == Expected(4, "a label", "datasheet")
    assert mine.required == {"gpu-count"}
    assert {p.name for p in known(project)} == {p.name for p in known()} | {"mine"}


def test_a_projects_profile_hides_the_built_in_one(project):
    write(project, MINE.replace("name: mine", "name: hgx-h100"), "hgx-h100")
    assert load("hgx-h100", project)["gpu.count"] == 4
    assert load("hgx-h100")["gpu.count"] == 8
    assert [p["gpu.count"] for p in known(project) if p.name == "hgx-h100"] == [4]


def test_an_unknown_profile_is_refused_with_the_nearest():
    with pytest.raises(ContentError, match='did you mean "hgx-h100"'):
        load("hgx-h10")


def test_a_machine_is_recognised_by_its_gpus(project):
    write(project, MINE)
    profiles = known(project)
    assert detect("NVIDIA L40S", 4, profiles).name == "mine"
    assert detect("NVIDIA L40S", 3, profiles) is NO_PROFILE
    assert detect("NVIDIA H100 80GB HBM3", 8, profiles).name == "hgx-h100"
    assert detect("NVIDIA H100 PCIe", 8, profiles) is NO_PROFILE
    assert detect("NVIDIA A100-SXM4-40GB", 8, profiles).name == "dgx-a100"
    assert detect("NVIDIA H200", 8, profiles).name == "hgx-h200"
    assert detect("NVIDIA B200", 8, profiles).name == "hgx-b200"
    assert detect("NVIDIA GB200", 4, profiles).name == "gb200-nvl72"
    assert detect("NVIDIA GB200", 8, profiles) is NO_PROFILE
    assert detect("NVIDIA GB300", 4, profiles).name == "gb300-nvl72"
    assert detect("NVIDIA TITAN RTX", 2, profiles).name == "titan-rtx-2x"


@pytest.mark.parametrize(
    ("gpu_name", "count", "has_nvswitch", "name"),
    [
        ("NVIDIA H100 80GB HBM3", 7, False, "hgx-h100"),
        ("NVIDIA H100 80GB HBM3", 5, False, "hgx-h100"),
        ("NVIDIA H100 80GB HBM3", 1, True, "hgx-h100"),
        ("NVIDIA A100-SXM4-80GB", 6, False, "dgx-a100"),
        ("NVIDIA GB200", 3, False, "gb200-nvl72"),
        ("NVIDIA H100 80GB HBM3", 4, False, "none"),  # half of a board, as clouds sell it
        ("NVIDIA H100 80GB HBM3", 1, False, "none"),
        ("NVIDIA H100 80GB HBM3", 9, True, "none"),
        ("NVIDIA TITAN RTX", 1, False, "none"),
        ("NVIDIA H200 NVL", 8, False, "none"),
        ("NVIDIA H200 NVL", 7, True, "none"),
        ("NVIDIA GeForce RTX 4090", 8, False, "none"),
    ],
)
def test_a_board_that_lost_gpus_is_still_recognised(gpu_name, count, has_nvswitch, name):
    assert detect(gpu_name, count, known(), has_nvswitch=has_nvswitch).name == name


def test_a_judgement_is_as_good_as_its_poorest_number(project):
    write(project, MINE)
    mine = load("mine", project)
    assert mine.grade(("gpu.count",)) == "datasheet"
    assert mine.grade(("gpu.count", "pcie.width")) == "guess"
    assert mine.grade(("gpu.count", "no.such.key")) == "datasheet"
    assert mine.grade(()) == "measured-here"


def test_a_hosts_own_expectation_is_its_measured_truth(project):
    write(project, MINE)
    mine = load("mine", project)
    own = mine.expecting({"pcie.width": 8, "nic.count": 2}, "prod.yml:3:1")
    assert own["pcie.width"] == 8
    assert own.values["nic.count"] == Expected(2, "prod.yml:3:1", "measured-here")
    assert own.grade(("pcie.width",)) == "measured-here"
    assert (own.match, own.required, own.about) == (mine.match, mine.required, mine.about)
    assert mine["pcie.width"] == 16


def test_what_a_profile_does_not_say():
    empty = Profile("empty")
    assert empty.get("gpu.count") is None
    assert empty.get("gpu.count", 3) == 3
    with pytest.raises(KeyError):
        empty["gpu.count"]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            "grade: datasheet",
            "grade: certain",
            r'mine\.yml:7:\d+: unknown grade "certain"; choose one of',
        ),
        (", grade: datasheet", "", r"mine\.yml:7:\d+: gpu\.count needs grade"),
        ("source: a label, ", "", "gpu.count needs source"),
        ("value: 4,", "value: ~,", "gpu.count has no value"),
        ("match: {gpu_name: L40S, gpu_count: 4}", "match: {gpu_name: L40S}", "match needs gpu_name and gpu_count"),
        ("gpu_count: 4", "gpu_count: 0", r"mine\.yml:3:\d+:"),
        ("about:", "abuot:", 'did you mean "about"'),
        ("name: mine\n", "", "a profile needs a name and values"),
        ("required: [gpu-count]", "required: gpu-count", r"mine\.yml:4:\d+: expected a list"),
        ("    count: {", "    count: {unit: W, ", 'unknown key "unit"'),
    ],
)
def test_a_broken_profile_is_one_sentence_with_its_place(project, old, new, complaint):
    assert old in MINE
    write(project, MINE.replace(old, new, 1))
    with pytest.raises(DocumentError, match=complaint) as raised:
        load("mine", project)
    assert "\n" not in str(raised.value)


READ_BY_THE_MODEL = r"allreduce\.((ring|nvls|measured)\.[1-9]\d*|channel\.(tree|nvls))"


@pytest.mark.parametrize("profile", known(), ids=lambda p: p.name)
class TestBuiltIn:
    def test_every_number_has_a_source_that_a_stranger_can_find(self, profile):
        for key, expected in profile.values.items():
            assert expected.grade in GRADES, key
            assert len(expected.source.split()) >= 3, f"{key}: {expected.source}"
            assert not re.search(r"T\d|\[|shared|/work", expected.source), f"{key}: {expected.source}"

    def test_it_is_recognised_and_counts_alike(self, profile):
        assert profile.match.gpu_count == profile["gpu.count"]
        assert detect(profile.match.gpu_name, profile["gpu.count"], known()) == profile

    def test_what_it_requires_are_checks_that_need_no_root(self, profile):
        checks = discover()
        assert profile.required <= set(checks)
        for name in profile.required:
            assert all(getattr(p.question, "become", "never") == "never" for p in checks[name].needs), name

    def test_what_it_says_is_what_checks_and_the_bandwidth_model_read(self, profile):
        read = {key for c in discover().values() for key in c.reads}
        measured = {key for key in profile.values if re.fullmatch(READ_BY_THE_MODEL, key)}
        assert set(profile.values) - measured <= read

    def test_its_all_reduce_figures_are_rates_by_gib_and_rise_with_the_payload(self, profile):
        for key, expected in profile.values.items():
            if key.startswith("allreduce.") and not key.startswith("allreduce.channel."):
                rates = [rate for _, rate in sorted((float(gib), rate) for gib, rate in expected.value.items())]
                assert all(y > 0.99 * x for x, y in itertools.pairwise(rates)), key  # single runs scatter
                assert 0 < rates[0] < 2000, key

    def test_its_channels_are_slower_with_more_nodes(self, profile):
        for key, expected in profile.values.items():
            if key.startswith("allreduce.channel."):
                assert list(expected.value) == ["2", "3"], key
                assert 0 < expected.value["3"] < expected.value["2"] < 100, key

    def test_every_check_finds_its_numbers_or_the_machine_has_no_such_part(self, profile):
        absent = {key for c in discover().values() for key in c.expects if key not in profile.values}
        assert absent <= {"nic.count", "nic.rate_gbps"}

import contextlib
import itertools
import re

import pytest

from gpuops.errors import ContentError, DocumentError
from gpuops.judging import discover
from gpuops.profile import GRADES, NO_PROFILE, Expected, Profile, check_keys, detect, known, load

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
    assert detect("NVIDIA L40S", 3, profiles).name == "l40s"
    assert detect("NVIDIA H100 80GB HBM3", 8, profiles).name == "hgx-h100"
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
        ("NVIDIA H200 NVL", 7, True, "h200-nvl"),
        ("Tesla V100-SXM2-32GB", 7, False, "dgx1-v100"),
        ("Tesla V100-SXM2-32GB", 4, False, "none"),
        ("Tesla V100-SXM3-32GB", 9, False, "dgx2-v100"),
        ("Tesla V100-SXM3-32GB", 1, True, "dgx2-v100"),
    ],
)
def test_a_board_that_lost_gpus_is_still_recognised(gpu_name, count, has_nvswitch, name):
    assert detect(gpu_name, count, known(), has_nvswitch=has_nvswitch).name == name


# names as nvidia-smi prints them, collected from public logs and issues
@pytest.mark.parametrize(
    ("gpu_name", "count", "name"),
    [
        ("Tesla V100-SXM2-16GB", 8, "dgx1-v100"),
        ("Tesla V100-SXM2-32GB", 8, "dgx1-v100"),
        ("Tesla V100-SXM3-32GB", 16, "dgx2-v100"),
        ("Tesla V100-PCIE-16GB", 8, "none"),
        ("A100-SXM-80GB", 8, "dgx-a100"),
        ("NVIDIA A100-SXM4-80GB", 8, "dgx-a100"),
        ("NVIDIA A100-PCIE-40GB", 8, "none"),
        ("NVIDIA A100 80GB PCIe", 8, "none"),
        ("NVIDIA A800-SXM4-80GB", 8, "none"),
        ("NVIDIA H100 80GB HBM3", 8, "hgx-h100"),
        ("NVIDIA H100 PCIe", 2, "h100-pcie"),
        ("NVIDIA H100 NVL", 2, "none"),
        ("NVIDIA H800", 8, "none"),
        ("NVIDIA H200", 8, "hgx-h200"),
        ("NVIDIA H200 NVL", 8, "h200-nvl"),
        ("NVIDIA GH200 480GB", 1, "none"),
        ("NVIDIA B200", 8, "hgx-b200"),
        ("NVIDIA B300 SXM6 AC", 8, "hgx-b300"),
        ("NVIDIA B300", 8, "hgx-b300"),
        ("NVIDIA GB200", 4, "gb200-nvl72"),
        ("NVIDIA GB300", 4, "gb300-nvl72"),
        ("NVIDIA L40S", 1, "l40s"),
        ("NVIDIA L40S-48Q", 1, "none"),
        ("NVIDIA L40", 4, "none"),
        ("NVIDIA L4", 4, "none"),
        ("NVIDIA GeForce RTX 3090", 1, "rtx-3090"),
        ("NVIDIA GeForce RTX 3090 Ti", 1, "none"),
        ("GeForce RTX 3090", 3, "rtx-3090"),
        ("NVIDIA GeForce RTX 4090", 8, "rtx-4090"),
        ("NVIDIA GeForce RTX 4090 D", 1, "none"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 1, "none"),
        ("NVIDIA GeForce RTX 5090", 2, "rtx-5090"),
        ("NVIDIA GeForce RTX 5090 D", 2, "none"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", 1, "none"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 8, "rtx-pro-6000-server"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 2, "rtx-pro-6000-workstation"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 2, "none"),
        ("NVIDIA RTX PRO 6000 Blackwell", 1, "none"),
        ("NVIDIA RTX 6000 Ada Generation", 4, "none"),
        ("NVIDIA TITAN RTX", 2, "titan-rtx-2x"),
        ("TITAN RTX", 2, "titan-rtx-2x"),
        ("NVIDIA A10", 4, "none"),
        ("Tesla T4", 4, "none"),
        ("Graphics Device", 1, "none"),
    ],
)
def test_a_product_name_has_the_profile_of_its_own_board(gpu_name, count, name):
    assert detect(gpu_name, count, known()).name == name


def test_a_match_may_leave_the_count_open_or_give_a_range(project):
    write(project, MINE.replace(", gpu_count: 4}", "}"))
    assert load("mine", project).match.gpu_count is None
    assert load("mine", project).match.fits("NVIDIA L40S", 3)
    write(project, MINE.replace("gpu_count: 4", "gpu_count: 2-4"))
    assert [n for n in range(9) if load("mine", project).match.fits("NVIDIA L40S", n)] == [2, 3, 4]


CHILD = """\
name: child
like: mine
values:
  gpu: {count: {value: 2, source: a smaller chassis, grade: datasheet}}
"""


def test_a_profile_like_another_overrides_its_values(project):
    write(project, MINE)
    write(project, CHILD, "child")
    child = load("child", project)
    assert child["gpu.count"] == 2
    assert child.values["pcie.width"] == Expected(16, "a forum", "guess", inherited_from="mine")
    assert child.values["gpu.count"].inherited_from == ""
    assert (child.required, child.match, child.about) == ({"gpu-count"}, None, "")


def test_inheritance_reaches_through_several_profiles(project):
    write(project, MINE)
    write(project, CHILD, "child")
    write(project, "name: grandchild\nlike: child\nrequired: []\nvalues: {pcie: ~}\n", "grandchild")
    grandchild = load("grandchild", project)
    assert {key: each.inherited_from for key, each in grandchild.values.items()} == {"gpu.count": "child"}
    assert grandchild.required == frozenset()


def test_a_project_may_change_one_value_of_a_built_in_profile(project):
    changed = "values: {power: {limit_watts: {value: 500, source: our racks allow it, grade: measured-here}}}\n"
    write(project, f"name: hgx-h100\nlike: hgx-h100\n{changed}", "hgx-h100")
    own = load("hgx-h100", project)
    assert (own["power.limit_watts"], own["gpu.count"]) == (500, 8)
    assert own.values["gpu.count"].inherited_from == "hgx-h100"


@pytest.mark.parametrize(
    ("like", "complaint"),
    [
        ("child", r"child\.yml:2:\d+: profiles inherit from each other in a circle: child -> child"),
        ("other", r"other\.yml:2:\d+: profiles inherit from each other in a circle: child -> other -> child"),
        ("hgx-h10", r'child\.yml:2:\d+: no profile named "hgx-h10"; did you mean "hgx-h100"'),
        ("[a]", r"child\.yml:2:\d+: expected the name of a profile"),
    ],
)
def test_a_profile_like_nothing_or_itself_is_refused_with_its_place(project, like, complaint):
    write(project, CHILD.replace("like: mine", f"like: {like}"), "child")
    write(project, CHILD.replace("name: child", "name: other").replace("like: mine", "like: child"), "other")
    with pytest.raises(DocumentError, match=complaint):
        load("child", project)


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
        ("match: {gpu_name: L40S, gpu_count: 4}", "match: {gpu_count: 4}", "match needs gpu_name"),
        ("gpu_count: 4", "gpu_count: 4-2", r"mine\.yml:3:\d+: the range 4-2 is empty"),
        ("gpu_count: 4", "gpu_count: 0", r"mine\.yml:3:\d+:"),
        ("about:", "abuot:", 'did you mean "about"'),
        ("name: mine\n", "", "a profile needs a name and values"),
        ("required: [gpu-count]", "required: gpu-count", r"mine\.yml:4:\d+: expected a list"),
        ("    count: {", "    count: {unit: W, ", 'unknown key "unit"'),
        ("value: 4", "value: four", r'mine\.yml:7:20: gpu\.count: a whole number is expected, found "four"'),
        ("value: 4", "value: -4", r"mine\.yml:7:20: gpu\.count: a whole number must be between"),
        ("value: 16", "value: 0x10", r"mine\.yml:9:20: pcie\.width: a whole number is expected"),
        ("count: {value: 4", "ecc: {value: 4", r'mine\.yml:7:18: gpu\.ecc: true or false is expected, found "4"'),
        ("  pcie:\n    width: {value: 16", "  power:\n    limit_watts: {value: -1", "limit_watts must be 0 or more"),
        ("  pcie:\n    width: {value: 16", "  topology:\n    gpu_pairs: {value: {a: b}", "gpu_pairs, found a map"),
        ("  pcie:\n    width: {value: 16", "  allreduce.ring:\n    8: {value: {1: fast}", "8, 1: a number is expected"),
        ("  pcie:\n    width: {value: 16", "  allreduce.ring:\n    8: {value: {one: 3}", 'the rate, found "one"'),
    ],
)
def test_a_broken_profile_is_one_sentence_with_its_place(project, old, new, complaint):
    assert old in MINE
    write(project, MINE.replace(old, new, 1))
    with pytest.raises(DocumentError, match=complaint) as raised:
        load("mine", project)
    assert "\n" not in str(raised.value)


def test_values_are_of_the_type_that_is_read_and_own_keys_of_any(project):
    own = "  fan: {names: {value: [left, right], source: a label, grade: datasheet}}\n"
    ecc = "    ecc: {value: 'yes', source: a label, grade: datasheet}\n"
    watts = "  power: {limit_watts: {value: 350.5, source: a label, grade: datasheet}}\n"
    write(project, MINE.replace("  pcie:", f"{ecc}  pcie:") + watts + own)
    mine = load("mine", project)
    assert [mine[key] for key in ("gpu.ecc", "power.limit_watts", "fan.names")] == [True, 350.5, ["left", "right"]]


@pytest.mark.parametrize(
    ("group", "key", "complaint"),
    [
        ("gpu", "cuont", r'mine\.yml:11:9: unknown key "gpu\.cuont"; did you mean "gpu\.count"\?'),
        ("gpus", "count", r'mine\.yml:11:10: unknown key "gpus\.count"; did you mean "gpu\.count"\?'),
        ("allreduce", "rign.8", r'unknown key "allreduce\.rign\.8"; did you mean "allreduce\.ring\.8"\?'),
        ("nic", "zzz", r'unknown key "nic\.zzz"; gpuops profiles show'),
        ("cpu", "count", ""),
        ("gpu", "fans", ""),
    ],
)
def test_a_key_that_nothing_reads_is_refused_with_its_place(project, group, key, complaint):
    value = "{value: 4, source: a label, grade: datasheet}"
    write(project, f"name: mine\nlike: l40s\n# {'.' * 9}\n\n\n\n\n\n\nvalues:\n  {group}: {{{key}: {value}}}\n")
    with pytest.raises(DocumentError, match=complaint) if complaint else contextlib.nullcontext():
        check_keys(known(project), lambda: ["gpu.fans"])


READ_BY_THE_MODEL = r"allreduce\.((ring|nvls|measured)\.[1-9]\d*|channel\.(tree|nvls))"


@pytest.mark.parametrize("profile", known(), ids=lambda p: p.name)
class TestBuiltIn:
    def test_every_number_has_a_source_that_a_stranger_can_find(self, profile):
        for key, expected in profile.values.items():
            assert expected.grade in GRADES, key
            assert len(expected.source.split()) >= 3, f"{key}: {expected.source}"
            assert not re.search(r"T\d|\[|shared|/work", expected.source), f"{key}: {expected.source}"

    def test_it_is_recognised_and_counts_alike(self, profile):
        assert profile.match.gpu_count == profile.get("gpu.count")
        for name in profile.match.gpu_names:
            assert detect(name, profile.match.fewest, known()) == profile

    def test_what_it_requires_are_checks_that_need_no_root(self, profile):
        checks = discover()
        assert profile.required <= set(checks)
        for name in profile.required:
            needed = set(checks[name].needs) - set(checks[name].tolerates)
            assert all(getattr(p.question, "become", "never") == "never" for p in needed), name

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
        cards = {"nvlink.links", "nvlink.gb_per_s", "gpu.ecc"} if profile.match.gpu_count is None else set()
        is_desktop = any(word in name for name in profile.match.gpu_names for word in ("GeForce", "TITAN"))
        desktops = {"gpu.persistence"} if is_desktop else set()
        assert absent <= {"nic.count", "nic.rate_gbps", "power.declared", "nvswitches.count"} | cards | desktops

import itertools
from dataclasses import replace

import pytest

from gpuops.probes.host.services import Service
from gpuops.probes.nvidia.fabric_manager import FabricManager
from gpuops.probes.nvidia.nvlink import NvLink
from gpuops.probing import Unknown
from gpuops.profile import load

UP = tuple(NvLink(n, 26.562) for n in range(18))


# the rows of GPU0 to GPU7 of an Azure ND40rs v2 (eight V100 SXM2); the NVLinks of each with the others, by number
CUBE_MESH = (
    {1: "NV2", 2: "NV1", 3: "NV2", 6: "NV1"},
    {0: "NV2", 2: "NV2", 3: "NV1", 7: "NV1"},
    {0: "NV1", 1: "NV2", 3: "NV1", 4: "NV2"},
    {0: "NV2", 1: "NV1", 2: "NV1", 5: "NV2"},
    {2: "NV2", 5: "NV1", 6: "NV1", 7: "NV2"},
    {3: "NV2", 4: "NV1", 6: "NV2", 7: "NV1"},
    {0: "NV1", 4: "NV1", 5: "NV2", 7: "NV2"},
    {1: "NV1", 4: "NV2", 5: "NV1", 6: "NV2"},
)


@pytest.fixture
def cube_mesh(h100):
    """Eight V100 as in a DGX-1, connected over PCIe where there is no NVLink."""
    for a, b in itertools.combinations(range(8), 2):
        h100 = h100.with_pair(a, b, CUBE_MESH[a].get(b, "NODE"))
    return replace(h100, profile=load("dgx1-v100"))


def only(verdict):
    (finding,) = verdict.findings
    return finding


class TestNvlinkLinks:
    def test_all_up_passes(self, h100, titan):
        assert h100.judge("nvlink-links").status == "pass"
        assert titan.judge("nvlink-links").status == "pass"

    def test_a_link_that_is_down(self, h100):
        finding = only(h100.with_links_of(2, *UP[:3], NvLink(3, None), *UP[4:]).judge("nvlink-links"))
        assert (finding.part, finding.expected, finding.found, finding.unit) == ("gpu2", 18, 17, "links")
        assert finding.message == "17 of 18 NVLinks are up (down: 3)"
        assert finding.severity == "reset"
        assert "reset GPU 2" in finding.fix

    @pytest.mark.parametrize("links", [(), UP[:17], (NvLink(0, None),) * 18])
    def test_links_that_are_not_told_are_not_up(self, h100, links):
        assert only(h100.with_links_of(2, *links).judge("nvlink-links")).found < 18

    def test_a_slow_link(self, h100):
        finding = only(h100.with_links_of(2, NvLink(0, 25.0), *UP[1:]).judge("nvlink-links"))
        assert (finding.expected, finding.found, finding.unit) == (26.562, 25.0, "GB/s")

    def test_a_rounded_rate_is_the_rate(self, h100):
        assert h100.with_links_of(2, NvLink(0, 26.5), *UP[1:]).judge("nvlink-links").status == "pass"

    def test_a_gpu_of_which_nothing_is_said_is_unknown(self, h100):
        verdict = h100.but(nvlink=h100.values["nvlink"][:7]).judge("nvlink-links")
        assert verdict.status == "unknown"
        assert "GPU 7" in verdict.why

    def test_mig_mode_is_not_judged(self, h100):
        machine = h100.with_gpus(mig_mode=True).but(topo=replace(h100.values["topo"], links={}))
        machine = machine.but(nvlink=tuple(replace(of, links=()) for of in h100.values["nvlink"]))
        assert machine.judge("nvlink-links").status == "skipped"
        assert machine.judge("topology").status == "skipped"

    def test_one_gpu_in_mig_mode_leaves_the_others_judged(self, h100):
        machine = h100.with_gpu(3, mig_mode=True).with_links_of(3)
        assert machine.judge("nvlink-links").status == "pass"
        assert only(machine.with_links_of(5, *UP[:17]).judge("nvlink-links")).part == "gpu5"

    def test_links_that_cannot_be_read_leave_the_others_judged(self, h100):
        told = h100.values["nvlink"]
        blind = tuple(replace(of, links=(), unread="Unknown Error") if of.index == 3 else of for of in told)
        verdict = h100.but(nvlink=blind).judge("nvlink-links")
        assert (verdict.status, verdict.findings, "GPU 3" in verdict.why) == ("unknown", (), True)
        assert only(h100.but(nvlink=blind).with_links_of(5, *UP[:17]).judge("nvlink-links")).part == "gpu5"
        partly = tuple(
            replace(of, links=(*UP[:2], NvLink(2, None)), unread="x") if of.index == 3 else of for of in told
        )
        assert "down: 2" in only(h100.but(nvlink=partly).judge("nvlink-links")).message

    def test_a_bridge_that_lacks_a_link_at_both_ends_is_one_finding(self, titan):
        half = (*titan.values["nvlink"][0].links[:1], NvLink(1, None))
        machine = titan.with_links_of(0, *half).with_links_of(1, *half)
        finding = only(machine.with_pair(0, 1, "NV1").judge("nvlink-links"))
        assert (finding.part, finding.part_label) == ("gpu0", "NVLink bridge of GPU 0 and GPU 1")
        assert "bridge" in finding.fix
        assert machine.with_pair(0, 1, "NV1").findings() == [("nvlink-links", "gpu0")], "topology is an effect"
        assert only(titan.with_links_of(1, *half).judge("nvlink-links")).part == "gpu1"

    def test_without_a_profile_nothing_is_expected(self, titan):
        assert replace(titan, profile=type(titan.profile)("none")).judge("nvlink-links").status == "skipped"


class TestTopology:
    def test_as_the_profile_says_passes(self, h100, titan):
        assert h100.judge("topology").status == "pass"
        assert titan.judge("topology").status == "pass"

    def test_nearer_than_expected_passes(self, titan):
        assert titan.expecting(topology__gpu_pairs="SYS").judge("topology").status == "pass"
        assert titan.with_pair(0, 1, "NODE").expecting(topology__gpu_pairs="SYS").judge("topology").status == "pass"

    @pytest.mark.parametrize("link", ["NV17", "PIX", "SYS"])
    def test_a_far_pair(self, h100, link):
        finding = only(h100.with_pair(2, 6, link).judge("topology"))
        assert (finding.part, finding.expected, finding.found) == ("gpu2", "NV18", link)

    def test_the_legend_has_an_order(self, titan):
        paths = ["NV2", "NV1", "PIX", "PXB", "PHB", "NODE", "SYS"]
        for place, expected in enumerate(paths):
            for other, link in enumerate(paths):
                machine = titan.with_pair(0, 1, link).expecting(topology__gpu_pairs=expected)
                assert (machine.judge("topology").status == "pass") == (other <= place), (expected, link)

    def test_a_gpu_far_from_all_others_is_one_finding(self, h100):
        machine = h100
        for other in (0, 1, 3, 4, 5, 6, 7):
            machine = machine.with_pair(2, other, "NV17")
        finding = only(machine.judge("topology"))
        assert finding.part == "gpu2"
        assert finding.message == "NV17 to GPU 0, 1, 3, 4, 5, 6, 7"

    def test_two_gpus_apart_are_two_findings(self, h100):
        machine = h100.with_pair(2, 3, "SYS").with_pair(2, 4, "SYS").with_pair(6, 7, "SYS")
        assert [f.part for f in machine.judge("topology").findings] == ["gpu2", "gpu6"]

    @pytest.mark.parametrize("link", ["", "X", "NV", "NV18x", "nv18", "???"])
    def test_a_word_outside_the_legend_is_unknown(self, h100, link):
        assert h100.with_pair(2, 6, link).judge("topology").status == "unknown"

    def test_an_expectation_outside_the_legend_is_unknown(self, h100):
        verdict = h100.expecting(topology__gpu_pairs="NVL18").judge("topology")
        assert (verdict.status, '"NVL18" is not a word of nvidia-smi topo -m' in verdict.why) == ("unknown", True)

    def test_an_asymmetric_matrix_is_unknown(self, h100):
        assert h100.with_pair(2, 6, "NV18", back="SYS").judge("topology").status == "unknown"

    def test_a_cut_matrix_is_unknown(self, h100):
        links = {pair: link for pair, link in h100.values["topo"].links.items() if "GPU7" not in pair}
        assert h100.but(topo=replace(h100.values["topo"], links=links)).judge("topology").status == "unknown"

    def test_only_what_this_session_sees_is_judged(self, h100):
        links = {(a, b): "NV18" for a in ("GPU0", "GPU1") for b in ("GPU0", "GPU1") if a != b}
        topo = replace(h100.values["topo"], gpus=("GPU0", "GPU1"), links=links)
        assert h100.seeing(*h100.values["gpus"][:2]).but(topo=topo).judge("topology").status == "pass"

    def test_a_cube_mesh_passes_in_any_numbering(self, cube_mesh):
        assert cube_mesh.judge("topology").status == "pass"

    @pytest.mark.parametrize(("a", "b", "link"), [(0, 1, "SYS"), (0, 1, "NV1"), (3, 5, "NODE"), (6, 7, "PHB")])
    def test_one_lost_link_of_a_cube_mesh_is_one_finding(self, cube_mesh, a, b, link):
        finding = only(cube_mesh.with_pair(a, b, link).judge("topology"))
        assert finding.part == f"gpu{a}"
        assert finding.expected == "2 NV2, 2 NV1, 3 SYS"

    def test_a_gpu_of_a_cube_mesh_without_links_is_one_finding(self, cube_mesh):
        for other in range(7):
            cube_mesh = cube_mesh.with_pair(7, other, "SYS")
        finding = only(cube_mesh.judge("topology"))
        assert (finding.part, finding.found) == ("gpu7", "7 SYS")

    def test_a_cube_mesh_that_lost_a_gpu_keeps_its_other_links(self, cube_mesh):
        assert cube_mesh.seeing(*cube_mesh.values["gpus"][:6]).judge("topology").status == "pass"

    def test_one_gpu_has_no_pair(self, h100):
        assert h100.seeing(h100.values["gpus"][0]).judge("topology").status == "skipped"


def unit(active="active", load="loaded"):
    return {"nvidia-fabricmanager": Service(load, active, "running", "enabled")}


class TestFabricManager:
    def test_running_and_of_the_drivers_version_passes(self, h100):
        assert h100.judge("fabric-manager").status == "pass"

    def test_machines_without_nvswitch_need_none(self, titan):
        assert titan.judge("fabric-manager").status == "skipped"

    @pytest.mark.parametrize("active", ["inactive", "failed", "activating", ""])
    def test_one_that_does_not_run_is_one_finding(self, h100, active):
        machine = h100.but(services=unit(active)).with_gpus(fabric_state="In Progress", fabric_status=None)
        finding = only(machine.judge("fabric-manager"))
        assert (finding.part, finding.severity) == ("fabricmanager", "fail")
        assert "systemctl" in finding.fix

    def test_one_that_is_not_installed(self, h100):
        machine = h100.but(services=unit("inactive", "not-found")).with_gpus(fabric_state=None)
        finding = only(machine.judge("fabric-manager"))
        assert finding.found == "not installed"
        assert finding.fix.startswith("install nvidia-fabricmanager of the driver's version, then systemctl enable")

    def test_one_that_runs_elsewhere_is_judged_by_its_work(self, h100):
        machine = h100.but(services=unit("inactive", "not-found"), fabric_manager=Unknown("not installed"))
        assert machine.judge("fabric-manager").status == "pass"
        assert machine.with_gpu(2, fabric_state="In Progress").judge("fabric-manager").status == "fail"

    def test_another_version_than_the_drivers(self, h100):
        finding = only(h100.but(fabric_manager=FabricManager("580.95.05")).judge("fabric-manager"))
        assert (finding.part, finding.expected, finding.found) == ("fabricmanager", "580.126.16", "580.95.05")
        assert "580.126.16" in finding.fix

    @pytest.mark.parametrize("state", [("In Progress", None), ("Completed", "Failure"), ("Not Started", None)])
    def test_a_gpu_outside_the_fabric(self, h100, state):
        machine = h100.with_gpu(2, fabric_state=state[0], fabric_status=state[1])
        assert only(machine.judge("fabric-manager")).part == "gpu2"

    @pytest.mark.parametrize("need", ["gpus", "services", "fabric_manager", "driver"])
    def test_what_could_not_be_asked_is_unknown(self, h100, need):
        assert h100.but(**{need: Unknown("dark")}).judge("fabric-manager").status == "unknown"

    def test_a_unit_of_which_systemd_says_nothing_is_unknown(self, h100):
        assert h100.but(services={}).judge("fabric-manager").status == "unknown"


class TestAnNvSwitchThatIsGone:
    """Each GPU of an HGX H100 loses the links to it: one fault, and no GPU is to blame."""

    @staticmethod
    def without_a_switch(h100, gpus=range(8)):
        for index in gpus:
            links = tuple(replace(link, gb_per_s=None) if n < 4 else link for n, link in enumerate(of(h100, index)))
            h100 = h100.with_links_of(index, *links)
        return h100

    def test_all_gpus_lack_links_is_one_finding_on_the_baseboard(self, h100):
        (finding,) = self.without_a_switch(h100).judge("nvlink-links").findings
        assert (finding.part, finding.severity, finding.found) == ("baseboard", "reset", 14)
        assert finding.message == "14 of 18 NVLinks are up on each of 8 GPUs"

    def test_seven_of_eight_are_seven_findings(self, h100):
        findings = self.without_a_switch(h100, range(7)).judge("nvlink-links").findings
        assert [str(finding.part) for finding in findings] == [f"gpu{n}" for n in range(7)]

    def test_it_is_an_effect_of_the_missing_switch(self, h100):
        switches = [f for f in h100.values["gpu_functions"] if f.is_nvswitch]
        left = tuple(f for f in h100.values["gpu_functions"] if f is not switches[0])
        machine = self.without_a_switch(h100).but(gpu_functions=left)
        matrix = {pair: "NV14" if word == "NV18" else word for pair, word in machine.values["topo"].links.items()}
        machine = machine.but(topo=replace(machine.values["topo"], links=matrix))
        assert machine.findings() == [("nvswitches", "baseboard")]
        (finding,) = machine.judge_all()["nvswitches"].findings
        assert len(finding.effects) == 2


def of(machine, index):
    return next(each.links for each in machine.values["nvlink"] if each.index == index)

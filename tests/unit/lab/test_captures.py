"""Each tool of the lab beside what the real tool printed: the same lines and columns, once values are masked."""

import itertools
import re
from dataclasses import replace

import pytest

from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.machine import healthy
from gpuops.lab.tools.nvidia_smi import query
from gpuops.lab.tools.programs import run
from gpuops.lab.xids import line


def printed(node, command, *, root=True):
    program, *words = command.split()
    return run(node, program, words, root=root).out


def masked(text):
    text = re.sub(r"~\w+~", "0", text)
    text = re.sub(r"GPU-[0-9a-f-]+|0x[0-9A-Fa-f]+", "#", text)
    text = re.sub(r"\b[0-9A-F]{2}(\.[0-9A-F]{2}){4}\b", "#", text)
    text = re.sub(r"\b([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(\.\d)?\b", "#", text)
    return re.sub(r"[-+]?\d+(\.\d+)*", "#", text)


def one_gpu(node):
    return replace(node, gpus=node.gpus[:1])


def elements(xml):
    """Indentation, tag and unit of every line of the first GPU and before it; a run of one element counts once."""
    found = []
    for text in xml.partition("</gpu>")[0].rstrip().splitlines():
        parts = re.fullmatch(r"(\s*)<([!?/]?\w+)[^>]*>(?:([^<]*)</\w+>)?|(\s*)(\w+)", text)
        assert parts, text
        unit = re.fullmatch(r"[-\d.]+ (\S+)", parts[3] or "")
        found.append((parts[1], parts[2] or parts[5], unit[1] if unit else ""))
    return [key for key, _ in itertools.groupby(found)]


def without_further_memory_clocks(found):
    """Cards differ in how many memory clocks they have: the first one's list stands for all."""
    tags = [tag for _, tag, _ in found]
    return found[: tags.index("/supported_mem_clock")] + found[tags.index("/supported_clocks") :]


def test_xml_of_schema_13(capture):
    real = without_further_memory_clocks(
        elements(capture("nvsmi_xml/h100-schema-13.xml", "nvsmi_xml/k8sti-qx-h100.xml"))
    )
    ours = without_further_memory_clocks(elements(printed(healthy("hgx-h100"), "nvidia-smi -q -x")))
    assert [element[:2] for element in ours] == [element[:2] for element in real]
    units = [(tag, o, r) for (_, tag, o), (_, _, r) in zip(ours, real, strict=True) if o and r]
    assert len(units) > 40
    assert [tag for tag, o, r in units if o != r] == []


def test_xml_of_schema_13_ends_as_the_real_one(capture):
    real = capture("nvsmi_xml/h100-schema-13.xml", "nvsmi_xml/k8sti-qx-h100.xml")
    ours = printed(healthy("hgx-h100"), "nvidia-smi -q -x")
    assert ours.rpartition("</supported_clocks>")[2] == real.rpartition("</supported_clocks>")[2]
    for text in (ours, real):
        assert text.count("</gpu>\n\n") == text.count("<gpu id=") > 1


def test_xml_of_schema_12(capture):
    # another card of the same driver branch, whose temperature limits are margins
    def tags(xml):
        first = re.sub(r"<supported_clocks>.*?</supported_clocks>", "", xml.partition("</gpu>")[0], flags=re.DOTALL)
        return [tag.replace("_tlimit_threshold", "_threshold") for tag in re.findall(r"<(/?\w+)", first)]

    assert tags(printed(healthy("dgx-a100"), "nvidia-smi -q -x")) == tags(
        capture("nvsmi_xml/a100-schema-12.xml", "nvsmi_xml/netdata-rtx-4090-driver-535.xml")
    )


def test_xml_of_a_process(capture):
    real = capture("nvsmi_xml/h100-two-processes.xml", "nvsmi_xml/telegraf-rtx-3080-v12.xml")
    tags = re.findall(r"<(\w+)>", real.partition("<process_info>")[2].partition("</process_info>")[0])
    ours = printed(faulted("hgx-h100", ("gpu0:busy",)), "nvidia-smi -q -x")
    assert re.findall(r"<(\w+)>", ours.partition("<process_info>")[2].partition("</process_info>")[0]) == tags


def labels(text):
    """What stands before the colon, with the colon's column, for the first GPU and before it."""
    rows = text.strip("\n").splitlines()
    second = [i for i, row in enumerate(rows) if row.startswith("GPU 0000")][1:2]
    rows = rows[: second[0]] if second else rows
    return [
        ("GPU", 0) if r.startswith("GPU 0000") else (r.partition(" : ")[0].rstrip(" :"), r.find(": "))
        for r in rows
        if r.strip()
    ]


def test_text_of_branch_590(capture):
    real = labels(capture("nvsmi_q/h100-590-idle.txt", "nvsmi_q/h100-80gb-hbm3__590.48.01-idle.txt"))
    assert labels(printed(faulted("hgx-h100", ("host:driver-skew=590.48.01",)), "nvidia-smi -q")) == real


def test_text_of_branch_595_with_processes(capture):
    real = labels(capture("nvsmi_q/titan-595-two-processes.txt", "nvsmi_q/geforce-rtx-2080-super__595.71.05-idle.txt"))
    node = faulted("titan-rtx-2x", ("host:driver-skew=595.71.05", "gpu0:busy", "gpu0:busy"))
    assert labels(printed(node, "nvidia-smi -q")) == real


def test_text_values_have_the_units_of_the_real_ones(capture):
    def units(text):
        rows = (row.partition(" : ") for row in text.splitlines())
        return {name.strip(): v.split()[-1] for name, _, v in rows if re.match(r"-?[\d.]+ [A-Za-z%]", v)}

    real = units(capture("nvsmi_q/h100-590-idle.txt", "nvsmi_q/h100-80gb-hbm3__590.48.01-idle.txt"))
    ours = units(printed(faulted("hgx-h100", ("host:driver-skew=590.48.01",)), "nvidia-smi -q"))
    assert {name: ours[name] for name in real} == real


def test_csv_has_the_real_header_and_shapes(capture):
    header, values = capture(
        "nvsmi_csv/h100-590-query-gpu.csv", "nvsmi_csv/h100-80gb-hbm3__590.48.01-idle-query-gpu.csv"
    ).splitlines()[:2]
    told_otherwise = {"hostname", "pcie.link.gen.hostmax"}  # a virtual machine does not know its host
    known = query.FIELDS - told_otherwise
    columns = [
        (h, v) for h, v in zip(header.split(", "), values.split(", "), strict=True) if h.partition(" ")[0] in known
    ]
    fields = ",".join(h.partition(" ")[0] for h, _ in columns)
    node = one_gpu(faulted("hgx-h100", ("host:driver-skew=590.48.01",)))
    ours = printed(node, f"nvidia-smi --query-gpu={fields} --format=csv").splitlines()
    assert len(columns) > 50
    assert ours[0] == ", ".join(h for h, _ in columns)
    for (name, real), value in zip(columns, ours[1].split(", "), strict=True):
        shape = value if name == "timestamp" else masked(value)
        assert shape == ("~stamp~" if name == "timestamp" else masked(real)), name


def test_csv_of_processes(capture):
    real = capture(
        "nvsmi_csv/h100-compute-apps.csv", "nvsmi_csv/h100-80gb-hbm3__590.48.01-load-compute-apps.csv"
    ).splitlines()
    fields = ",".join(column.partition(" ")[0] for column in real[0].split(", "))
    ours = printed(
        faulted("hgx-h100", ("gpu0:busy",)), f"nvidia-smi --query-compute-apps={fields} --format=csv"
    ).splitlines()
    assert ours[0] == real[0]
    assert [len(row.split(", ")) for row in ours[1:]] == [8]
    assert ours[1].endswith(" MiB")


def test_listing(capture):
    assert masked(printed(one_gpu(healthy("hgx-h100")), "nvidia-smi -L")) == masked(
        capture("nvsmi_L/h100-one.txt", "nvsmi_L/h100-80gb-hbm3__590.48.01-L.txt")
    )


@pytest.mark.parametrize(
    ("machine", "name", "elsewhere"),
    [
        ("hgx-h100", "h100-status.txt", "h100-80gb-hbm3__590.48.01-nvlink-s.txt"),
        ("dgx-a100", "a100-eight-status.txt", "a100-8x12-25GBs.txt"),
    ],
)
def test_nvlink_status(capture, machine, name, elsewhere):
    def rows(text):
        return [re.sub(r"UUID: \S+\)", "UUID)", " ".join(row.split())) for row in text.splitlines()]

    real = rows(capture(f"nvlink/{name}", f"nvlink/{elsewhere}"))
    node = healthy(machine)
    node = node if len([r for r in real if r.startswith("GPU")]) == 8 else one_gpu(node)
    assert rows(printed(node, "nvidia-smi nvlink -s")) == real


def test_nvlink_errors(capture):
    real = capture("nvlink/h100-errors.txt", "nvlink/stas-h100-nvlink-e.txt").splitlines()
    block = [" ".join(masked(row).split()) for row in real[2:6]]
    ours = printed(healthy("hgx-h100"), "nvidia-smi nvlink -e").splitlines()
    assert [" ".join(masked(row).split()) for row in ours[1:5]] == block


def cells(text):
    """Rows of the matrix as kinds of cells, then the legend as it is."""
    matrix, _, legend = text.partition("\n\n")
    return [
        [re.sub(r"^(NODE|SYS|PIX|PXB|PHB)$", "pci", masked(cell)) for cell in row.split("\t")]
        for row in matrix.splitlines()
    ], legend.strip()


def test_topology_matrix(capture):
    node = healthy("hgx-h100")
    rails = replace(node, nics=node.nics[:8])
    assert cells(printed(rails, "nvidia-smi topo -m")) == cells(
        capture("topo/h100-eight-rails.txt", "topo/hgx-h200-8gpu-8nic-epyc9534.txt")
    )


def test_topology_matrix_of_a_bridge(capture):
    def words(text):
        return [row.split() for row in text.splitlines()[:3]]

    ours = [row[: len(row) - 3] for row in words(printed(healthy("titan-rtx-2x"), "nvidia-smi topo -m"))[:1]]
    real = words(capture("topo/bridge-two-gpus-spaces.txt", "topo/titanrtx-2gpu-nv2.txt"))
    assert ours == [real[0]]
    assert [row[:5] for row in words(printed(healthy("titan-rtx-2x"), "nvidia-smi topo -m"))[1:]] == real[1:]


def test_lspci(capture):
    real = {
        masked(row)
        for row in capture("lspci/a100-listing.txt", "lspci/gpud-nn-a100.txt").splitlines()
        if "3D controller" in row
    }
    ours = {masked(row) for row in printed(healthy("dgx-a100"), "lspci -Dnn -d 10de:20b2").splitlines()}
    assert ours == real


def test_lspci_details(capture):
    real = {masked(row) for row in capture("lspci/h100-details.txt", "lspci/gpud-h100-1b_00.0.txt").splitlines()}
    ours = printed(healthy("hgx-h100"), "lspci -vv -s e7:00.0").splitlines()
    assert [row for row in ours if row and masked(row) not in real] == []
    assert any("LnkSta:" in row for row in ours)


def test_lspci_details_of_a_narrow_link(capture):
    def link(text):
        found = re.search(r"LnkSta:\s+(Speed \S+) \((\w+)\), (Width \S+) \((\w+)\)", text)
        return masked(found[1]), found[2], masked(found[3]), found[4]

    speed, slower, width, whole = link(
        capture("lspci/idle-at-2.5-downgraded.txt", "lspci/a6000-idle-2.5GT-downgraded.txt")
    )
    ours = printed(faulted("hgx-h100", ("gpu0:pcie-width=8",)), "lspci -vv -s 1b:00.0")
    assert link(ours) == (speed, whole, width, slower)


def test_ibstat(capture):
    real = capture("ibstat/h100-a-port-down.txt", "ibstat/ibstat.47.0.h100.some.down.0.txt")
    shapes = {masked(block) for block in re.split(r"\n?(?=CA ')", real) if block}
    for device in ("mlx5_0", "mlx5_8"):
        assert masked(printed(healthy("hgx-h100"), f"ibstat {device}").rstrip("\n")) in shapes, device
    assert masked(printed(faulted("hgx-h100", ("mlx5_8:port-down",)), "ibstat mlx5_8").rstrip("\n")) in shapes


def test_modinfo(capture):
    real = [row.partition(":")[0] for row in capture("modinfo/nvidia.txt", "modinfo/nvidia-a6000.txt").splitlines()]
    ours = printed(healthy("hgx-h100"), "modinfo nvidia").splitlines()
    names = [row.partition(":")[0] for row in ours]
    assert [n for n, _ in itertools.groupby(names)] == [n for n, _ in itertools.groupby(real)]
    assert {re.match(r"\S+ +", row).end() for row in ours} == {16}


def test_chronyc(capture):
    def shape(text):
        return [re.sub(r"\b(slow|fast)\b", "off", masked(row)) for row in text.splitlines()]

    real = shape(capture("chronyc/synchronised.txt", "chronyc/synced-stratum2.txt"))
    ours = shape(printed(healthy("hgx-h100"), "chronyc tracking"))
    changing = {0, 2}  # the server's name and the time itself
    assert [row for i, row in enumerate(ours) if i not in changing] == [
        row for i, row in enumerate(real) if i not in changing
    ]


@pytest.mark.parametrize(
    ("number", "name", "elsewhere"),
    [
        (79, "xid79-off-the-bus.log", "xid79-with-sxid20034.log"),
        (94, "xid94-95-mig.log", "ogkm-xid94-95-mig.log"),
        (95, "xid94-95-mig.log", "ogkm-xid94-95-mig.log"),
        (64, "one-of-each.log", "imbue-xid94-64.log"),
        (74, "other-domains.log", "mixed-xid-forum-lines.log"),
        (109, "one-of-each.log", "xid13-xid109-dmesgT.log"),
        (119, "one-of-each.log", "gpud-xid119-gsp-full.log"),
        (140, "one-of-each.log", "mixed-xid-forum-lines.log"),
    ],
)
def test_xid_lines(capture, number, name, elsewhere):
    def shape(text):
        text = re.sub(r"pid=[^,]+, (name=[^,]+, )?", "pid, ", text)
        return re.sub(r"faulted @ \S+", "faulted @ #", masked(text))

    start = re.compile(rf"NVRM: Xid \(PCI:\S+\): {number},")
    real = {
        shape(r[m.start() :])
        for r in capture(f"kernel_log/{name}", f"kernel_log/{elsewhere}").splitlines()
        if (m := start.search(r))
    }
    assert shape(line(healthy("hgx-h100").gpus[2], number)) in real


def test_version_mismatch(capture):
    ours = printed(faulted("hgx-h100", ("host:version-mismatch",)), "nvidia-smi")
    assert (
        ours.splitlines()[0]
        == capture("nvsmi_error/version-mismatch.txt", "nvsmi_error/lib-mismatch.txt").splitlines()[0]
    )

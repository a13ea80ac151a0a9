"""lspci: NVIDIA's and Mellanox's functions, in the short form and with link details (-vv)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpuops.lab.model import Gpu, Nic, Node, address
from gpuops.lab.tools.answer import Answer
from gpuops.lab.topology import numa_node

GIGATRANSFERS = {1: "2.5", 2: "5", 3: "8", 4: "16", 5: "32", 6: "64"}
_CLASSES = {
    "0200": "Ethernet controller",
    "0207": "Infiniband controller",
    "0300": "VGA compatible controller",
    "0302": "3D controller",
    "0403": "Audio device",
    "0680": "Bridge",
    "0c03": "USB controller",
    "0c80": "Serial bus controller",
}


@dataclass(frozen=True)
class Function:
    """One PCI function: its address, its class and name, and the state of its link."""

    at: str
    class_id: str
    name: str
    vendor: str
    device: str
    revision: str
    link: Link | None
    driver: str
    numa: int

    @property
    def domain(self) -> str:
        """The PCI domain."""
        return self.at[:4]

    @property
    def gone(self) -> bool:
        """True if every read returns only ones."""
        return self.revision == "ff"


@dataclass(frozen=True)
class Link:
    """A PCIe link: generation and lanes, current and maximum."""

    gen: int
    width: int
    gen_max: int
    width_max: int


def functions(node: Node) -> list[Function]:
    """Return every PCI function of the lab's host, by address."""
    all_functions = [f for g in node.gpus for f in _gpu_functions(node, g)]
    all_functions += [_nic_function(node, n) for n in node.nics]
    if node.switches:
        s, driver = node.switches, "nvidia-nvswitch" if node.driver.version else ""
        all_functions += [
            Function(address(p), "0680", s.pci_name, "10de", s.device, revision, None, driver, numa_node(node, p))
            for p, revision in ((p, "ff" if p in s.lost else "a1") for p in s.at)
        ]
    return sorted(all_functions, key=lambda f: f.at)


def _gpu_functions(node: Node, gpu: Gpu) -> Iterator[Function]:
    model, numa = gpu.model, numa_node(node, gpu.path)
    revision = "ff" if gpu.lost else "a1"
    link = Link(gpu.gen, gpu.width, model.gen, model.width)
    driver = "nvidia" if node.driver.version else ""
    yield Function(gpu.address, model.pci_class, model.pci_name, "10de", model.device, revision, link, driver, numa)
    slot = gpu.address.partition(".")[0]
    for number, (class_id, name, device) in enumerate(model.companions, start=1):
        yield Function(f"{slot}.{number}", class_id, name, "10de", device, revision, None, "snd_hda_intel", numa)


def _nic_function(node: Node, nic: Nic) -> Function:
    class_id = "0207" if nic.link_layer == "InfiniBand" else "0200"
    link = Link(nic.generation, nic.lanes or nic.width, nic.generation, nic.width)
    numa = numa_node(node, nic.at)
    return Function(nic.address, class_id, nic.pci_name, "15b3", nic.device, "00", link, "mlx5_core", numa)


@dataclass(frozen=True)
class _Form:
    """The parsed options."""

    numeric: bool = False
    domain: bool = False
    verbose: bool = False
    vendor: str = ""
    device: str = ""
    slot: str = ""


def lspci(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``lspci WORDS`` prints."""
    form = _form(words)
    if form is None:
        return Answer(err="lspci: unrecognized option\nUsage: lspci [<switches>]\n", code=1)
    chosen = [f for f in functions(node) if _matches(f, form)]
    # -D is only needed on machines whose devices are all in domain 0
    form = replace(form, domain=form.domain or any(f.domain != "0000" for f in functions(node)))
    text = "".join(_line(f, form) + ("".join(_details(f, root=root)) + "\n" if form.verbose else "") for f in chosen)
    if form.verbose and not (form.vendor or form.device or form.slot):
        text += "".join(f"{row}\n" for row in _bridges(node, root=root))
    return Answer(out=text)


def _bridges(node: Node, *, root: bool) -> Iterator[str]:
    """Yield the ports of PCIe switches and root complexes above GPUs and adapters."""
    paths = [device.split("/") for device in (*(g.path for g in node.gpus), *(n.at for n in node.nics))]
    for at in sorted({at for path in paths for at in path[1:-1]}):
        yield f"{at.removeprefix('0000:')} PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)"
        if not root:
            yield "\tCapabilities: <access denied>\n"
            continue
        on = "+" if at in node.acs else "-"
        yield "\tCapabilities: [148 v1] Access Control Services"
        yield "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+"
        redirects = f"ReqRedir{on} CmpltRedir{on} UpstreamFwd{on}"
        yield f"\t\tACSCtl:\tSrcValid{on} TransBlk- {redirects} EgressCtrl- DirectTrans-\n"


def _form(words: Sequence[str]) -> _Form | None:
    letters, values, rest = "", {"d": "", "s": ""}, list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            return None
        if word[1:2] in values:
            values[word[1]] = word[2:] or (rest.pop(0) if rest else "")
        else:
            letters += word[1:]
    if set(letters) - set("Dnkvq"):
        return None
    vendor, _, device = values["d"].partition(":")
    return _Form("nn" in letters, "D" in letters, "v" in letters, vendor.lower(), device.lower(), values["s"].lower())


def _matches(function: Function, form: _Form) -> bool:
    slot = form.slot if form.slot.count(":") != 1 else f"0000:{form.slot}"
    return (
        form.vendor in ("", function.vendor)
        and form.device in ("", function.device)
        and (not slot or function.at == slot or function.at.startswith(f"{slot}."))
    )


def _line(function: Function, form: _Form) -> str:
    at = function.at if form.domain else function.at.removeprefix("0000:")
    kind, name = _CLASSES[function.class_id], function.name
    if form.numeric:
        kind, name = f"{kind} [{function.class_id}]", f"{name} [{function.vendor}:{function.device}]"
    revision = "" if function.revision == "00" else f" (rev {function.revision})"
    return f"{at} {kind}: {name}{revision}\n"


def _details(function: Function, *, root: bool) -> Iterator[str]:
    if function.gone:
        yield "\t!!! Unknown header type 7f\n"
        yield from _in_use(function)
        return
    yield "\tControl: I/O- Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr- Stepping- SERR- FastB2B- DisINTx+\n"
    yield "\tStatus: Cap+ 66MHz- UDF- FastB2B- ParErr- DEVSEL=fast >TAbort- <TAbort- <MAbort- >SERR- <PERR- INTx-\n"
    yield "\tLatency: 0\n"
    yield f"\tNUMA node: {function.numa}\n"
    if not root:
        yield "\tCapabilities: <access denied>\n"
    elif function.link:
        yield from _express(function.link)
    yield from _in_use(function)


def _in_use(function: Function) -> Iterator[str]:
    if function.driver:
        yield f"\tKernel driver in use: {function.driver}\n"


def _express(link: Link) -> Iterator[str]:
    yield "\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n"
    now, fastest = GIGATRANSFERS[link.gen], GIGATRANSFERS[link.gen_max]
    yield f"\t\tLnkCap:\tPort #0, Speed {fastest}GT/s, Width x{link.width_max}, ASPM not supported\n"
    yield "\t\t\tClockPM- Surprise- LLActRep- BwNot- ASPMOptComp+\n"
    speed = "ok" if link.gen == link.gen_max else "downgraded"
    width = "ok" if link.width == link.width_max else "downgraded"
    yield f"\t\tLnkSta:\tSpeed {now}GT/s ({speed}), Width x{link.width} ({width})\n"
    yield "\t\t\tTrErr- Train- SlotClk+ DLActive- BWMgmt- ABWMgmt-\n"

"""What a text says in the words of the capture collection: JSON as its ``X.expect.json`` files have it, for each kind.

The one place that knows that format, so that the probes' own types never bend to it. Where the format keeps what our
types drop (raw text, an element's name), the mapping reads the parser's flat text, which the types are built from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpuops.catalogue import Catalogue
from gpuops.probes.host.kernel_log import Aer, SXid, Xid, parse_kernel_log
from gpuops.probes.host.lspci import parse_lspci_links
from gpuops.probes.network.gids import parse_show_gids
from gpuops.probes.network.ib import IbPort, parse_ibstat
from gpuops.probes.network.ib_write_bw import read_table
from gpuops.probes.nvidia.nccl_tests import Table, parse_nccl_tests, read_tables
from gpuops.probes.nvidia.nvidia_smi.csv import parse_gpu_csv
from gpuops.probes.nvidia.nvidia_smi.failure import parse_error
from gpuops.probes.nvidia.nvidia_smi.listing import parse_gpu_list
from gpuops.probes.nvidia.nvidia_smi.query import parse_query, read_query
from gpuops.probes.nvidia.nvidia_smi.record import GpuRecord
from gpuops.probes.nvidia.nvidia_smi.xml import parse_xml, read_xml
from gpuops.probes.nvidia.nvlink import GpuLinks, parse_nvlink
from gpuops.probes.nvidia.topo import Topology, parse_topo
from gpuops.probing import Unknown

Json = dict[str, Any]

_SMI_CLASSES = {"unknown-handle": "gpu_lost", "version-mismatch": "nvml_mismatch"}
_POWER_DRAW = ("gpu_power_readings/power_draw", "gpu_power_readings/instant_power_draw", "power_readings/power_draw")
_POWER_LIMIT = ("gpu_power_readings/current_power_limit", "power_readings/power_limit")


def expectation(kind: str, text: str) -> Json | Unknown:
    """``text`` as the collection's kind ``kind`` describes it; `KeyError` for a kind that is not in `KINDS`."""
    return KINDS[kind](text)


def _topo(text: str) -> Json | Unknown:
    value = parse_topo(text)
    if isinstance(value, Unknown):
        return value
    names = (*value.gpus, *value.nics)
    return {
        "gpus": list(value.gpus),
        "nics": list(value.nics),
        "links": {a: {b: value.links.get((a, b), "X") for b in names} for a in names},
        "affinity": {gpu: _affinity(value, gpu) for gpu in value.gpus},
        "nic_legend": {nic: device for nic, device in value.nic_names.items() if nic != device},
    }


def _affinity(value: Topology, gpu: str) -> Json:
    columns = {name: getattr(value, name) for name in ("cpu_affinity", "numa_affinity", "gpu_numa_id")}
    return {name: cells[gpu] for name, cells in columns.items() if cells}


def _nvlink(text: str) -> Json | Unknown:
    """GPU 0 alone is written as links and message, any other answer as a list of GPUs with link numbers in quotes."""
    gpus = parse_nvlink(text)
    if isinstance(gpus, Unknown):
        return gpus
    if [gpu.index for gpu in gpus] == [0]:
        return {"links": [[n, rate] for n, rate in _rates(gpus[0])], "message": gpus[0].message or None}
    return {
        "gpus": [{"index": g.index, "name": g.name, "links": [[str(n), rate] for n, rate in _rates(g)]} for g in gpus]
    }


def _rates(gpu: GpuLinks) -> list[tuple[int, str]]:
    return [(k.index, "<inactive>" if k.gb_per_s is None else f"{k.gb_per_s:g} GB/s") for k in gpu.links]


def _smi_xml(text: str) -> Json | Unknown:
    value, answer = parse_xml(text), read_xml(text)
    if isinstance(value, Unknown):
        return value
    if isinstance(answer, Unknown):
        return answer
    top = {name: answer.fields.get(name) for name in ("driver_version", "cuda_version", "attached_gpus")}
    return top | {"gpus": [_smi_gpu(record) for record in answer.records]}


def _smi_gpu(record: GpuRecord) -> Json:
    fields = record.fields
    link = "pci/pci_gpu_link_info"
    return {
        "id": record.address,
        "name": fields.get("product_name"),
        "uuid": fields.get("uuid"),
        "mig_mode": fields.get("mig_mode/current_mig"),
        "n_mig_devices": record.mig_devices,
        "memory_total": fields.get("fb_memory_usage/total"),
        "memory_used": fields.get("fb_memory_usage/used"),
        "temp": fields.get("temperature/gpu_temp"),
        "util": fields.get("utilization/gpu_util"),
        "power_draw": _first_told(fields, _POWER_DRAW),
        "power_limit": _first_told(fields, _POWER_LIMIT),
        "pcie_gen": [fields.get(f"{link}/pcie_gen/{which}_link_gen") for which in ("current", "max")],
        "pcie_width": [fields.get(f"{link}/link_widths/{which}_link_width") for which in ("current", "max")],
        **_reasons(fields),
        "ecc": fields.get("ecc_mode/current_ecc"),
        "remapped_rows": fields.get("remapped_rows", _children(fields, "remapped_rows") or None),
        "retired_pages_present": any(path.startswith("retired_pages") for path in fields),
        "fabric_state": fields.get("fabric/state"),
        "fabric_status": fields.get("fabric/status"),
        "processes": len(record.processes),
    }


def _first_told(fields: Mapping[str, str], paths: tuple[str, ...]) -> Json | None:
    path = next((path for path in paths if path in fields), None)
    return {"path": path, "value": fields[path]} if path else None


def _reasons(fields: Mapping[str, str]) -> Json:
    for element in ("clocks_event_reasons", "clocks_throttle_reasons"):
        told = _children(fields, element)
        if told:
            return {"reasons_element": element, "reasons_active": [n for n, state in told.items() if state == "Active"]}
    return {"reasons_element": None, "reasons_active": None}


def _children(fields: Mapping[str, str], element: str) -> dict[str, str]:
    """The text of the direct children of ``element`` that have no children themselves."""
    below = {path.removeprefix(f"{element}/"): text for path, text in fields.items() if path.startswith(f"{element}/")}
    return {name: text for name, text in below.items() if "/" not in name}


def _smi_query(text: str) -> Json | Unknown:
    value, answer = parse_query(text), read_query(text)
    if isinstance(value, Unknown):
        return value
    if isinstance(answer, Unknown):
        return answer
    names = [record.fields.get("product_name") for record in answer.records]
    return {
        "driver": answer.fields["driver_version"],
        "attached_gpus": value.attached_gpus,
        "gpu_ids": [record.address for record in answer.records],
        "names": [name for name in names if name],
        "n_processes": sum(len(record.processes) for record in answer.records),
    }


def _smi_csv(text: str) -> Json | Unknown:
    rows = parse_gpu_csv(text)
    if isinstance(rows, Unknown) or not rows:
        return rows if isinstance(rows, Unknown) else Unknown("there is no row below the header")
    headings = {name: f"{name} [{rows[0].units[name]}]" if name in rows[0].units else name for name in rows[0].cells}
    return {
        "n_columns": len(headings),
        "n_rows": len(rows),
        "first_row": {headings[name]: cell for name, cell in rows[0].cells.items()},
    }


def _smi_list(text: str) -> Json | Unknown:
    gpus = parse_gpu_list(text)
    if isinstance(gpus, Unknown):
        return gpus
    return {
        "gpus": [{"index": gpu.index, "name": gpu.name, "uuid": gpu.uuid} for gpu in gpus],
        "mig": [
            {"gpu": gpu.index, "index": mig.index, "profile": mig.profile, "uuid": mig.uuid}
            for gpu in gpus
            for mig in gpu.mig_devices
        ],
    }


def _smi_error(text: str) -> Json | Unknown:
    error = parse_error(text)
    if error is None:
        return Unknown("no sentence of nvidia-smi about a failure")
    return {"class": _SMI_CLASSES.get(error.kind, error.kind.replace("-", "_"))}


def _lspci(text: str) -> Json | Unknown:
    """The link of the first function."""
    functions = parse_lspci_links(text)
    if isinstance(functions, Unknown):
        return functions
    link = functions[0]
    return {
        "bdf": link.address.partition(":")[2],
        "lnkcap": [f"{link.max_speed_gt_per_s:g}GT/s", f"x{link.max_width}"],
        "lnksta": [
            f"{link.speed_gt_per_s:g}GT/s",
            link.speed_word or None,
            f"x{link.width}",
            link.width_word or None,
        ],
    }


def _kernel_log(text: str) -> Json | Unknown:
    """Xid and SXid events; PCIe errors are not in this format."""
    log = parse_kernel_log(text)
    if isinstance(log, Unknown):
        return log
    events = [
        _xid(event) if isinstance(event, Xid) else _sxid(event) for event in log.events if not isinstance(event, Aer)
    ]
    return {"n_lines": log.lines, "events": events}


def _xid(event: Xid) -> Json:
    return {
        "line": event.line,
        "kind": "xid",
        "pci": event.address.partition(".")[0],
        "mig": event.mig or None,
        "xid": event.code,
        "pid": event.pid,
        "message_contains": event.text[:60],
    }


def _sxid(event: SXid) -> Json:
    return {
        "line": event.line,
        "kind": "sxid",
        "switch": event.switch,
        "pci": event.address,
        "sxid": event.code,
        "severity_word": event.severity.capitalize() or None,
    }


def _ibstat(text: str) -> Json | Unknown:
    value = parse_ibstat(text)
    if isinstance(value, Unknown):
        return value
    return {"cas": [_channel_adapter(port) for port in value.ports], "trailing_error": value.error or None}


def _channel_adapter(port: IbPort) -> Json:
    return {
        "ca": port.device,
        "type": port.hca_type,
        "fw": port.firmware,
        "state": port.state,
        "phys": port.phys_state,
        "rate": None if port.rate_gbps is None else f"{port.rate_gbps:g}",
        "link_layer": port.link_layer,
    }


def _nccl(text: str) -> Json | Unknown:
    """All runs of a log as one; ``root_column`` is told only where it stands beside ``redop``."""
    tables = [table for table in read_tables(text) if table.cells]
    if isinstance(parsed := parse_nccl_tests(text), Unknown):
        return parsed
    rows = [_nccl_row(table, cells) for table in tables for cells in table.cells]
    largest = max(reversed(rows), key=lambda row: row["size"])
    bounds = [table.out_of_bounds for table in tables if table.out_of_bounds is not None]
    return {
        "n_rows": len(rows),
        "check_column": tables[0].check_column,
        "root_column": {"redop", "root"} <= set(tables[0].columns),
        "avg_bus_bandwidth": [run.average_gb_per_s for run in parsed if run.average_gb_per_s is not None],
        "out_of_bounds": [{"count": count, "status": status} for count, status in bounds],
        "ranks": [{name: getattr(r, name) for name in r.__slots__} for table in tables for r in table.ranks],
        "iters_column": "#iters" in tables[0].columns,
        "first_row": rows[0],
        "last_row": rows[-1],
        "max_size_busbw_oop": largest["oop"]["busbw"],
    }


def _nccl_row(table: Table, cells: tuple[str, ...]) -> Json:
    named = dict(zip(table.columns, cells, strict=True))
    row: Json = {"size": int(named["size"]), "count": int(named["count"])}
    row |= {name: named.get(name) for name in ("type", "redop", "root")}
    for half, in_place in (("oop", False), ("ip", True)):
        told = table.half(cells, in_place=in_place)
        row[half] = {"time_us": told.get("time"), "algbw": told["algbw"], "busbw": told["busbw"]}
        row[half]["check"] = told[str(table.check_column)]
    return row


def _ib_write_bw(text: str) -> Json | Unknown:
    """Without a header there is nothing to read, which this format has as an empty answer."""
    table = read_table(text)
    return {"rows": [list(row) for row in table.rows], "header": table.header or None, "units": table.unit or None}


def _show_gids(text: str) -> Json | Unknown:
    found = parse_show_gids(text)
    if isinstance(found, Unknown):
        return found
    routed = [gid for gid in found if gid.kind == "RoCE v2" and gid.ipv4]
    return {"rocev2_ipv4": [[gid.device, gid.port, gid.index, gid.ipv4, gid.interface] for gid in routed]}


KINDS: dict[str, Callable[[str], Json | Unknown]] = {
    "topo": _topo,
    "nvlink": _nvlink,
    "nvsmi_xml": _smi_xml,
    "nvsmi_q": _smi_query,
    "nvsmi_csv": _smi_csv,
    "nvsmi_L": _smi_list,
    "nvsmi_error": _smi_error,
    "lspci": _lspci,
    "kernel_log": _kernel_log,
    "ibstat": _ibstat,
    "show_gids": _show_gids,
    "nccl": _nccl,
    "ib_write_bw": _ib_write_bw,
    "inventory": partial(Catalogue().parse, "inventory"),
}
"""The collection's kinds that gpuops reads, by their folder."""

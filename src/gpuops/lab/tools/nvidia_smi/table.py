"""``nvidia-smi`` without arguments: the summary table."""

from __future__ import annotations

from gpuops.lab.identity import NOW
from gpuops.lab.model import Gpu, Node

_REASON_BITS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
}
_WIDTHS = (41, 24, 22)


def reason_mask(gpu: Gpu) -> str:
    """Return the clock event reasons as NVML's bit mask, sixteen hex digits."""
    return f"0x{sum(_REASON_BITS[r] for r in gpu.reasons):016X}"


def table(node: Node) -> str:
    """Return the summary table."""
    version = node.driver.userspace
    versions = f"NVIDIA-SMI {version:<22} Driver Version: {version:<14} CUDA Version: {node.driver.cuda:<8}"
    rule = "+" + "-" * 89 + "+"
    head = [
        NOW,
        rule,
        f"| {versions} |",
        _line("-", "+", "|"),
        _cells(f"{'GPU  Name':<25}Persistence-M", "Bus-Id          Disp.A", "Volatile Uncorr. ECC"),
        _cells("Fan  Temp   Perf          Pwr:Usage/Cap", f"{'Memory-Usage':>22}", "GPU-Util  Compute M."),
        _cells("", "", f"{'MIG M.':>20}"),
        _line("=", "+", "|"),
    ]
    body = [line for gpu in node.visible for line in (*_rows(node, gpu), _line("-", "+", "+"))]
    return "\n".join([*head, *body, "", *_processes(node, rule), ""])


def _line(char: str, inner: str, edge: str) -> str:
    return edge + inner.join(char * width for width in _WIDTHS) + edge


def _cells(*cells: str) -> str:
    return "|" + "|".join(f" {cell:<{width - 1}}" for cell, width in zip(cells, _WIDTHS, strict=True)) + "|"


def _rows(node: Node, gpu: Gpu) -> tuple[str, str, str]:
    model = gpu.model
    ecc = str(gpu.ecc_uncorrectable) if model.ecc else "N/A"
    persistence = "On" if node.driver.persistence else "Off"
    fan = "41%" if model.fan else "N/A"
    power = f"{gpu.watts:.0f}W / {gpu.limit_watts:.0f}W"
    memory = f"{gpu.used_mib}MiB / {model.memory_mib}MiB"
    return (
        _cells(f"{gpu.index:>3}  {model.name:<27}{persistence:>5}  ", f"{gpu.bus_id:<16} {'Off':>4} ", f"{ecc:>20}"),
        _cells(
            f"{fan:<4} {gpu.celsius:>3}C    {gpu.state:<4} {power:>20} ",
            f"{memory:>22}",
            f"{gpu.utilization_percent:>6}% {gpu.prints.get('compute_mode', 'Default')[:11]:>12}",
        ),
        _cells("", "", f"{('Disabled', 'Enabled')[gpu.mig] if model.mig else 'N/A':>20}"),
    )


def _processes(node: Node, rule: str) -> list[str]:
    rows = [
        f"|{gpu.index:>5}   N/A  N/A {p.pid:>15}      C   {p.name:<38}{p.memory_mib:>7}MiB |"
        for gpu in node.visible
        for p in gpu.processes
    ]
    head = [
        rule,
        f"| {'Processes:':<88}|",
        f"| {' GPU   GI   CI              PID   Type   Process name                        GPU Memory ':<88}|",
        f"| {'       ID   ID                                                               Usage      ':<88}|",
        "|" + "=" * 89 + "|",
    ]
    return [*head, *(rows or [f"| {' No running processes found':<88}|"]), rule]

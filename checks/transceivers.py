"""Optics and cables of active ports are within their own limits, and errors are corrected."""

from collections.abc import Iterator, Mapping

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.probes.network.transceivers import OpticalReading, Transceiver
from gpuops.probes.network.transceivers import transceivers as probe

_MARGIN_DB = 1.0
_WARM_CELSIUS, _HOT_CELSIUS = 65.0, 75.0
_EFFECTIVE_BER, _RAW_BER = 1e-12, 1e-7
_SETTLED_MINUTES = 10.0
_WELL = ("no issue was observed", "n/a", "")
_BAD_SIGNAL = "bad signal integrity"


@check(
    needs=probe,
    severity="fail",
    tags=("standard", "network"),
    catches="a dirty or dying optic, which costs retransmissions long before the link drops",
    fix="clean and reseat the optic or cable; swap it with a known good one; then replace it",
)
def transceivers(
    by_device: Mapping[str, Transceiver | Unknown], _profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """Each lit lane's power is within 1 dB of the module's own range; effective error rates are at most 1e-12.

    65 °C warns, 75 °C fails. Bad signal integrity is ignored below a raw error rate of 1e-7. Error rates count from ten
    minutes after the counters were cleared. Copper cables have no optical power, and lanes without light are unused.
    Source: scitix/sichek, transceiver component (1 dB, 65 and 75 °C); oracle-quickstart/oci-hpc, check_gpu_setup.py
    (raw error rate); NVIDIA DCGM, DcgmGPUHardwareLimits.h (1e-12, for NVLink).
    """
    if not by_device:
        yield NotApplicable("there is no RDMA device, or mlxlink (MFT) is not installed")
    for device, port in by_device.items():
        if isinstance(port, Unknown):
            yield Unknown(f"{device}: {port.why}", needs_root=port.needs_root)
        elif port.state.lower() == "active":
            yield from _judge(PartName(device, f"{device} ({port.module})" if port.module else device), port)


def _judge(part: PartName, port: Transceiver) -> Iterator[Finding]:
    faults = [*_powers("receive", port.rx_dbm), *_powers("transmit", port.tx_dbm), *_heat(port), *_errors(port)]
    if faults:
        yield Finding("; ".join(faults), part=part, code="transceiver")
    elif port.celsius and max(port.celsius.values) >= _WARM_CELSIUS:
        found = max(port.celsius.values)
        message = f"the transceiver has {found:g} °C"
        fix = "check the airflow of the node and of the adapter"
        yield Finding(message, expected=_WARM_CELSIUS, found=found, unit="°C", fix=fix, part=part, severity="warn")
    elif port.recommendation.lower() not in (*_WELL, _BAD_SIGNAL):
        yield Finding(f"mlxlink reports: {port.recommendation}", found=port.recommendation, part=part, severity="warn")


def _powers(what: str, reading: OpticalReading | None) -> Iterator[str]:
    if reading and reading.low is not None and reading.high is not None:
        outside = [v for v in reading.values if v < reading.low - _MARGIN_DB or v > reading.high + _MARGIN_DB]
        if outside:
            lanes = ", ".join(f"{value:g}" for value in outside)
            yield f"{what} power {lanes} dBm, allowed {reading.low:g} to {reading.high:g}"


def _heat(port: Transceiver) -> Iterator[str]:
    if port.celsius and max(port.celsius.values) >= _HOT_CELSIUS:
        yield f"the transceiver has {max(port.celsius.values):g} °C"


def _errors(port: Transceiver) -> Iterator[str]:
    if port.minutes is not None and port.minutes < _SETTLED_MINUTES:
        return
    if port.effective_ber is not None and port.effective_ber > _EFFECTIVE_BER:
        yield f"effective bit error rate {port.effective_ber:g}"
    if port.recommendation.lower() == _BAD_SIGNAL and (port.raw_ber is None or port.raw_ber >= _RAW_BER):
        yield f"bad signal integrity, raw bit error rate {port.raw_ber or 0:g}"

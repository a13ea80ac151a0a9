"""The kernel log lines of an Xid, which lab faults leave behind.

The wording follows NVIDIA's open kernel modules; the details (addresses, channels) are invented and always the same.
"""

from __future__ import annotations

from gpuops.lab.model import Gpu

_UNKNOWN_PROCESS = "pid='<unknown>', name=<unknown>, "
_PROCESS = "pid=48211, name=python3, "
# number -> the named process, and the text after it
_TEXTS = {
    13: (_PROCESS, "Graphics SM Warp Exception on (GPC 3, TPC 2, SM 1): Out Of Range Address"),
    31: (
        _PROCESS,
        (
            "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_14 faulted @ 0x7f2f_cca58000. "
            "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
        ),
    ),
    43: (_PROCESS, "Ch 00000008"),
    45: (_PROCESS, "Ch 0000000b"),
    48: (
        _UNKNOWN_PROCESS,
        (
            "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 4, "
            "subpartition 1."
        ),
    ),
    61: (_UNKNOWN_PROCESS, "0cde(3098) 00000000 00000000"),
    62: (_UNKNOWN_PROCESS, "32260b5e 000154b0 00000000 2026da96 202b5626 202b5832"),
    63: (
        _UNKNOWN_PROCESS,
        "Row Remapper: New row (0x00000002eebc4100) marked for remapping, reset gpu to activate.",
    ),
    64: (_UNKNOWN_PROCESS, "Row Remapper Error: (0x00000002eebc4100) - All reserved rows for bank are remapped"),
    69: (_PROCESS, "Class Error: ChId 0008, Class 0000cbc0, Offset 00000000, Data 00000000, ErrorCode 0000000c"),
    74: (
        _UNKNOWN_PROCESS,
        "NVLink: fatal error detected on link {link}(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    ),
    79: (_UNKNOWN_PROCESS, "GPU has fallen off the bus."),
    92: (_UNKNOWN_PROCESS, "High single-bit ECC error rate"),
    94: (_PROCESS, "Contained: CE User Channel (0x9). RST: No, D-RST: No"),
    95: (_PROCESS, "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No"),
    109: (_PROCESS, "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005"),
    119: (
        _PROCESS,
        (
            "Timeout after 6s of waiting for RPC response from GPU{gpu} GSP! Expected function 103 (GSP_RM_ALLOC) "
            "(0x2081 0x4)."
        ),
    ),
    120: (_UNKNOWN_PROCESS, "GSP task timeout @ pc:0x4bd36c4, task: 1"),
    140: (
        _UNKNOWN_PROCESS,
        "An uncorrectable ECC error detected (possible firmware handling failure) DRAM:0, LTC:0, MMU:0, PCIE:0",
    ),
    144: ("", "SAW_MVB Fatal XC0 i0 Link {link:02d} (0x00000021 0x00000002 0x00000000 0x00000000)"),
    145: ("", "RLW_RXPIPE Nonfatal XC0 i0 Link {link:02d} (0x0409a0c2 0x00000008 0x00000001 0x00000000)"),
    149: ("", "NETIR_LINK_EVT Fatal XC0 i0 Link {link:02d} (0x004505c6 0x00000000 0x00000000 0x00000000)"),
    150: ("", "MSE_WATCHDOG Fatal XC0 i0 Link -1 (0x00000000 0x00000000 0x00000000 0x00000000)"),
    154: ("", "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
}


def line(gpu: Gpu, number: int, *, link: int = 0) -> str:
    """Return the log line of Xid ``number`` on ``gpu``; a number without its own text gets a generic one."""
    who, text = _TEXTS.get(number, (_UNKNOWN_PROCESS, "unknown error"))
    return f"NVRM: Xid (PCI:{slot(gpu)}): {number}, {who}{text.format(link=link, gpu=gpu.index)}"


def slot(gpu: Gpu) -> str:
    """Return the address of ``gpu`` as Xids write it: without the function."""
    return gpu.address.rpartition(".")[0]

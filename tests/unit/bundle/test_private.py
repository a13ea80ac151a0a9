"""Nothing private passes, and what a vendor needs stays."""

import base64
import json

import pytest
from tests.unit.checks.lab_node import HOST_VALUES

from gpuops.bundle.private import MASK, Private, cleaned, cleaned_document, private_of
from gpuops.lab.identity import personalize
from gpuops.lab.machine import healthy, names
from gpuops.lab.tools.programs import PROGRAMS, run
from gpuops.secret import Secret

NOTHING = Private()
JOB = "/home/alice/project-x/train.py --wandb-key=3f9c2a7e11 --data s3://bucket"
SMI_TEXT = f"""\
    Product Name                          : NVIDIA H100 80GB HBM3
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 48211
            Type                          : C
            Name                          : {JOB}
            Used GPU Memory               : 65000 MiB
"""


@pytest.mark.parametrize(
    "text",
    [
        SMI_TEXT,
        f"<process_info><process_name>{JOB}</process_name></process_info>",
        f"|    0   N/A  N/A     48211      C   {JOB}      65000MiB |",
        f"NVRM: Xid (PCI:0000:1b:00): 31, pid=48211, name={JOB}, Ch 00000010",
    ],
)
def test_a_process_keeps_its_base_name_only(text):
    result = cleaned(text, NOTHING)
    assert "alice" not in result.text
    assert "3f9c2a7e11" not in result.text
    assert "train.py" in result.text
    assert result.removed["process names"] == 1


def test_the_full_name_of_a_process_is_reduced_wherever_it_occurs():
    private = private_of([f"<process_name>{JOB} &amp; more</process_name>"])
    assert cleaned(f"GPU 0 is used by {JOB} & more.", private).text == "GPU 0 is used by train.py."


@pytest.mark.parametrize("name", ["[Not Found]", "python3", "Xorg"])
def test_a_name_without_a_folder_stays(name):
    text = f"            Name                          : {name}\n"
    assert cleaned(text, NOTHING).text == text


@pytest.mark.parametrize(
    "text",
    [
        "HF_TOKEN=SECRET99x",
        "export AWS_SECRET_ACCESS_KEY='SECRET99x'",
        'db.password: "SECRET99x"',
        "curl https://ops:SECRET99x@registry.example/v2",
        "Authorization: Bearer SECRET99x",
        "using hf_SECRET99xSECRET99xSECRET99x",
        "Nov 24 node sudo: alice : TTY=pts/1 ; COMMAND=/usr/bin/nvidia-smi --key SECRET99x",
        "Nov 24 node CRON[4711]: (alice) CMD (run-parts SECRET99x nvidia-smi)",
        "audit: type=1309 audit(1700000000.1:22): argc=2 a0=curl a1=SECRET99x",
        "node audit[4711]: EXECVE argc=2 a1=SECRET99x",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nSECRET99x\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nSECRET99x\n",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5SECRET99x alice@laptop",
        "Kernel command line: BOOT_IMAGE=/vmlinuz ro ds=nocloud;s=http://SECRET99x/ quiet",
        'Unknown kernel command line parameters "BOOT_IMAGE=/vmlinuz join=SECRET99x", will be passed to user space.',
        "[    1.2]   with environment:\n[    1.2]     HOME=/\n[    1.2]     x=SECRET99x\n",
    ],
)
def test_no_secret_passes(text):
    result = cleaned(text, NOTHING)
    assert "SECRET99x" not in result.text
    assert sum(result.removed.values()) >= 1


def test_the_kernels_own_parameters_keep_their_values():
    line = "Command line: BOOT_IMAGE=/boot/vmlinuz root=/dev/md0 ro iommu=pt pci=realloc=off nvidia.NVreg_X=1 quiet\n"
    assert cleaned(line, NOTHING).text == line


def test_a_token_of_the_command_line_is_masked_in_every_answer_and_in_base64():
    private = private_of(["BOOT_IMAGE=/vmlinuz ro join_token=hunter2 mode=disabled quiet"])
    encoded = base64.b64encode(b"hunter2").decode()
    assert cleaned(f"the node joined with hunter2 ({encoded}); SR-IOV is disabled", private).text == (
        f"the node joined with {MASK} ({MASK}); SR-IOV is disabled"
    )


def test_a_known_secret_is_masked_and_counted():
    Secret("inventory-pw-7")
    result = cleaned("login with inventory-pw-7", NOTHING)
    assert (result.text, result.removed) == (f"login with {MASK}", {"secrets": 1})


def test_a_document_stays_valid():
    document = {"note": 'token="abc123"', "count": 3, "list": [f"used by {JOB}"], "none": None}
    text = json.dumps(cleaned_document(document, private_of([SMI_TEXT])))
    assert json.loads(text) == {"note": f'token="{MASK}"', "count": 3, "list": ["used by train.py"], "none": None}


@pytest.mark.parametrize("machine", names())
def test_what_tools_print_of_a_healthy_machine_stays_as_it_is(machine):
    """No rule takes evidence away."""
    for line in ("nvidia-smi -q", "nvidia-smi -q -x", "lspci -D -nn -vvv", "dmesg", "ibstat", "dmidecode -t 0,1,2,3",
                 "ipmitool fru print", "ipmitool sel elist", "nvidia-smi topo -m", "mlxlink -d mlx5_0"):  # fmt: skip
        program, *words = line.split()
        assert program in PROGRAMS
        text = personalize(run(healthy(machine), program, words, root=True).out, HOST_VALUES)
        assert cleaned(text, private_of([text])).text == text, line

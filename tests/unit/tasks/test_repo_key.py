import base64
import shutil
import subprocess

import pytest

from gpuops import Failed
from gpuops.errors import DocumentError

ONE = """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawAqrxYJKwYBBAHaRw8BAQdAb3tKkBz4COZmy8sL1a+deu4oXH9Z3tpOVOmJ
YQeDtIm0FW9uZSA8b25lQGV4YW1wbGUuY29tPoiQBBMWCAA4FiEEanNk/tLo0IGa
7dVe0Dmds60T11IFAmsAKq8CGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ
0Dmds60T11J6JAD/W1zoQAh62h0MDiIdJhdcayspvlXjuU3jzXOYgSKXHEABAOkt
OOkR+xkuSwm7WpV1bm2x8RZU4InYr+NgdAYf7lwL
=vdPr
-----END PGP PUBLIC KEY BLOCK-----
"""
TWO = """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawAqrxYJKwYBBAHaRw8BAQdAFtSe7cuLfZ62rbJaqIqU2z5o5h2AtZ2A4a9+
ZTj7dRS0FXR3byA8dHdvQGV4YW1wbGUuY29tPoiQBBMWCAA4FiEE2Dne/2jMaraA
2pH1/5+a7RpyhesFAmsAKq8CGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ
/5+a7RpyheuOTAEAx8DPTlhJFpVKH0MgnJbfsoRCwc9QCOerJnTjfavQgHMA/2vC
P8DaMvVPNGmknA/Wo9TtFV92VtNrhw4WCBrFImcA
=31rE
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGER_ONE, FINGER_TWO = "6A7364FED2E8D0819AEDD55ED0399DB3AD13D752", "D839DEFF68CC6AB680DA91F5FF9F9AED1A7285EB"
PATH = "/etc/apt/keyrings/lab.asc"
KEY = {"path": PATH, "fingerprints": [FINGER_ONE], "url": "https://repo.example/key"}


def packets(text):
    return base64.b64decode("".join(text.splitlines()[2:-2]))


def node(there=None, sends=b""):
    """A node with this key in the file, to which the address gives these bytes."""
    fetched = sends if isinstance(sends, tuple) else base64.encodebytes(sends).decode()
    return {"sh -c if command": fetched} if there is None else {"sh -c if command": fetched, PATH: there}


@pytest.mark.parametrize("sent", [ONE.encode(), packets(ONE), b"Comment: x\r\n" + ONE.replace("\n", "\r\n").encode()])
def test_a_key_in_either_form_is_kept_as_text(planned, sent):
    (change,) = planned("repo_key", node(sends=sent), **KEY).changes
    assert change.what == f"write {PATH}"
    assert packets(change.after) == packets(ONE)
    assert "\n=vdPr\n" in change.after  # the checksum that gpg made


def test_the_right_key_is_not_fetched_again(planned):
    assert planned("repo_key", node(ONE, (1, "", "no route")), **KEY).changes == []


@pytest.mark.parametrize(
    "sent",
    [
        TWO.encode(),
        packets(ONE) + packets(TWO),
        packets(ONE)[:-1],
        packets(ONE) + b"\0",
        b"<html>not found</html>",
        b"\xff" * 100,
        ONE.replace("mDME", "mDMF").encode(),
    ],
)
def test_what_is_not_exactly_the_key_is_never_written(planned, sent):
    found = planned("repo_key", node(sends=sent), **KEY)
    assert isinstance(found.stop, Failed)
    assert found.changes == []


def test_what_hides_behind_the_key_is_not_written(planned):
    (change,) = planned("repo_key", node(sends=(ONE + TWO).encode()), **KEY).changes
    assert packets(change.after) == packets(ONE)


def test_another_key_in_its_place_is_replaced(planned):
    assert len(planned("repo_key", node(TWO, ONE.encode()), **KEY).changes) == 1


def test_several_keys_are_all_named(planned):
    both = {**KEY, "fingerprints": [FINGER_TWO, " ".join(FINGER_ONE[i : i + 4] for i in range(0, 40, 4)).lower()]}
    assert len(planned("repo_key", node(sends=packets(ONE) + packets(TWO)), **both).changes) == 1
    assert isinstance(planned("repo_key", node(sends=packets(ONE)), **both).stop, Failed)


def test_what_the_address_said_is_reported(planned):
    found = planned("repo_key", node(sends=(0, "", "curl: (6) Could not resolve host: repo.example")), **KEY)
    assert found.stop.why.endswith("Could not resolve host: repo.example")


def test_a_file_of_the_operator_serves_too(planned, tmp_path):
    (tmp_path / "key").write_bytes(packets(ONE))
    params = {"path": PATH, "fingerprints": [FINGER_ONE], "src": tmp_path / "key"}
    assert packets(planned("repo_key", node(), **params).changes[0].after) == packets(ONE)


@pytest.mark.skipif(not shutil.which("gpg"), reason="gpg is not installed")
def test_gpg_reads_what_is_written(planned, tmp_path):
    (change,) = planned("repo_key", node(sends=packets(ONE)), **KEY).changes
    show = ["gpg", "--homedir", tmp_path, "--show-keys", "--with-colons"]
    shown = subprocess.run(show, input=change.after, capture_output=True, text=True, check=True).stdout
    assert f":{FINGER_ONE}:" in shown


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": "lab.asc"},
        {"path": "/etc/apt/keyrings/lab.gpg"},
        {"fingerprints": ["3BF863CC"]},
        {"fingerprints": []},
        {"url": ""},
        {"url": "file:///etc/shadow"},
        {"url": "https://x/ -o/etc/passwd"},
    ],
)
def test_wrong_parameters_are_refused(planned, wrong):
    with pytest.raises(DocumentError, match="repo_key"):
        planned("repo_key", {}, **{**KEY, **wrong})

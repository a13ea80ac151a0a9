"""NVIDIA's own libnccl.so.2, from its wheel, as far as it goes without a GPU."""

import ctypes
import importlib.metadata
import pathlib
import re
import socket
import struct
import sysconfig

import pytest

import gpuops
from gpuops.isolation.rounds import RankGroup, Round

LIBRARY = pathlib.Path(sysconfig.get_path("purelib"), "nvidia", "nccl", "lib", "libnccl.so.2")
PACKAGE = "nvidia-nccl-cu13"


@pytest.fixture(scope="module", autouse=True)
def _is_installed():
    if not LIBRARY.exists():
        pytest.skip(f"{PACKAGE} is not installed (pip install 'gpuops[launch]')")


@pytest.fixture
def engine(an_engine, libraries):
    return an_engine("a", "b", LD_LIBRARY_PATH=f"{LIBRARY.parent}:{libraries}", NCCL_SOCKET_IFNAME="lo")


def reply(engine, message):
    (answer,) = engine._crew.ask({"a": message}, 60).values()
    return answer["0"]


def loaded(engine):
    found = engine.libraries["a"]
    task = {"gpu": 0, "nccl": found.path, "version": found.code, "environment": engine._environment, "nics": []}
    return reply(engine, {"do": "start_ranks", "seconds": 50, "tasks": {"0": task}})["answer"]


def c_type(declared):
    """What ctypes may call a parameter of nccl.h."""
    kind = re.sub(r"\bconst\b|\w+$", "", declared).strip()
    if kind == "void*":
        return {ctypes.c_uint64}  # an address on the GPU
    plain = {
        "int": ctypes.c_int,
        "size_t": ctypes.c_size_t,
        "ncclComm_t": ctypes.c_void_p,
        "cudaStream_t": ctypes.c_void_p,
    }
    enums = dict.fromkeys(("ncclDataType_t", "ncclRedOp_t", "ncclResult_t"), ctypes.c_int)
    named = {**plain, **enums}
    if kind.endswith("*") or declared.split()[-1].startswith("*"):
        return {ctypes.POINTER(named.get(kind.strip(" *"), ctypes.c_char))}
    return {named.get(kind, kind)}


def test_the_table_of_types_is_its_header_s_and_it_has_every_function():
    names = {}
    exec((pathlib.Path(gpuops.__file__).parent / "node" / "nccl_libraries.py").read_text(), names)
    header = (LIBRARY.parents[1] / "include" / "nccl.h").read_text()
    library = ctypes.CDLL(str(LIBRARY))
    for name, types in names["NCCL"].items():
        assert hasattr(library, name)
        (declared,) = set(re.findall(rf"[ *]{name}\(([^)]*)\);", header))
        parameters = [part.strip() for part in declared.split(",") if part.strip()]
        assert len(parameters) == len(types), name
        for parameter, kind in zip(parameters, types, strict=True):
            if "ncclUniqueId" in parameter:
                assert kind in (names["UniqueId"], ctypes.POINTER(names["UniqueId"]))
                assert issubclass(kind, ctypes.Structure) != ("*" in parameter)
            else:
                assert kind in c_type(parameter), f"{name}: {parameter}"


def test_its_version_is_read_from_the_file_and_is_what_it_says_of_itself(engine):
    assert engine.refused == {}
    found = engine.libraries["a"]
    assert pathlib.Path(found.path) == LIBRARY
    assert ".".join(map(str, found.version)) == importlib.metadata.version(PACKAGE)
    assert found.cuda[0] == 13
    assert loaded(engine)["checked"] == "on the GPU"  # a rank compares ncclGetVersion with the file's


def test_its_id_holds_the_address_at_which_rank_0_listens_as_long_as_it_lives(engine, process):
    loaded(engine)
    replies = [reply(engine, {"do": "ask", "seconds": 30, "tasks": {"0": {"do": "id"}}}) for _ in "12"]
    assert any("Bootstrap: Using lo:127.0.0.1" in line for line in replies[0]["log"])  # its log is heard at once
    ids = [bytes.fromhex(one["answer"]["id"]) for one in replies]
    assert {len(id_) for id_ in ids} == {128}
    assert ids[0] != ids[1]
    ports = []
    for id_ in ids:
        assert b"\0" in id_.rstrip(b"\0")  # what a C string would cut
        family, port, address = struct.unpack_from("=H2s4s", id_, 8)
        assert (family, socket.inet_ntoa(address)) == (socket.AF_INET, "127.0.0.1")
        ports.append(int.from_bytes(port, "big"))
        socket.create_connection(("127.0.0.1", ports[-1]), timeout=5).close()
    pids = engine.pids["a"]
    engine.close()
    assert process.gone(pids)
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def test_without_a_gpu_its_own_words_are_the_error_and_nothing_stays(engine, process):
    (figure,) = engine.measure(Round("pair", (RankGroup(("a", "b")),)))
    assert (figure.trouble, figure.gb_per_s) == ("error", None)
    assert "ncclCommInitRank: unhandled cuda error" in figure.detail
    pids = [pid for of_node in engine.pids.values() for pid in of_node]
    engine.close()
    assert process.gone(pids)

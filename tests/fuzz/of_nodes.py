"""Readers of what nodes, BMCs, schedulers and gpuops' own files say; a node or a disk may have changed any byte."""

import contextlib
import datetime as dt
import functools
import gzip
import itertools
import json
import sqlite3
import tempfile
import zlib
from pathlib import Path

from tests.fuzz.reader import reader
from tests.recorded import OUTPUTS
from tests.unit.checks.lab_node import CHECKS, NOW, PROBES, answers_of

from gpuops.catalogue import Catalogue
from gpuops.document import Where
from gpuops.errors import GpuopsError
from gpuops.facts import load, read, to_document
from gpuops.inventory import Host
from gpuops.playbook import journal, locking
from gpuops.shell import Command, Completed, Files
from gpuops.store import Runs, StateChange, Store
from gpuops.store.records import FindingKey, RunRecord, SeenFinding, SeenPart, Visit

MARK = "gpuops-0123456789"
HOSTS = [Host(f"gpu0{number}", f"192.0.2.{number}", Where("x")) for number in range(3)]
KINDS = tuple(kind for kind in Catalogue().kinds() if kind != "inventory")


@functools.cache
def _answers():
    """Every answer of healthy and of broken hosts of the lab, by its probe."""
    hosts = [("hgx-h100", ()), ("hgx-h100", ("gpu3:lost",)), ("gb200-nvl", ()), ("hgx-b200", ())]
    names = {probe.question: probe.name for probe in Catalogue().probes().values()}
    found = []
    for machine, faults in hosts:
        with contextlib.suppress(GpuopsError):
            found += [(names.get(answer.question, ""), answer.out) for answer in answers_of(machine, *faults)]
    return [(name, text) for name, text in dict.fromkeys(found) if name and 0 < len(text) < 100_000]


def _outputs_of_tools():
    """What tools print, each after a line that names its kind."""
    of_lab = [f"{name}\n{text}".encode() for name, text in _answers()]
    paths = [path for folder in OUTPUTS for kind in KINDS for path in sorted((folder / kind).glob("*"))[:3]]
    recorded = [path.parent.name.encode() + b"\n" + path.read_bytes() for path in paths if path.suffix != ".json"]
    return [content for content in (*of_lab, *recorded) if len(content) < 200_000]


@reader(_outputs_of_tools, words="Xid SXid NVRM: PCIe GT/s N/A [N/A] Unknown mlx5_0 0000:1b:00.0 MiB % ERR! \t")
def outputs_of_tools(content, _folder):
    from gpuops.report.values import lines
    from gpuops.results.plain import plain

    kind, _, text = content.partition(b"\n")
    name = kind.decode("utf-8", "replace")
    name = name if name in KINDS else KINDS[zlib.crc32(kind) % len(KINDS)]
    shown = plain(Catalogue().parse(name, text.decode("utf-8", "replace")))
    json.dumps(shown)
    "".join(lines(shown))


@functools.cache
def _saved_facts():
    machines = (("hgx-h100", ()), ("hgx-h100", ("gpu3:lost",)), ("hgx-b200", ()))
    facts = []
    for machine, faults in machines:
        with contextlib.suppress(GpuopsError):
            facts.append(read("gpu01", NOW, answers_of(machine, *faults), PROBES, keep_answers=True))
    return [to_document(each).encode() for each in facts]


@reader(_saved_facts, words="schema node taken_at answers excluded kind question words out err exit timed_out")
def saved_facts(content, folder):
    from gpuops.judging import judge_node
    from gpuops.placement import shape_of
    from gpuops.results.figures import figures_of
    from gpuops.results.parts import parts_of

    (folder / "gpu01.json").write_bytes(content)
    facts = load(folder / "gpu01.json", PROBES)
    judge_node(CHECKS, facts, _profile())
    shape_of(Host("gpu01", "gpu01", Where("x")), facts)
    parts_of(facts)
    json.dumps(figures_of(facts))


@functools.cache
def _profile():
    from gpuops.profile import load as load_profile

    return load_profile("hgx-h100")


def _journal():
    with tempfile.TemporaryDirectory() as folder:
        own = journal.Journal(Path(folder, "runs"), "r1")
        own.write("run", playbook="site.yml", who="ops", nodes=["gpu01"])
        own.write("waiting", node="gpu01", notify=["restart"])
        own.write("change", id=1, node="gpu01", step="1.1", kind="state", does="x", detach=False, notify=[], what="x")
        own.end(1, Completed("gpu01", Files(()), 0, "said"))
        own.write("step", node="gpu01", step="1.1", name="restart", status="changed", handler=True)
        own.write("end", exit=1, failed=["gpu01"])
        own.close()
        return [own.path.read_bytes()]


@reader(_journal, words='"event" "run" "change" "done" "step" "end" "seal" "id" "node"')
def journal_of_a_run(content, folder):
    path = folder / "runs" / "r1" / "journal.jsonl"
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_bytes(content)
    damaged = []
    journal.summaries(folder / "runs", damaged.append)
    journal.pending_handlers(folder / "runs", "site.yml", damaged.append)
    with contextlib.suppress(GpuopsError):
        lines = list(journal.read(path))
        journal.changes(lines)
        journal.pending(lines)
    with contextlib.suppress(GpuopsError):
        journal.failed(path)
    journal.Journal(folder / "runs", "r1").close()


@reader('{"run": "r1", "who": "ops", "machine": "m", "boot_id": "b", "pid": 7, "started": "1", "since": "now"}')
def lock_of_a_node(content, _folder):
    owner = locking._read(content.decode("utf-8", "replace"))
    assert str(owner)
    assert owner.alive in (True, False)
    assert owner.dead in (True, False)


@functools.cache
def _store():
    began = dt.datetime(2026, 11, 1, tzinfo=dt.timezone.utc)
    finding = SeenFinding(FindingKey("gpu01", "gpu-lost", "gpu3", ""), "fail", "isolate", "it fell", "reboot", ())
    seen = Visit("fail", checks={"gpu-lost": "fail"}, findings=(finding,), figures={"gpu0.celsius": 31.0},
                 parts=(SeenPart("gpu", "s1", "H100", "gpu0"),), shape={"name": "gpu01"})  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.db")
        with Store(path) as store:
            run = store.begin("a test", who="ops")
            store.record_transition("gpu01", run, lambda _: StateChange("drained", "why", {"kernel": ("6.8",)}))
            store.record_gate("gpu01", "provisioned", run, {"kernel": ("6.8",)})
        with Runs(path) as runs:
            for hours in (0, 1):
                at = began + dt.timedelta(hours=hours)
                runs.save(RunRecord("validate", at, 1.0, "ok", "ops", "x", "prod.yml", "quick", {"gpu01": seen}))
        database = sqlite3.connect(path)
        database.execute("PRAGMA journal_mode = DELETE")
        script = "\n".join(database.iterdump())
        version = database.execute("PRAGMA user_version").fetchone()[0]
        database.close()
        return path.read_bytes(), f"{script}\nPRAGMA user_version = {version};\n".encode()


@reader(lambda: [_store()[0]])
def store_with_other_bytes(content, folder):
    (folder / "state.db").write_bytes(content)
    _use_store(folder)


@reader(
    lambda: [_store()[1]], words="INSERT INTO VALUES NULL X'00' 'zz' events gates records visits findings parts texts"
)
def store_with_other_rows(content, folder):
    database = sqlite3.connect(folder / "state.db")
    for statement in content.decode("utf-8", "replace").split(";\n"):
        with contextlib.suppress(sqlite3.Error, sqlite3.Warning, ValueError):
            if "ATTACH" not in statement.upper():
                database.execute(statement)
    with contextlib.suppress(sqlite3.Error):
        database.commit()
    database.close()
    _use_store(folder)


def _use_store(folder):
    path = folder / "state.db"
    path.chmod(0o600)
    reads = [
        lambda: _with(Store, path, lambda s: (s.latest_by_node(), s.history("gpu01"), s.gates_passed("gpu01"))),
        lambda: _with(Runs, path, _recall),
        lambda: _with(Store, path, lambda s: s.record_transition("gpu01", s.begin("y", who="x"), _closing)),
        lambda: _with(
            Runs,
            path,
            lambda r: r.save(RunRecord("validate", NOW, 1.0, "ok", "x", "x", "x", "quick", {"gpu01": Visit("pass")})),
        ),
    ]
    for each in reads:
        with contextlib.suppress(GpuopsError):
            each()


def _closing(_before):
    return StateChange("repair", "why")


def _with(kind, path, use):
    with kind(path) as opened:
        use(opened)


def _recall(runs):
    numbers = [run.number for run in runs.runs()]
    runs.level_by_run(numbers)
    runs.latest_visits(["gpu01"], "validate")
    runs.findings_by_number([1, 2])
    runs.watched()
    runs.parts_that_came(1, 2)
    runs.links_of("allreduce")
    by_key = ((runs.run, 1), (runs.visits_of, 1), (runs.visits, "gpu01"), (runs.findings, "gpu01"), (runs.parts, "s1"))
    for read_one, key in (*by_key, (runs.parts_of, "gpu01")):
        with contextlib.suppress(GpuopsError):
            read_one(key)


@functools.cache
def _frames():
    texts = [b"hello\n", "é\U0001f4a3".encode(), b""]
    body = b"".join(b"0 0.1 0 0 - %d 0\n" % len(text) + text for text in texts)
    return [zlib.compress(body), zlib.compress(body.replace(b"0 0.1 0 0 -", b"137 9.9 1 1 D"))]


@reader(_frames)
def answer_of_the_agent(content, _folder):
    _read_frames(content)


@reader(lambda: [zlib.decompress(each) for each in _frames()], words="0 1 - nan inf 1e999 ² ٣ 999999999")
def frames_of_the_agent(content, _folder):
    _read_frames(zlib.compress(content))


def _read_frames(packed):
    from gpuops.transport.answer import read_answer

    rest = bytearray(packed)

    def take(most, _seconds):
        taken = bytes(rest[:most])
        del rest[:most]
        return taken

    questions = [Command(("echo", str(number))) for number in range(3)]
    for answer in read_answer("gpu01", questions, take, len(packed), 5.0):
        json.dumps([answer.exit, answer.seconds, answer.last_words()])


class _Stream:
    """A stream of a program that printed ``content`` and ended."""

    def __init__(self, content):
        self.pieces = [content[at : at + 4096] for at in range(0, len(content), 4096)]

    def read(self, _seconds):
        return self.pieces.pop(0) if self.pieces else b""

    def write(self, data):
        pass

    def ending(self):
        return "exited with status 1"

    def close(self):
        pass


@reader(f'Welcome\n{MARK} {{"seen": {{"answer": {{"driver_cuda": 13000, "gpus": []}}}}}}\n', words=f"{MARK} none")
def messages_of_a_worker(content, _folder):
    from gpuops.collective.engines.nccl.library import parse_survey
    from gpuops.transport.marked import MarkedStream
    from gpuops.transport.worker import receive

    stream = MarkedStream("gpu01", _Stream(content), MARK)
    parse_survey(receive(stream, 1.0))
    with contextlib.suppress(GpuopsError):
        for _ in range(20):
            parse_survey(receive(stream, 1.0))


@reader(f"\n{MARK} 0 begin\nout\n{MARK} 0 0\n\n{MARK} 1 begin\nout\n{MARK} 1 124\n\n{MARK} all\n", words=MARK)
def answer_without_python(content, _folder):
    from gpuops.transport import sh_fallback

    questions = [Command(("true",)), Files(("/x",))]
    seen = sh_fallback._read("gpu01", _Stream(content), 1.0, MARK)
    list(sh_fallback._unpack("gpu01", questions, seen.decode("utf-8", "replace"), MARK))


@reader(
    lambda: [json.dumps({"@odata.id": "/redfish/v1/Chassis/1", "Members": [{"@odata.id": "/redfish/v1/Chassis/1"}],
                         "Chassis": {"@odata.id": "/redfish/v1/Chassis"}, "PowerSupplies": [{"Status": {"Health": "OK"}}],
                         "Members@odata.nextLink": "/redfish/v1/Chassis?p=2", "Temperatures": [{"ReadingCelsius": 31}],
                         "Reading": 1.5, "Id": "1", "Created": "2026-01-01T00:00:00Z", "Severity": "OK"}).encode()],
    words="@odata.id Members /redfish/v1/Systems Status Health Id",
)  # fmt: skip
def resources_of_a_bmc(content, _folder):
    from gpuops.probes.host.redfish import redfish
    from gpuops.transport.redfish_https import Https
    from gpuops.transport.redfish_walk import read_paths

    https = Https.__new__(Https)
    https._bytes = 0
    body = https._body("/redfish/v1", content)
    asked = itertools.count()
    found = read_paths(redfish.question.paths, lambda _: body if next(asked) < 500 else None)
    redfish.read(Completed("gpu01", redfish.question, 0, json.dumps(found)))


@reader(
    "gpu00|192.0.2.0|gpu00|idle|none\ngpu01|192.0.2.1|gpu01|drained*|gpuops:repair Xid 79\n", "gpu[00-01]|7|ops|train\n"
)
def answer_of_slurm(content, _folder):
    from gpuops.collective.idleness.slurm import JOBS, NODES, Slurm

    text = content.decode("utf-8", "replace")
    usual = {NODES: "gpu00|192.0.2.0|gpu00|idle|none\n", JOBS: "gpu[00-01]|7|ops|train\n"}
    for own in (NODES, JOBS):
        Slurm(_Machine({**usual, own: text})).allocations(HOSTS)


@reader(
    "gpu00\t192.0.2.0 gpu00\t\tgpuops.dev/not-admitted x\n", "gpu00\tns/pod\t{nvidia.com/gpu: 8}\n", words="\t true"
)
def answer_of_kubernetes(content, _folder):
    from gpuops.collective.idleness import kubernetes
    from gpuops.lifecycle.kubernetes import KubernetesScheduler

    text = content.decode("utf-8", "replace")
    usual = {kubernetes.NODES: "gpu00\t192.0.2.0\n", kubernetes.PODS: "gpu00\tns/p\tnvidia.com/gpu\n"}
    for own in (kubernetes.NODES, kubernetes.PODS):
        kubernetes.allocations(_Machine({**usual, own: text}), HOSTS)
    KubernetesScheduler(_Machine({}, text)).resume(HOSTS)


class _Machine:
    """A machine that answers each question with a text."""

    def __init__(self, answers, default=""):
        self.answers, self.default = answers, default

    def run(self, question):
        return Completed("head", question, 0, self.answers.get(question, self.default))

    def batch(self, questions):
        return [self.run(question) for question in questions]


@reader(
    "program torchrun\npython 3.11\nmemlock unlimited\nconf NCCL_X=1\nenv A=B\nend \n",
    words="memlock conf env trouble end",
)
def survey_of_a_job(content, _folder):
    from gpuops.collective.preflight.causes import parse_name_filter
    from gpuops.collective.preflight.job_environment import parse_survey

    text = content.decode("utf-8", "replace")
    parse_survey(text)
    assert ("mlx5_0" in parse_name_filter(text)) in (True, False)


@reader(lambda: [gzip.compress(b"x\n____________________________________________\n/bin/ps\nsecret\n", mtime=0),
                 gzip.compress(b"token=abc password: x\n" + b"QUFB" * 16 + b"\n" + b"QUFB" * 16 + b"\n", mtime=0)])  # fmt: skip
def bug_report(content, _folder):
    from gpuops.bundle.packed import cleaned_report
    from gpuops.bundle.private import Private

    cleaned_report(content, Private(("secret-value",), ("/opt/own/name",)), "report")


@reader(
    "[1.0] Command line: root=x token=abc\nXid 31, name=/opt/a b, x\nAuthorization: Bearer abcdefghij\n",
    words="token= password: -----BEGIN PRIVATE KEY----- :// @ COMMAND=",
)
def text_for_a_bundle(content, _folder):
    from gpuops.bundle.private import cleaned, private_of

    text = content.decode("utf-8", "replace")
    cleaned(text, private_of([text]))

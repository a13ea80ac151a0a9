import os
import pathlib
import stat
import tempfile

import pytest

from gpuops.secret import Secret
from gpuops.transport.agent import AgentTransport
from gpuops.transport.local import ProcessStream

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
SUDO = pathlib.Path(__file__).with_name("sudo.sh").read_text()


@pytest.fixture
def open_node():
    """Opens transports whose node is a child process; ``before`` are words in front of the shell."""
    opened = []

    def open_one(python=None, before=(), **more):
        def start(line):
            return ProcessStream("n1", [*before, "/bin/sh", "-c", line])

        opened.append(AgentTransport("n1", start, python=python, **more))
        return opened[-1]

    yield open_one
    for transport in opened:
        transport.close()


@pytest.fixture(scope="session")
def node():
    """This machine behind one kept agent."""
    transport = AgentTransport("n1", lambda line: ProcessStream("n1", ["/bin/sh", "-c", line]))
    yield transport
    transport.close()


@pytest.fixture
def fresh_node(open_node):
    """This machine behind an agent of the test's own."""
    return open_node()


class Sudo:
    """A ``sudo`` on a node where nobody is root: it asks, refuses and lets pass as told, and notes what it got."""

    def __init__(self, folder):
        self.folder = folder
        self.path = f"{folder}:/usr/local/bin:/usr/bin:/bin"
        (folder / "sudo").write_text(SUDO)
        (folder / "sudo").chmod(0o755)

    def __getattr__(self, name):
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def tell(self, **settings):
        for name, text in settings.items():
            (self.folder / name).write_text(text)

    def remove(self):
        """Take sudo off the node, the system's own as well."""
        (self.folder / "sudo").unlink()
        links = self.folder / "programs"
        links.mkdir()
        for program in (
            program for place in ("/usr/local/bin", "/usr/bin", "/bin") for program in pathlib.Path(place).iterdir()
        ):
            if program.name != "sudo" and not os.path.lexists(links / program.name):
                (links / program.name).symlink_to(program)
        self.path = str(links)

    @property
    def before(self):
        words = ["env", f"PATH={self.path}", f"SUDO_STUB={self.folder}"]
        return [*NOBODY, *words] if os.geteuid() == 0 else words


@pytest.fixture
def sudo():
    """A stand-in for sudo, in a folder that every user may write."""
    # The agent does not wait for the kill that ends a root command, so the stub may still note it after the test.
    with tempfile.TemporaryDirectory(prefix="gpuops-sudo-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        folder.chmod(stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
        stub = Sudo(folder)
        stub.tell(password="open sesame", mode="ask", again="Sorry, try again.")
        yield stub


@pytest.fixture
def user_node(sudo, open_node):
    """Opens transports to a node where we are not root, with a password for sudo or without."""
    return lambda password=None: open_node(
        before=sudo.before, become_password=Secret(password) if password is not None else None
    )

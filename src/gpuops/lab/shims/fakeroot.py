"""Shows a lab host's /sys, /proc and /etc to Python code.

Run as ``fakeroot.py HOST_FOLDER python3|cat|ls|readlink WORD…``. Reads of paths below the lab's roots are answered from
the host's tree, whatever the real machine has there; all other paths are the real ones. The tree is looked up again at
each access, so that a long-running program sees changes. It works by replacing the functions that open, list and
inspect files, before any other code runs.
"""

# it replaces functions of os itself, and it must start fast
# ruff: noqa: PLC0415, PTH115, PTH116, PTH123, PTH208

from __future__ import annotations

import builtins
import errno
import io
import marshal
import os
import posixpath
import stat
import sys
import time
import types

TYPE_CHECKING = False  # importing typing would take as long as the rest
if TYPE_CHECKING:
    from typing import Any, NoReturn

real_open = builtins.open
real = types.SimpleNamespace(
    **{name: getattr(os, name) for name in ("open", "listdir", "scandir", "readlink", "stat", "lstat", "access")}
)
real_time = time.time
real_execvp = os.execvp
real_spawnp = os.posix_spawnp
# below these a host has files of its own, which its commands may change
OWN = ("/boot", "/etc", "/run", "/var", "/usr/local")


class Tree:
    """The current files, links and directories of one host."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.state_path = f"{folder}/host.env"
        self.seen = -1
        self.tree: dict[str, Any] = {}
        self.folders: dict[str, str] = {}
        self.state: dict[str, str] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the tree again if the host's state changed."""
        changed = real.stat(self.state_path).st_mtime_ns
        if changed == self.seen:
            return
        self.seen = changed
        with real_open(self.state_path, encoding="utf-8") as file:
            pairs = (line.rstrip("\n").partition("=") for line in file)
            self.state = {name: value.strip("'") for name, _, value in pairs}
        with real_open(f"{self.state['ANSWERS']}/tree", "rb") as file:
            self.tree = marshal.load(file)  # noqa: S302 - the lab wrote it
        self.folders = {}

    @property
    def skew_seconds(self) -> float:
        """The error of the host's clock."""
        return float(self.state["SKEW"])

    def locate(self, path: Any, *, follow: bool = True) -> str | None:
        """Return ``path`` with links followed if it is below the lab's roots, else None."""
        if isinstance(path, int) or path is None:
            return None
        text = os.fsdecode(path)
        if text[:1] != "/":
            return None
        if not self.covers(text):
            text = posixpath.normpath(text)
        if not self.covers(text):
            return None
        self.refresh()
        return self.followed(text, follow=follow)

    def own(self, path: Any) -> Any:
        """Return ``path`` in the host's own directory; other paths, and what is not a path, stay as they are."""
        if isinstance(path, int) or path is None:
            return path
        text = os.fsdecode(path)
        mine = any(text == root or text.startswith(f"{root}/") for root in OWN)
        return f"{self.folder}/root{text}" if mine and not text.startswith(self.state["LAB"]) else path

    def covers(self, path: str) -> bool:
        """Return True if ``path`` belongs to the lab, not to the real machine."""
        return any(path == root or path.startswith(f"{root}/") for root in self.tree["roots"])

    def followed(self, path: str, *, follow: bool) -> str:
        """Return ``path`` with its links resolved; the last one only if ``follow``."""
        folder, _, name = path.rstrip("/").rpartition("/")
        if folder and folder not in self.folders:
            self.folders[folder] = self.followed(folder, follow=True)
        at = self.folders[folder] if folder else ""
        if name == "..":  # as in the kernel, of the directory that a link led to
            return posixpath.dirname(at).rstrip("/")
        step = f"{at}/{name}" if name not in ("", ".") else at
        target = self.tree["links"].get(step) if follow else None
        return step if target is None else self.followed(posixpath.normpath(f"{at}/{target}"), follow=True)

    def text(self, path: str) -> str:
        """Return a file's content; raise the error that a real file would raise."""
        if path in self.tree["files"]:
            return self.personal(str(self.tree["files"][path]))
        if path in self.tree["folders"]:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise missing(path)

    def personal(self, text: str) -> str:
        """Return ``text`` with the host's own values."""
        if "~" in text:
            up = time.monotonic() - float(self.state["UP_SINCE"])
            for edit in f"{self.state['EDIT']};s/~uptime~/{up:.2f}/g".split(";"):
                _, token, value, _ = edit.split("/")
                text = text.replace(token, value)
        return text

    def names(self, path: str) -> list[str]:
        """Return a directory's entries."""
        if path in self.tree["folders"]:
            return list(self.tree["folders"][path])
        if path in self.tree["files"]:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        raise missing(path)

    def mode(self, path: str) -> int:
        """Return file type and permissions."""
        kinds = (("links", stat.S_IFLNK | 0o777), ("folders", stat.S_IFDIR | 0o555), ("files", stat.S_IFREG | 0o444))
        for kind, mode in kinds:
            if path in self.tree[kind]:
                return mode
        raise missing(path)


def missing(path: str) -> FileNotFoundError:
    """Return the error of a path that does not exist."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class Entry:
    """An entry as os.scandir yields it."""

    def __init__(self, tree: Tree, folder: str, name: str) -> None:
        self.name = name
        self.path = f"{folder}/{name}"
        self._tree = tree

    def _mode(self, *, follow: bool) -> int:
        return self._tree.mode(self._tree.followed(self.path, follow=follow))

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """As in os.DirEntry."""
        return stat.S_ISDIR(self._mode(follow=follow_symlinks))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """As in os.DirEntry."""
        return stat.S_ISREG(self._mode(follow=follow_symlinks))

    def is_symlink(self) -> bool:
        """As in os.DirEntry."""
        return stat.S_ISLNK(self._mode(follow=False))


class Listing(list):  # type: ignore[type-arg]
    """Entries that can be used as os.scandir's context manager."""

    def __enter__(self) -> Listing:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, *_error: object) -> None:
        return None

    def close(self) -> None:
        """Do nothing: no handle is open."""


class PatchedOs:
    """Replacements for functions of os: they answer from the tree for its paths, else really."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def install(self) -> None:
        """Put the tree in front of the real files."""
        builtins.open = io.open = self.open_file
        os.open, os.stat, os.lstat = self.open, self.stat, self.lstat
        os.listdir, os.scandir = self.listdir, self.scandir
        os.readlink, os.access = self.readlink, self.access
        os.execvp = self.execvp  # type: ignore[assignment] # os's own takes more kinds of words
        os.posix_spawnp = self.posix_spawnp

    def open_file(self, file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        """As open."""
        at = self.tree.locate(file)
        if at is None:
            return real_open(self.tree.own(file), mode, *rest, **more)
        if set(mode) & set("wax+"):
            raise denied(file)
        content = io.BytesIO(self.tree.text(at).encode())
        return content if "b" in mode else io.TextIOWrapper(content, "utf-8")

    def open(self, path: Any, flags: int, *rest: Any, **more: Any) -> int:
        """As os.open."""
        at = self.tree.locate(path)
        if at is None:
            return int(real.open(self.tree.own(path), flags, *rest, **more))
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise denied(path)
        return descriptor(self.tree.text(at))

    def execvp(self, file: Any, words: Any) -> NoReturn:
        """Replace os.execvp: words that are paths lead to the host's own files."""
        real_execvp(file, self.own_words(words))

    def posix_spawnp(self, path: Any, argv: Any, env: Any, **more: Any) -> int:
        """Replace os.posix_spawnp, as `execvp`."""
        return int(real_spawnp(path, self.own_words(argv), env, **more))

    def own_words(self, words: Any) -> list[Any]:
        """Return words that are paths as those of the host's own files."""
        return [word if self.tree.covers(os.fsdecode(word)) else self.tree.own(word) for word in words]

    def stat(self, path: Any, *, dir_fd: Any = None, follow_symlinks: bool = True) -> Any:
        """As os.stat."""
        at = self.tree.locate(path, follow=follow_symlinks)
        if at is None:
            return real.stat(self.tree.own(path), dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        return os.stat_result((self.tree.mode(at), 0, 0, 1, 0, 0, 4096, 0, 0, 0))

    def lstat(self, path: Any, *, dir_fd: Any = None) -> Any:
        """As os.lstat."""
        return self.stat(path, dir_fd=dir_fd, follow_symlinks=False)

    def listdir(self, path: Any = ".") -> Any:
        """As os.listdir."""
        at = self.tree.locate(path)
        return real.listdir(self.tree.own(path)) if at is None else self.tree.names(at)

    def scandir(self, path: Any = ".") -> Any:
        """As os.scandir."""
        at = self.tree.locate(path)
        if at is None:
            return real.scandir(self.tree.own(path))
        return Listing(Entry(self.tree, at, name) for name in self.tree.names(at))

    def readlink(self, path: Any, *, dir_fd: Any = None) -> Any:
        """As os.readlink."""
        at = self.tree.locate(path, follow=False)
        if at is None:
            return real.readlink(self.tree.own(path), dir_fd=dir_fd)
        if at not in self.tree.tree["links"]:
            self.tree.mode(at)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return self.tree.tree["links"][at]

    def access(self, path: Any, mode: int, **more: Any) -> bool:
        """As os.access."""
        at = self.tree.locate(path)
        if at is None:
            return bool(real.access(self.tree.own(path), mode, **more))
        return not mode & os.W_OK and any(at in self.tree.tree[kind] for kind in ("files", "folders"))


def denied(path: Any) -> PermissionError:
    """Return the error of a read-only file."""
    return PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def descriptor(text: str) -> int:
    """Return a file descriptor that reads ``text``."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        return os.dup(file.fileno())


def shift_clock(tree: Tree) -> None:
    """Skew the clock as much as the host's."""

    def fake_time() -> float:
        tree.refresh()
        return real_time() + tree.skew_seconds

    time.time = fake_time
    time.time_ns = lambda: int(fake_time() * 1e9)


def note_scripts(folder: str) -> None:
    """Log the scripts that Python gets as text to the host's audit log: the first line of each docstring."""

    def log_exec(event: str, args: tuple[Any, ...]) -> None:
        if event == "exec" and args[0].co_filename == "<string>":
            doc = next(iter(args[0].co_consts), None)
            if isinstance(doc, str):
                with real_open(f"{folder}/audit", "a", encoding="utf-8") as log:
                    log.write(f"python3: {doc.splitlines()[0]}\n")

    sys.addaudithook(log_exec)


def run_site() -> None:
    """Import what PYTHONPATH says, as an interpreter does before a program."""
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(":"))
    try:
        import sitecustomize  # type: ignore[import-not-found] # noqa: F401
    except ImportError:
        return


def run_python(words: list[str]) -> None:
    """Run ``python3 WORDS``: -c CODE, -m MODULE, FILE, - or nothing."""
    if os.environ.get("PYTHONPATH") and not (words and words[0][:2] == "-I"):
        run_site()
    while words and words[0][:1] == "-" and words[0] != "-":
        word = words.pop(0)
        letters, has_code, code = word[1:].partition("c")
        if has_code and "m" not in letters and word[:2] != "--":
            execute(code or words.pop(0), "<string>", ["-c", *words])
            return
        if word.endswith("m"):
            import runpy

            sys.argv = words
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
            return
        if word in ("-V", "--version"):
            sys.stdout.write(f"Python {sys.version.split()[0]}\n")
            return
        if word in ("-W", "-X"):
            words.pop(0)
    if words and words[0] != "-":
        with open(words[0], "rb") as file:
            execute(file.read(), words[0], words)
        return
    execute(sys.stdin.buffer.read(), "<stdin>", words or [""])


def execute(code: str | bytes, name: str, argv: list[str]) -> None:
    """Run ``code`` as the main module."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.argv = argv
    exec(compile(code, name, "exec"), main.__dict__)  # noqa: S102 - it is what an interpreter does


def cat(words: list[str]) -> None:
    """Print files one after another."""
    for word in (w for w in words if w != "--"):
        with open(word, encoding="utf-8") as file:
            sys.stdout.write(file.read())


def ls(words: list[str]) -> None:
    """Print names, one per line."""
    for word in (w for w in words if w[:1] != "-"):
        names = sorted(os.listdir(word)) if stat.S_ISDIR(os.stat(word).st_mode) else [word]
        sys.stdout.write("".join(f"{name}\n" for name in names))


def readlink(words: list[str]) -> None:
    """Print a link's target, or with -f its final target."""
    for word in (w for w in words if w[:1] != "-"):
        sys.stdout.write((posixpath.realpath(word) if "-f" in words else os.readlink(word)) + "\n")


def main() -> int:
    """Run one program with the host's files in front of the real ones."""
    folder, program, *words = sys.argv[1:]
    tree = Tree(folder)
    if program == "python3":
        note_scripts(folder)
    PatchedOs(tree).install()
    if tree.skew_seconds:
        shift_clock(tree)
    try:
        {"python3": run_python, "cat": cat, "ls": ls, "readlink": readlink}[program](words)
    except OSError as error:
        if program == "python3":
            raise
        sys.stderr.write(f"{program}: {error.filename}: {error.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Agent on a node: the part that reads its files. It is sent before ``agent.py``, as one program."""
import os


def send_files(questions, cap) -> None:
    """Read the files of one question after another; before each answer stands a line with its length.

    Of several answers, one that is too long is the last: the caller asks it apart, and truncates it.
    """
    for globs, limit in questions:
        found = b"".join(contents(globs, limit))
        if len(found) > cap and len(questions) > 1:
            return
        write_all(1, b"%d\n" % len(found) + found)


def contents(globs, limit) -> object:
    for pattern in globs:
        for path in expand(pattern):
            content = peek(path, limit)
            if content is not None:
                yield path.encode("utf-8", "surrogateescape") + b"\0" + content.replace(b"\0", b" ") + b"\0"


def expand(pattern) -> list:
    """Return the paths that match a glob with ``*`` inside segments, like sh."""
    paths = [""]
    for segment in pattern.strip("/").split("/"):
        if "*" not in segment:
            paths = [path + "/" + segment for path in paths]
            continue
        paths = [
            path + "/" + name
            for path in paths
            for name in names_in(path)
            if fits(name, segment) and (name[0] != "." or segment[0] == ".")
        ]
    return paths


def fits(text, pattern) -> bool:
    head, star, tail = pattern.partition("*")
    if not star:
        return text == pattern
    return text.startswith(head) and any(fits(text[start:], tail) for start in range(len(head), len(text) + 1))


def names_in(folder) -> list:
    try:
        return sorted(os.listdir(folder or "/"))
    except OSError:
        return []


def peek(path, limit) -> object:
    """Return the head of a file, the target of a link to a directory, b"" for a directory, None if there is nothing."""
    try:
        if os.path.isdir(path):
            return os.fsencode(os.readlink(path)) if os.path.islink(path) else b""
        with open(path, "rb") as file:
            return file.read(limit)
    except OSError:
        return None


def write_all(descriptor, data) -> None:
    while data:
        data = data[os.write(descriptor, data):]

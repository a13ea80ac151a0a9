"""Inputs for readers: usual ones with a few edits of their bytes, or of the values in them if they are JSON or YAML."""

import json
import random

import yaml
from hypothesis import strategies as st

_MOST_BYTES = 300_000
_BYTES = (
    *(b"\0", b"\n", b"\r\n", b"\t", b" ", b"\x1b[2J", b"\xff\xfe", b"\xef\xbb\xbf", b"\xe2\x80\xae", b"\xed\xa0\x80"),
    *(b"\xc2\x85", b"\xc3\xa9", b"\xd9\xa3", b"\xc2\xb2", b"\xf0\x9f\x92\xa3", b"'", b'"', b"`", b"\\", b"/", b"../"),
    *(b"{{", b"}}", b"{%", b"%}", b"{", b"}", b"[", b"]", b"(", b")", b"<", b">", b"&", b"*", b"!", b"|", b"%", b"#"),
    *(b":", b": ", b"- ", b"=", b",", b"@", b"$(id)", b"~", b"-", b"+", b".", b"..", b"?", b"^", b"---\n"),
    *(b"0", b"-1", b"1e999", b"nan", b"inf", b"0x10", b"010", b"1_0", b"99999999999999999999", b"9" * 5000, b"true"),
    *(b"null", b"!!python/object:os.system", b"!!binary x", b"!!timestamp 2001-99-99", b"<<: ", b"&a [*a]", b"'''"),
)
VALUES = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, 0.5, -0.0, 1e308, float("inf"), float("nan")),
    *("", " ", "0", "-1", "x", "a b", "\0", "\n", "é", "\u0663", "²", "\ud800", "\u202e", "🧨", "x" * 300, "9" * 5000),
    *("{{ x }}", "$(id)", "../..", "/dev/zero", "~nobody/x", "[", "gpu[1-", "2001-99-99", "1:30", "10%", "%", "a=b"),
    *([], {}, [None], [[]], {"x": None}, {"": ""}, {"a": {"b": []}}, [0] * 5, ["x", {"y": 1}]),
)


def inputs(reader):
    """Return a strategy of inputs for ``reader``; each is derived from a number, so that it shrinks to few edits."""
    seeds = [*reader.usual(), *(path.read_bytes() for path in reader.kept)]
    words = (*_BYTES, *reader.words)
    plans = st.lists(st.integers(0, 2**32 - 1), max_size=4)
    of_usual = st.builds(lambda seed, plan: _edited(seed, plan, seeds, words), st.sampled_from(seeds), plans)
    of_words = st.lists(st.sampled_from(words), max_size=12).map(b"".join)
    return st.one_of(of_usual, of_usual, of_usual, of_words, st.binary(max_size=60))


def _edited(content, plan, seeds, words):
    for number in plan:
        draw = random.Random(number)
        tree = _tree(content) if draw.random() < 0.6 else None
        if isinstance(tree, (dict, list)) and tree:
            content = _written(_changed(tree, draw), content)
        else:
            content = _cut_and_pasted(content, draw, seeds, words)
        content = content[:_MOST_BYTES]
    return content


def _tree(content):
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        pass
    try:
        return yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if len(content) < 20_000 else None
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError, LookupError):
        return None


def _written(tree, before):
    """Return a changed document in the language that it had; YAML can spell what JSON cannot, as a date."""
    if before.lstrip()[:1] in (b"{", b"["):
        return json.dumps(tree, default=str).encode()
    try:
        return yaml.safe_dump(tree, allow_unicode=True, sort_keys=False).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, ValueError):
        return json.dumps(tree, default=str).encode()


def _changed(tree, draw):
    """Return the document with one value, at a random place, replaced, removed, doubled or wrapped."""
    where, at = tree, None
    for _ in range(draw.randint(1, 8)):
        keys = list(where if isinstance(where, dict) else range(len(where)))
        if not keys:
            break
        at = draw.choice(keys)
        if not isinstance(where[at], (dict, list)) or not where[at] or draw.random() < 0.15:
            break
        where, at = where[at], None
    if at is None or not where:
        return tree
    kind = draw.randrange(6)
    if kind == 0:
        del where[at]
    elif kind == 1 and isinstance(where, dict):
        where[draw.choice(["", "x", "\u202e", "hosts", "0", "name", " a"])] = where[at]
    elif kind == 1:
        where.append(where[at])
    elif kind == 2:
        where[at] = _deep([where[at]], draw.choice([1, 5, 50]))
    elif kind == 3 and isinstance(where[at], str):
        middle = draw.randint(0, len(where[at]))
        where[at] = where[at][:middle] + str(draw.choice(VALUES)) + where[at][middle:]
    else:
        where[at] = draw.choice(VALUES)
    return tree


def _deep(value, depth):
    for _ in range(depth):
        value = [value]
    return value


def _cut_and_pasted(content, draw, seeds, words):
    start = draw.randint(0, len(content))
    end = min(len(content), start + draw.choice([0, 0, 1, 2, 8, 64, 1000]))
    kind = draw.randrange(9)
    if kind == 0:  # a part many times
        return content[:start] + content[start : end + 1] * draw.choice([2, 10, 1000, 100_000]) + content[end:]
    if kind == 1:  # a part of another input
        other = draw.choice(seeds)
        first = draw.randint(0, len(other))
        return content[:start] + other[first : first + draw.choice([4, 40, 4000])] + content[end:]
    if kind == 2:
        return content[:start]
    if kind == 3:  # lines in another order
        lines = content.splitlines(keepends=True)
        draw.shuffle(lines)
        return b"".join(lines)
    if kind == 4:
        return content[:start] + draw.choice(words) * draw.choice([100, 5_000, 100_000]) + content[end:]
    if kind == 5:
        return content[:start] + bytes(draw.randrange(256) for _ in range(draw.choice([1, 4]))) + content[end:]
    return content[:start] + draw.choice(words) + content[end:]

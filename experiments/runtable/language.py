"""The language of filters: text in, a tree out, or a refusal that points at the place and says what could stand there. Pure.

    filter     = either
    either     = both { "or" both }
    both       = one { "and" one }
    one        = "not" one | "(" either ")" | comparison
    comparison = column operator value | column ["not"] "in" "(" value { "," value } ")" | column "is" ["not"] ("set" | "nan")
    column     = name | "a quoted name" | ("last" | "best" | "min" | "max") "(" (name | "a quoted name") ")"
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~"
    value      = number | number and unit ("90s", "15m", "2h", "7d", "1w") | date ("2026-11-24") | "quoted text" | word

Which columns there are, and what they may be compared with, is not known here (`columns`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MOST_CHARACTERS, MOST_COMPARISONS, MOST_VALUES, DEEPEST = 2000, 50, 200, 20
OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "~", "!~")
USES = ("last", "best", "min", "max")
KEYWORDS = ("and", "or", "not", "in", "is")
UNITS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T[0-9]{2}:[0-9]{2}(?::[0-9]{2})?)?(?![\w.]))
    | (?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?P<unit>(?:sec|min|[smhdw]))?(?![\w.]))
    | (?P<word>[\w/][\w./:@+%-]*)
    | (?P<sign><=|>=|!=|!~|==|=|<|>|~|\(|\)|,|\[|\])""",
    re.VERBOSE | re.DOTALL,
)


class Refused(Exception):
    """The text is no filter. `begin` and `end` of the characters that are wrong; `said`: why, and what could stand there."""

    def __init__(self, begin: int, end: int, said: str) -> None:
        super().__init__(f"At character {begin + 1}: {said}")
        self.begin, self.end, self.said = begin, end, said


@dataclass(frozen=True)
class Name:
    """A column as it was named. `use`: which of a metric's values; "" where nothing was said."""

    text: str
    use: str
    begin: int
    end: int


@dataclass(frozen=True)
class Value:
    """`kind`: "number", "span" (seconds), "date", "word" or "text" (quoted). `number` of numbers and spans."""

    kind: str
    text: str
    number: float
    begin: int
    end: int


@dataclass(frozen=True)
class Compare:
    name: Name
    operator: str
    value: Value


@dataclass(frozen=True)
class Among:
    name: Name
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Is:
    """`what`: "set" or "nan"."""

    name: Name
    what: str


@dataclass(frozen=True)
class Not:
    inner: Node


@dataclass(frozen=True)
class Both:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Either:
    parts: tuple[Node, ...]


Node = Compare | Among | Is | Not | Both | Either


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    begin: int
    end: int
    unit: str = ""

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.lower() in words

    def is_sign(self, *signs: str) -> bool:
        return self.kind == "sign" and self.text in signs

    def spelled(self) -> str:
        return "the end" if self.kind == "end" else f"“{self.text[:40]}”"


def quoted(text: str) -> str:
    """The text as a name or a value between quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def parse(text: str) -> Node | None:
    """None of an empty text. Raises Refused."""
    if len(text) > MOST_CHARACTERS:
        raise Refused(MOST_CHARACTERS, len(text), f"The filter has {len(text):,} characters, at most {MOST_CHARACTERS:,} are read.")
    if "\0" in text:
        raise Refused(text.index("\0"), text.index("\0") + 1, "This character stands in no name and no text: leave it out.")
    reader = _Reader(list(_tokens(text)))
    if reader.next.kind == "end":
        return None
    found = reader.either(0)
    if reader.next.kind != "end":
        more = "Close no more brackets than were opened." if reader.next.is_sign(")") else "Write and, or, or nothing more."
        raise reader.refused(f"{reader.next.spelled()} cannot stand behind a whole comparison. {more}")
    return found


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            if text[at] in "\"'":
                raise Refused(at, len(text), f"The quote that begins here is not closed: write another {text[at]} behind the name or text.")
            said = f"“{text[at]}” means nothing here. Names and texts with such characters stand in double quotes."
            raise Refused(at, at + 1, said)
        if (kind := str(found.lastgroup)) != "space":
            yield Token(kind, found.group(), at, found.end(), unit=found.group("unit") or "")
        at = found.end()
    yield Token("end", "", len(text), len(text))


class _Reader:
    """Walks over the tokens, one ahead."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._at, self._comparisons = tokens, 0, 0

    @property
    def next(self) -> Token:
        return self._tokens[self._at]

    def next_token(self) -> Token:
        token = self.next
        self._at += token.kind != "end"
        return token

    def refused(self, said: str) -> Refused:
        return Refused(self.next.begin, self.next.end, said)

    def either(self, depth: int) -> Node:
        parts = [self.both(depth)]
        while self.next.is_word("or"):
            self.next_token()
            parts.append(self.both(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def both(self, depth: int) -> Node:
        parts = [self.one(depth)]
        while self.next.is_word("and"):
            self.next_token()
            parts.append(self.one(depth))
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def one(self, depth: int) -> Node:
        if depth > DEEPEST:
            raise self.refused(f"Brackets and nots are at most {DEEPEST} deep: write it with fewer.")
        if self.next.is_word("not"):
            self.next_token()
            return Not(self.one(depth + 1))
        if not self.next.is_sign("("):
            return self.comparison()
        self.next_token()
        inner = self.either(depth + 1)
        if not self.next.is_sign(")"):
            raise self.refused(f"A bracket is open: write ), and, or or here instead of {self.next.spelled()}.")
        self.next_token()
        return inner

    def comparison(self) -> Node:
        self._comparisons += 1
        if self._comparisons > MOST_COMPARISONS:
            raise self.refused(f"There are more than {MOST_COMPARISONS} comparisons: write fewer, or several values as in (a, b, c).")
        name = self.name()
        if self.next.kind == "sign" and self.next.text.replace("==", "=") in OPERATORS:
            return Compare(name, self.next_token().text.replace("==", "="), self.value())
        if self.next.is_word("is"):
            self.next_token()
            return self.is_(name)
        turned = self.next.is_word("not") and self._tokens[self._at + 1].is_word("in")
        if turned:
            self.next_token()
        if self.next.is_word("in"):
            self.next_token()
            among = Among(name, self.values())
            return Not(among) if turned else among
        said = f"Behind the column {name.text} comes one of {' '.join(OPERATORS)}, in (...), is set, or is not set"
        raise self.refused(f"{said}; not {self.next.spelled()}. To find a run by words write name ~ {quoted(name.text)}.")

    def name(self) -> Name:
        token = self.next
        if token.kind not in ("word", "text") or token.is_word(*KEYWORDS):
            raise self.refused(f'A column\'s name is expected here, as in lr < 0.1 or "train loss" < 0.5; not {token.spelled()}.')
        self.next_token()
        if not (token.is_word(*USES) and self.next.is_sign("(")):
            return Name(_text(token), "", token.begin, token.end)
        self.next_token()
        inner = self.next
        if inner.kind not in ("word", "text"):
            raise self.refused(f"A metric's name is expected here, as in {token.text.lower()}(accuracy); not {inner.spelled()}.")
        self.next_token()
        if not self.next.is_sign(")"):
            raise self.refused(f"A ) is expected here, as in {token.text.lower()}(accuracy); not {self.next.spelled()}.")
        return Name(_text(inner), token.text.lower(), token.begin, self.next_token().end)

    def is_(self, name: Name) -> Node:
        turned = self.next.is_word("not")
        if turned:
            self.next_token()
        if not self.next.is_word("set", "nan"):
            raise self.refused(f"Behind is comes set, not set, nan or not nan; not {self.next.spelled()}.")
        found = Is(name, self.next_token().text.lower())
        return Not(found) if turned else found

    def values(self) -> tuple[Value, ...]:
        closing = {"(": ")", "[": "]"}.get(self.next.text, "") if self.next.kind == "sign" else ""
        if not closing:
            raise self.refused(f"Values in brackets are expected here, as in (0.1, 0.3); not {self.next.spelled()}.")
        self.next_token()
        found = [self.value()]
        while self.next.is_sign(","):
            self.next_token()
            found.append(self.value())
            if len(found) > MOST_VALUES:
                raise self.refused(f"There are more than {MOST_VALUES} values in these brackets: write fewer.")
        if not self.next.is_sign(closing):
            raise self.refused(f"A , or a {closing} is expected here; not {self.next.spelled()}.")
        self.next_token()
        return tuple(found)

    def value(self) -> Value:
        token = self.next
        if token.kind not in ("number", "date", "text", "word") or token.is_word("and", "or"):
            raise self.refused(f'A value is expected here: a number, 2h, a date, a word, or "a text"; not {token.spelled()}.')
        self.next_token()
        number = float(token.text.removesuffix(token.unit)) if token.kind == "number" else 0.0
        kind = "span" if token.unit else token.kind
        return Value(kind, _text(token), number * UNITS.get(token.unit, 1.0), token.begin, token.end)


def _text(token: Token) -> str:
    return re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL) if token.kind == "text" else token.text

"""Figures in lines that a script prints for people: "Epoch 3/10 | step 40/200 | train loss 0.31". Pure, standard library only.

A line counts where it names a measure (`MEASURES`) with a number behind it and says where in the training it is, or comes after one that
said so: what is printed before (settings, sizes) is no curve. Names stay as the script wrote them. `Position` is what a line says of where
it is; `PrintedLines` makes one step of it that grows from epoch to epoch, in the line's own unit, batches or samples.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from training_runtime.elastic.script_logs.printed_boxes import Boxes
from training_runtime.elastic.script_logs.printed_pairs import ASIDE, MEASURES, NUMBER, WORDS, Pair, pairs_of, words_of
from training_runtime.elastic.script_logs.printed_rounds import Rounds
from training_runtime.elastic.script_logs.printed_ruled_tables import RuledTables
from training_runtime.tracking.answers import Group, group_of

LONGEST_LINE, LONGEST_DRAWN = 600, 4096  # without and with what only a terminal sees
MOST_PASSES = 100  # kinds of passes over data, by their lengths
MOST_STEPS = 2**63 - 1
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f'\"`]")
_WRAPPED = re.compile(r"\b(?:tensor|np\.float\d\d)\(\s?\[?([^\s,()\]]{1,40})[^()]{0,120}(?:\([^()]{0,80}\)[^()]{0,80})?\)")
_COMPLAINT = re.compile(r"\s*(?:[\w.]*(?:Error|Exception|Warning)\b\s?:|\[?[WEF]\d{4} \d\d:\d\d:\d\d\.\d)")
_PLACE = re.compile(r"\A\s*\[?I\d{4} \d\d:\d\d:\d\d\.\d+ +[^\]]{1,200}\]")  # in the code, as glog and absl begin a line with it
_CLOCK = re.compile(r"\b\d{2,4}[-/]\d\d[-/]\d\d(?:[ T]|\b)|(?<![\d/])\d\d/\d\d(?= \d\d:\d\d:)|\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?")
_EPOCH = re.compile(
    r"\bepoch\b ?(?P<phase>\(\w{1,20}\))?[\s:=#\[(|]{0,8}(?P<epoch>\d{1,9})(?:\.\d+)?(?:\s{0,3}(?:/|of)\s{0,3}\d+)?[\])]?"
    r"|\btrain(?:ing)?\s?:\s?(?P<train>\d{1,9})(?=\s*\[)"
    r"|^\W{0,4}\[(?P<first>\d{1,9})(?:/\d+\]\s?(?=\[\d+/\d+\])|,\s*(?P<batch>\d{1,18})\])",
    re.IGNORECASE,
)
_COUNTS = [
    re.compile(
        rf"\b(?:{words})\b[\s:=#\[(|]{{0,8}}(?P<at>\d{{1,18}})(?![.\d]|\s?[a-z]{{0,2}}s\b|[a-z])(?:\s{{0,3}}(?:/|of)\s{{0,4}}(?P<of>\d{{1,18}}))?[\])]?",
        re.IGNORECASE,
    )
    for words in ("global[_ ]step|num_updates", "steps?|episode|ep|round", "iter(?:ation)?s?", "batch|minibatch|update")
]
_COUNTS.append(re.compile(r"\bafter (?P<at>\d{1,18})(?P<of>) (?:batches|steps|iterations)\b", re.IGNORECASE))
_SHARE = re.compile(r"(?<![\d.:/])(?P<at>\d{1,18})\s{0,4}/\s{0,4}(?P<of>\d{1,18})(?![\d.:/])(?:\s*\(\s*[\d.]+%\))?\]?")
_BEHIND = re.compile(  # "Loss after epoch 4: 0.3"
    r"\s(?:after|at|in|for)\s(?:(?P<what>epoch|step|iteration|batch)\s(?P<at>\d{1,18})|(?P<count>\d{1,18})\s(?P<plural>epoch|step|iteration|batche)s)(?=\s?[:=])",
    re.IGNORECASE,
)
# A loss, of PyTorch's tutorials on recurrent nets: "1m 47s (- 25m 8s) (5000 6%) 2.8574", "5000 5% (0m 29s) 2.6379 Horigome / Japanese".
_UNNAMED = re.compile(
    rf"\A\d+m \d+s (?:\(- \d+m \d+s\) )?\((?P<step>\d{{1,18}}) \d+%\) (?P<loss>{NUMBER})\s*\Z"
    rf"|\A(?P<first>\d{{1,18}}) \d+% \(\d+m \d+s\) (?P<behind>{NUMBER})\s"
)
_TRIAL = re.compile(rf"\bTrial (?P<at>\d{{1,9}}) finished with value: (?P<value>{NUMBER})")  # of Optuna
_TRAINING = frozenset({"train", "training"})
_COLUMN_OF_STEPS = frozenset({"epoch", "step", "iter", "iteration"})


@dataclass(frozen=True)
class Position:
    """`at` of `of` batches or samples: of the epoch where there are epochs, else of the training. `counted`: by a word such as "step"."""

    epoch: int | None
    at: int | None
    of: int | None
    counted: bool

    @property
    def is_known(self) -> bool:
        return self.epoch is not None or self.at is not None


@dataclass(frozen=True)
class PrintedValue:
    group: Group
    name: str
    step: int
    value: float


@dataclass(frozen=True)
class _Table:
    """Lines below names of columns, as fast.ai and skorch print them: the first column counts."""

    names: tuple[str, ...]

    @staticmethod
    def below(text: str) -> _Table | None:
        """The one that this line is the head of."""
        names = tuple(text.replace("|", " ").split())
        if (
            len(names) < 2
            or names[0].lower() not in _COLUMN_OF_STEPS
            or not all(re.fullmatch(r"[A-Za-z][\w@/.-]{0,60}", each) for each in names)
        ):
            return None
        return _Table(names) if any(words_of(name) & MEASURES for name in names[1:]) else None

    def row(self, text: str) -> tuple[int, list[tuple[Group, str, float]]] | None:
        """(what the first column says, group, name and value of each figure); None where the line is no row. What stands right of a test
        figure and says nothing else is one too."""
        cells = text.replace("|", " ").split()
        if len(cells) != len(self.names) or not re.fullmatch(r"\d{1,9}", cells[0]):
            return None
        found: list[tuple[Group, str, float]] = []
        group: Group = "train"
        for name, cell in zip(self.names[1:], cells[1:], strict=True):
            group = _group_said(name) or group
            if re.fullmatch(rf"{NUMBER}|[-+]?(?:nan|inf)", cell, re.IGNORECASE) and not words_of(name) & ASIDE:
                found.append((group, name, float(cell)))
        return int(cells[0]), found


@dataclass
class _Pass:
    """Over the data, again and again: `base` is where the current one began, `at` how far the last line was."""

    base: int
    at: int
    epoch: int | None
    stride: int = 1  # from one line to the next


@dataclass
class PrintedLines:
    """Of one script, line by line."""

    _epoch: int | None = None
    _first: int = 1  # what the script calls its first epoch
    _step: int | None = None
    _group: Group = "train"
    _passes: dict[int | None, _Pass] = field(default_factory=dict)
    _tests: dict[int | None, tuple[int, int]] = field(default_factory=dict)  # by their lengths: how many are over, and how far the last is
    _last: int | None = None  # the length of the pass that was told of last
    _is_counted: bool = False  # some line said where in an epoch it is
    _table: _Table | None = None  # whose rows may come
    _boxes: Boxes = field(default_factory=Boxes)
    _rounds: Rounds = field(default_factory=Rounds)
    _ruled_tables: RuledTables = field(default_factory=RuledTables)

    def add(self, text: str) -> list[PrintedValue]:
        """The figures of a line; none where it has none."""
        counted = self._rounds.add(text) if len(text) <= LONGEST_DRAWN else None
        text = _PLACE.sub("", _ESCAPES.sub("", text[:LONGEST_DRAWN]), count=1)
        if (counted := counted or self._boxes.add(text) or self._ruled_tables.add(text)) is not None:
            self._step, figures = counted
            return [PrintedValue(_group_said(name) or "train", name, self._step, value) for name, value in figures.items()]
        if trial := _TRIAL.search(text):
            return [PrintedValue("test", "trial value", int(trial["at"]), float(trial["value"]))]
        if unnamed := _UNNAMED.match(text):
            self._step = int(unnamed["step"] or unnamed["first"])
            return [PrintedValue("train", "loss", self._step, float(unnamed["loss"] or unnamed["behind"]))]
        self._table = _Table.below(text) or self._table
        if len(text) > LONGEST_LINE or (not any(map(str.isdigit, text)) and _group_said(text) is None) or _COMPLAINT.match(text):
            return []
        if (row := self._row(text)) is not None:
            return row
        text = _said_first(_CLOCK.sub(" | ", _WRAPPED.sub(r"\1", text)))
        position, rest = position_of(text)
        pairs = pairs_of(rest, is_of_training=position.epoch is not None and position.at is not None)
        if not pairs:
            self._note_heading(rest, position)
            return []
        self._note_epoch(position.epoch)
        groups = self._groups(pairs, rest, self._group_unsaid(position))
        step = self._step_of(position, is_test="train" not in groups)
        if step is None:
            return []
        self._group = groups[-1]
        return [PrintedValue(group, pair.name, step, pair.value(group)) for pair, group in zip(pairs, groups, strict=True)]

    def _row(self, text: str) -> list[PrintedValue] | None:
        """None where the line is no row of the table that was begun last."""
        found = self._table.row(text) if self._table else None
        if found is None:
            return None
        at, values = found
        if self._table and self._table.names[0].lower() == "epoch":
            self._note_epoch(at)
            at = self._at_end_of(at)
        self._step = at
        return [PrintedValue(group, name, at, value) for group, name, value in values]

    @staticmethod
    def _groups(pairs: list[Pair], line: str, unsaid: Group) -> list[Group]:
        """Of each figure in the line. What is said before one ("val: loss 0.4, acc 0.8", "val Loss: 0.4 Acc: 0.8") is said of the measures
        behind it, too; what stands before the first, of all."""
        unsaid = _group_said(line[: pairs[0].at]) or unsaid
        found: list[Group] = []
        heading: Group | None = None
        behind = pairs[0].at
        for pair in pairs:
            first, _, others = pair.name.partition(" ")
            heading = (_group_said(first) if others or pair.names_group else None) or _group_said(line[behind : pair.at]) or heading
            found.append(_group_said(pair.name) or (heading if pair.words & MEASURES else None) or unsaid)
            behind = pair.found.end()
        return found

    def _group_unsaid(self, position: Position) -> Group:
        """Of a figure that does not say it itself. When the epoch's batches are through, others in another number are those of a test, as
        where a script draws the same bar for both."""
        if not position.is_known:
            return self._group
        trained = self._passes.get(self._last) if self._last and position.of and position.epoch is None else None
        is_through = (
            trained is not None and trained.epoch is not None and trained.epoch == self._epoch and trained.at >= (self._last or 0) - 1
        )
        return "test" if is_through and position.of != self._last else "train"

    def _note_epoch(self, epoch: int | None) -> None:
        if epoch is not None:
            self._first = self._first if self._epoch is not None else min(1, epoch)
            self._epoch = epoch

    def _note_heading(self, rest: str, position: Position) -> None:
        """A line without figures may say what the next ones are: "Epoch 3", "Test Error:"."""
        said = _group_said(rest)
        alone = not any(map(str.isalnum, rest))
        if said == "test" and position.at is not None:
            self._at_test(position.at, position.of)
        if said is not None or position.epoch is not None or alone:
            self._group = said or "train"
        if position.epoch is not None and position.epoch >= (self._epoch or 0):  # a sentence may look back at another
            self._note_epoch(position.epoch)
            self._step = self._step if self._is_counted else position.epoch
        if position.at is not None and position.counted and alone:
            self._step = self._within(position)

    def _step_of(self, position: Position, *, is_test: bool) -> int | None:
        if is_test and position.at is not None and not (position.counted and self._epoch is None):
            return self._at_test(position.at, position.of)
        if position.at is not None:
            self._step = self._within(position)
        elif position.epoch is not None:
            self._step = self._at_end_of(position.epoch)
        return self._step

    def _at_test(self, at: int, of: int | None) -> int:
        """How far a test is says nothing of the training. Where nothing else does either, tests are counted: the first may be before it."""
        count, before = self._tests.get(of, (0, at))
        count += at < before
        if len(self._tests) < MOST_PASSES or of in self._tests:
            self._tests[of] = count, at
        told = self._step if self._step is not None else self._epoch
        return count if told is None else told

    def _within(self, position: Position) -> int:
        at, of = position.at or 0, position.of
        self._is_counted, self._last = True, of
        if len(self._passes) >= MOST_PASSES and of not in self._passes:
            self._passes.clear()
        before = self._passes.get(of)
        if of and at > of:  # of all epochs, beside the length of one: "Epoch[2] Iteration[30/25]"
            base = (at - 1) // of * of
            self._passes[of] = _Pass(base, at - base, self._epoch)
            return min(at, MOST_STEPS)
        if before is None:
            before = self._passes[of] = _Pass(max(0, (self._epoch or 0) - self._first) * (of or 0), at, self._epoch)
        elif at < before.at or (self._epoch != before.epoch and (at == before.at or not position.counted)):
            before.base = max(0, before.base + self._passed(before, at, of))
        before.stride = max(at - before.at, 0) or before.stride
        before.at, before.epoch = at, self._epoch
        return min(before.base + at, MOST_STEPS)

    def _passed(self, before: _Pass, at: int, of: int | None) -> int:
        """By how much the count has begun anew; none where it is the same epoch again, and less than none in an earlier one: a script that
        was started again."""
        epochs = 1 if self._epoch is None or before.epoch is None else self._epoch - before.epoch
        if of:
            return epochs * of
        return before.at + (0 if at else before.stride) if epochs > 0 else 0

    def _at_end_of(self, epoch: int) -> int:
        if not self._is_counted:
            return epoch
        last = self._passes.get(self._last)
        return min(last.base + self._last, MOST_STEPS) if last and self._last else self._step or 0


def position_of(text: str) -> tuple[Position, str]:
    """What the line says of where it is, and the line without that."""
    epoch = at = of = None
    if found := _EPOCH.search(text):
        epoch = int(found["epoch"] or found["train"] or found["first"])
        at = int(found["batch"]) if found["batch"] else None
        text = f"{text[: found.start()]} {found['phase'] or ''} | {text[found.end() :]}"
    counted = at is not None
    if at is None:
        counts = (found for pattern in _COUNTS if (found := pattern.search(text)) and not _is_after(text, found.start()))
        found = next(counts, None)
        counted = found is not None
        found = found or next((each for each in _SHARE.finditer(text) if _is_share(text, each)), None)
        if found is not None:
            at, of = int(found["at"]), int(found["of"]) if found["of"] else None
            text = f"{text[: found.start()]} | {text[found.end() :]}"
    return Position(epoch, at, of, counted), text


def _said_first(text: str) -> str:
    """With where it is before the measure that says so itself."""
    found = _BEHIND.search(text)
    if found is None:
        return text
    what, at = found["what"] or found["plural"].removesuffix("e"), found["at"] or found["count"]
    return f"{what} {at} | {text[: found.start()]}{text[found.end() :]}"


def _is_after(text: str, start: int) -> bool:
    """It is what something else is measured by: "2ms/step"."""
    return text[max(0, start - 1) : start] == "/"


def _is_share(text: str, found: re.Match[str]) -> bool:
    """And no figure itself: "Accuracy: 9842/10000", "Acc: 98.4% (9842/10000)"."""
    before = re.search(
        r"([A-Za-z]+)\s{0,3}[:=]?\s{0,3}(?:[\d.]{1,20}\s?%?\s{0,3}\(\s?)?\Z", text[max(0, found.start() - 60) : found.start()]
    )
    return int(found["at"]) <= int(found["of"]) and not (before and before[1].lower() in MEASURES)


def _group_said(text: str) -> Group | None:
    """By the last word in it that says one."""
    return next((said for word in reversed(WORDS.findall(text)) if (said := _of_word(word))), None)


def _of_word(word: str) -> Group | None:
    if word.lower() in _TRAINING:
        return "train"
    return "test" if group_of(word) == "test" else None

"""Figures by name in a line: "train loss 0.31, lr=0.1". Pure, standard library only.

A line has figures where it names a measure (`MEASURES`) with a number behind it. Names stay as the script wrote them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from training_runtime.tracking.answers import Group

LONGEST_NAME = 100
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_NAME = r"(?<![\w@/.()-])[A-Za-z][\w@/.()-]{0,60}(?: [A-Za-z][\w@/.()-]{0,60}){0,3}"
_ASIDE_OF_NAME = r"(?:\s?\([^()=:]{1,24}\)(?=\s{0,3}[:=]|\s))?"  # "loss (batch)"
_PAIR = re.compile(
    rf"(?P<name>{_NAME}{_ASIDE_OF_NAME})\s{{0,3}}(?P<separator>[:=])?\s{{0,12}}\[?"
    rf"(?P<value>{NUMBER}|[-+]?(?:nan|inf)\b)(?!\.\d|\w|:\d)"
    r"(?:\s?/\s?(?P<of>\d{1,18})(?![\w.])(?P<percent>\s?\(\s?[\d.]+\s?%\))?)?"
    rf"(?:\s?\(\s{{0,4}}(?P<mean>{NUMBER})\s?\))?",
    re.IGNORECASE,
)
WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[a-z]+\d+", re.ASCII)
_WHOLE_WORDS = re.compile(r"[a-z]+\d*", re.ASCII)
MEASURES = frozenset(
    """loss losses acc accs accuracy prec precision recall f1 auc auroc map iou miou dice ppl perplexity bpc bpb err error mse rmse mae mape
    r2 psnr ssim fid bleu rouge wer cer reward rewards rew return returns score nll kl kld elbo bce entropy likelihood top1 top5 cost
    objective gan l1""".split()  # noqa: SIM905 - as a list it is a screen
)
_GROUPS = frozenset({"train", "training", "val", "valid", "validation", "dev", "eval", "test"})
_COMPANIONS = frozenset({"lr", "rate", "norm", "gnorm", "mfu", "temperature", "epsilon", "beta"})
ASIDE = frozenset(
    """time times timestamp eta elapsed sec secs second seconds ms min date data seed rank gpu mem memory size pid epoch epochs step steps
    iter iters iteration iterations batch batches world total num dur duration""".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Pair:
    """Begins `at` in what is left of its line."""

    name: str
    at: int
    found: re.Match[str]

    @property
    def words(self) -> set[str]:
        return words_of(self.name)

    @property
    def is_figure(self) -> bool:
        """A measure; where something stands between name and number, or another name is a measure, what is beside measures too."""
        last = words_of(self.name.partition(" (")[0].rsplit(" ", 1)[-1])
        groups = _GROUPS if self.is_decimal else frozenset[str]()
        if self.words & MEASURES and (self.found["separator"] or last & (MEASURES | groups)):
            return not self.words & {"time", "eta"}
        return self.is_named_alone if self.found["separator"] else bool(last & _COMPANIONS) or self.words <= groups

    @property
    def names_group(self) -> bool:
        """And no measure, as the second name in "loss train 0.5 valid 0.6"."""
        return self.words <= _GROUPS

    @property
    def is_named_alone(self) -> bool:
        """It may be a figure by where it stands, although its name is no measure."""
        return bool(self.found["separator"]) and not self.words & (ASIDE - {"total"} if self.is_decimal else ASIDE)

    @property
    def is_decimal(self) -> bool:
        return "." in self.found["value"]

    def value(self, group: Group) -> float:
        value, of = float(self.found["value"]), self.found["of"]
        if of and self.found["value"].isdigit() and 0 < int(of) >= value:
            return value / int(of) * (100 if self.found["percent"] else 1)
        if group == "test" and self.found["mean"]:  # an average over all batches until now, beside the last one's
            return float(self.found["mean"])
        return value


def pairs_of(text: str, *, is_of_training: bool = False) -> list[Pair]:
    """Names with numbers behind them, where one of them at least is a measure; or the one that a sentence tells of, as in "Accuracy of the
    network on the 10000 test images: 55 %". `is_of_training`: the line says an epoch and a batch, so that several decimal numbers with
    names are figures in any words, as in "D_A: 0.5 G_A: 0.3"."""
    found = [Pair(" ".join(each["name"].split()), each.start(), each) for each in _PAIR.finditer(text)]
    pairs = [pair for pair in found if pair.is_figure]
    if any(pair.words & MEASURES for pair in pairs):
        return pairs
    decimals = [pair for pair in found if pair.is_named_alone and pair.is_decimal] if is_of_training else []
    if len(decimals) > 1:
        return decimals
    if not found or not words_of(" ".join(text.split()[:3])) & MEASURES:
        return []
    name = " ".join(text[: found[-1].found.end("name")].split())
    says = found[-1].found["separator"] or name.endswith((" is", " was"))
    return [Pair(name.removesuffix(" is").removesuffix(" was"), 0, found[-1].found)] if says and len(name) <= LONGEST_NAME else []


def words_of(name: str) -> set[str]:
    """Of a name, as they are written: `train_loss`, `TrainLoss`, `Acc@1`, `f1`."""
    return {word.lower() for word in WORDS.findall(name)} | set(_WHOLE_WORDS.findall(name.lower()))


def title_of(label: str) -> str:
    """A bar's label without the figures in it: what stands before them."""
    found = pairs_of(label)
    return label[: found[0].at].strip(" \t:|,;-([") if found else label

"""Whether less or more of a metric is better, by the words of its name. Pure; where no word says so, nobody knows."""

from __future__ import annotations

import re
from typing import Literal

Better = Literal["less", "more"]

LESS = """loss losses error errors err perplexity ppl nll mse rmse mae mape smape wer cer ter fid kid kl divergence bpc bpb bits distance
regret cost penalty eer logloss rmsle latency fpr fnr brier ece hinge bce"""
MORE = """accuracy acc accuracies f1 f2 fbeta auc auroc auprc roc precision recall sensitivity specificity map ap iou miou dice jaccard bleu
rouge rougel meteor cider r2 score reward rewards return returns psnr ssim mcc kappa hits mrr ndcg correlation pearson spearman success
winrate exactmatch em throughput top1 top5 tpr tnr likelihood elbo"""
_WORDS: dict[str, Better] = {**dict.fromkeys(LESS.split(), "less"), **dict.fromkeys(MORE.split(), "more")}
_WORD = re.compile(r"[A-Z]?[a-z]+[0-9]*|[A-Z]+[0-9]*(?![a-z])|[a-z]+[0-9]*")


def better(name: str) -> Better | None:
    """ "val/accuracyLoss" -> "less": the last word that says something counts, as what the others are of."""
    words = [word.lower() for word in _WORD.findall(name)]
    return next((_WORDS[word] for word in reversed(words) if word in _WORDS), None)

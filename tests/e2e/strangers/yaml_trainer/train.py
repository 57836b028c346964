"""Digits with a Trainer class and a YAML file, as written for a workstation."""

import argparse
import json
import logging
import random
from pathlib import Path

import numpy as np
import torch
import yaml
from models import mlp
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

log = logging.getLogger("train")


class Trainer:
    def __init__(self, config):
        self.config = config
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = mlp.build(**config["model"]).to(self.device)
        optim = config["optim"]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=optim["lr"], momentum=optim["momentum"])
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, optim["epochs"])
        self.out = Path(config["output"])
        self.out.mkdir(exist_ok=True)
        digits = load_digits()
        data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
        kept = int(len(data) * config["data"]["valid"])
        train, valid = random_split(data, [len(data) - kept, kept])
        self.train_data = DataLoader(train, config["data"]["batch_size"], shuffle=True, num_workers=2)
        self.valid_data = DataLoader(valid, 256)
        self.best = 0.0

    def fit(self):
        for epoch in range(self.config["optim"]["epochs"]):
            loss = self.one_epoch()
            accuracy = self.evaluate()
            self.schedule.step()
            log.info("epoch %d done", epoch)
            with open(self.out / "metrics.jsonl", "a") as file:
                file.write(json.dumps({"epoch": epoch, "train_loss": loss, "val_accuracy": accuracy}) + "\n")
            if accuracy > self.best:
                self.best = accuracy
                torch.save({"model": self.model.state_dict(), "epoch": epoch}, self.out / "best.pt")

    def one_epoch(self):
        self.model.train()
        losses = []
        for x, y in self.train_data:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.model(x.to(self.device)), y.to(self.device))
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        right = sum((self.model(x.to(self.device)).argmax(1).cpu() == y).sum().item() for x, y in self.valid_data)
        return right / len(self.valid_data.dataset)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="configs/base.yaml")
    parser.add_argument("--epochs", type=int)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", filename="train.log")
    with open(args.config) as file:
        config = yaml.safe_load(file)
    if args.epochs:
        config["optim"]["epochs"] = args.epochs
    random.seed(config["seed"])
    np.random.seed(config["seed"])
    torch.manual_seed(config["seed"])
    Trainer(config).fit()

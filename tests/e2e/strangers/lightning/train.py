"""Digits as a LightningModule with TensorBoard's logger and the progress bar that Lightning brings."""

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.loggers import TensorBoardLogger
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from torchmetrics.classification import MulticlassAccuracy


class Digits(L.LightningModule):
    def __init__(self, hidden=128, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
        self.accuracy = MulticlassAccuracy(10)

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.accuracy(self.net(x), y)
        self.log("val_accuracy", self.accuracy, prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


if __name__ == "__main__":
    L.seed_everything(7)
    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
    train, valid = random_split(data, [1500, len(data) - 1500])
    trainer = L.Trainer(
        max_epochs=4,
        logger=TensorBoardLogger("lightning_logs", name="digits"),
        callbacks=[ModelCheckpoint(monitor="val_accuracy", mode="max"), TQDMProgressBar(refresh_rate=5)],
        log_every_n_steps=5,
    )
    trainer.fit(Digits(), DataLoader(train, 32, shuffle=True), DataLoader(valid, 128))

"""A small BERT from a config, nothing downloaded: is the number of ones in a row of tokens odd? Logged with MLflow."""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed


class Rows(Dataset):
    def __init__(self, count, seed):
        drawn = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, 8, (count, 12), generator=drawn)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        row = self.tokens[index]
        return {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": int((row > 3).sum() > 6)}


def accuracy(predicted):
    return {"accuracy": float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())}


if __name__ == "__main__":
    set_seed(7)
    config = BertConfig(
        vocab_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=16
    )
    arguments = TrainingArguments(
        output_dir="out",
        num_train_epochs=3,
        per_device_train_batch_size=32,
        learning_rate=1e-3,
        logging_steps=5,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        report_to="mlflow",
        run_name="ones",
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Rows(800, 1),
        eval_dataset=Rows(200, 2),
        compute_metrics=accuracy,
    )
    trainer.train()
    trainer.save_model("out/final")

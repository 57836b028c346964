"""Reads handwritten digits with a small convolutional net: an elastic training definition. Its weights do not depend on the slots it gets.

The data folder (DATA_DIR) holds MNIST's four files, plain or gzipped, of any image size. `python main.py --help` lists the arguments.
"""

import argparse
import gzip
import os
import struct
from pathlib import Path

import torch
from fabric_model import FabricModel
from torch import Tensor, nn
from torch.utils.data import Dataset


def read_idx(folder: Path, name: str) -> Tensor:
    """An idx file of unsigned bytes as a uint8 tensor."""
    path = next((p for p in (folder / name, folder / f"{name}.gz") if p.exists()), None)
    if path is None:
        raise SystemExit(f"{folder} has no {name}: choose the folder with MNIST's files as the experiment's source files folder.")
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    shape = struct.unpack(f">{raw[3]}I", raw[4 : 4 + 4 * raw[3]])
    return torch.frombuffer(bytearray(raw[4 + 4 * raw[3] :]), dtype=torch.uint8).reshape(shape)


class Digits(Dataset):
    """Images in [0, 1] (1, H, W); those to train on are moved by up to one pixel, at random."""

    def __init__(self, folder: Path, part: str, *, shift: bool) -> None:
        self.images = read_idx(folder, f"{part}-images-idx3-ubyte").float().div_(255).unsqueeze(1)
        self.labels = read_idx(folder, f"{part}-labels-idx1-ubyte").long()
        self.shift = shift

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.images[index]
        if self.shift:
            down, right = (int(x) for x in torch.randint(-1, 2, (2,)))
            image = torch.roll(image, (down, right), dims=(1, 2))
        return image, self.labels[index]


class Net(nn.Module):
    """Three convolutions on the image at twice its size and a linear layer: 243,000 parameters at width 64. For images from 8x8 up."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.GroupNorm(8, 2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.GroupNorm(8, 2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
        )
        self.classes = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(2 * width * 4 * 4, 10))

    def forward(self, x: Tensor) -> Tensor:  # x: (batch, 1, H, W) -> (batch, 10)
        return self.classes(self.features(x))


def accuracy(output: Tensor, target: Tensor) -> Tensor:
    """The share of right answers."""
    return (output.argmax(dim=1) == target).float().mean()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=16, help="of one engine; the global batch is this times the engines")
    parser.add_argument("--engines", type=int, default=4, help="parts of a global batch: the most slots that can help")
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--width", type=int, default=64, help="channels of the first convolution, a multiple of 4")
    parser.add_argument("--checkpoint-every", type=int, default=10, help="epochs; 0: only at the end")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    folder = Path(os.environ.get("DATA_DIR") or Path(__file__).resolve().parent / "data")
    torch.manual_seed(args.seed)
    model = Net(args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    def datasets() -> tuple[Dataset, Dataset]:
        return Digits(folder, "train", shift=True), Digits(folder, "t10k", shift=False)

    edt = FabricModel(model, datasets, nn.functional.cross_entropy, optimizer, metrics=[accuracy])
    edt.train(args.epochs, args.batch_size, engines_number=args.engines, checkpoint_freq=args.checkpoint_every)


if __name__ == "__main__":
    main()

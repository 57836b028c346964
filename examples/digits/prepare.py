"""Writes scikit-learn's handwritten digits as the four gzipped files of MNIST: `python prepare.py [FOLDER]` (needs scikit-learn).

1797 images of 8x8 pixels with values from 0 to 255; every sixth is kept for the test. The folder `data` beside this file holds the result,
so that the example needs neither scikit-learn nor a network.
"""

import gzip
import struct
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TEST_EVERY = 6


def idx(array: np.ndarray) -> bytes:
    """The idx format: two zero bytes, 8 for unsigned bytes, the number of dimensions, their sizes (big-endian), then the values."""
    assert array.dtype == np.uint8
    return struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write(folder: Path) -> None:
    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    held_out = np.arange(len(images)) % TEST_EVERY == 0
    folder.mkdir(parents=True, exist_ok=True)
    for name, chosen in (("train", ~held_out), ("t10k", held_out)):
        for kind, array in (("images-idx3", images[chosen]), ("labels-idx1", labels[chosen])):
            # mtime 0: the same bytes whenever it is run
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(idx(array), mtime=0))


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "data")

"""A small server-like program that knows nothing of kfit: scikit-learn and numpy, float32.

  serve.py train MODEL           fits an MLP on scikit-learn's digits and writes it
  serve.py serve MODEL RESULT    predicts the digits at several batch sizes, then sends 1 to 8 rows through a
                                 decode-like block of 768- and 3072-wide layers; writes answers and times as JSON
  serve.py decode                the decode-like block alone; prints its speed
"""
import json
import pickle
import sys
import time

import numpy as np

BATCHES = (1, 4, 8, 16)
ROWS = (1, 2, 4, 8)


def digits():
    from sklearn.datasets import load_digits

    data = load_digits()
    return (data.data / 16).astype(np.float32), data.target


def train(model_path):
    from sklearn.neural_network import MLPClassifier

    x, y = digits()
    model = MLPClassifier((768, 256), max_iter=12, batch_size=64, random_state=7)
    with np.errstate(all="ignore"):
        import warnings

        warnings.simplefilter("ignore")
        model.fit(x, y)
    with open(model_path, "wb") as f:
        pickle.dump(model, f)


def predict(model, x, batch):
    return np.concatenate([model.predict(x[i : i + batch]) for i in range(0, len(x) - batch + 1, batch)])


class Block:
    """Two layers, one after the other, their weights 9 MB each."""

    def __init__(self):
        self.rng = np.random.default_rng(7)
        self.up = self.rng.standard_normal((768, 3072), dtype=np.float32) / np.float32(768**0.5)
        self.down = self.rng.standard_normal((3072, 768), dtype=np.float32) / np.float32(3072**0.5)

    def start(self, rows):
        return self.rng.standard_normal((rows, 768), dtype=np.float32)

    def step(self, h):
        return np.maximum(h @ self.up, 0) @ self.down

    def decode(self, h, steps):
        """Where h is after so many steps, and the seconds they took."""
        start = time.perf_counter()
        for _ in range(steps):
            h = self.step(h)
            h /= np.abs(h).max()
        return h, time.perf_counter() - start


def decode(steps=100):
    block, total = Block(), 0
    for rows in ROWS:
        h, _ = block.decode(block.start(rows), 5)
        _, seconds = block.decode(h, steps)
        total += seconds
        print(f"{rows} row{'s' * (rows > 1)}: {steps / seconds:.1f} steps/s")
    print(f"all: {steps * len(ROWS) / total:.1f} steps/s")


def serve(model_path, result_path):
    with open(model_path, "rb") as f:
        model = pickle.load(f)
    x, _ = digits()
    answers, seconds = {}, {}
    for batch in BATCHES:
        predict(model, x[: 4 * batch], batch)
        start = time.perf_counter()
        answers[f"digits, batch {batch}"] = predict(model, x, batch).tolist()
        seconds[f"digits, batch {batch}"] = time.perf_counter() - start

    block = Block()
    for rows in ROWS:
        h, seconds[f"decode, {rows} rows"] = block.decode(block.start(rows), 200)
        answers[f"decode, {rows} rows"] = {"in": h.ravel().tolist(), "out": block.step(h).ravel().tolist()}
    with open(result_path, "w") as f:
        json.dump({"answers": answers, "seconds": seconds, "weights_seed": 7}, f)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "train":
        train(sys.argv[2])
    elif len(sys.argv) == 4 and sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[3])
    elif sys.argv[1:] == ["decode"]:
        decode()
    else:
        sys.exit(__doc__)

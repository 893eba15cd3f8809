"""A small server-like program that knows nothing of kfit: scikit-learn and numpy, float32.

  serve.py train MODEL           fits an MLP on scikit-learn's digits and writes it
  serve.py serve MODEL RESULT    predicts the digits at several batch sizes, then sends 1 to 8 rows through a
                                 decode-like block of 768- and 3072-wide layers; writes answers and times as JSON
"""
import json
import pickle
import sys
import time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

BATCHES = (1, 4, 8, 16)
ROWS = (1, 2, 4, 8)


def digits():
    data = load_digits()
    return (data.data / 16).astype(np.float32), data.target


def train(model_path):
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

    rng = np.random.default_rng(7)
    up = rng.standard_normal((768, 3072), dtype=np.float32) / np.float32(768**0.5)
    down = rng.standard_normal((3072, 768), dtype=np.float32) / np.float32(3072**0.5)
    for rows in ROWS:
        h = rng.standard_normal((rows, 768), dtype=np.float32)
        start = time.perf_counter()
        for _ in range(200):
            h = np.maximum(h @ up, 0) @ down
            h /= np.abs(h).max()
        seconds[f"decode, {rows} rows"] = time.perf_counter() - start
        one = np.maximum(h @ up, 0) @ down
        answers[f"decode, {rows} rows"] = {"in": h.ravel().tolist(), "out": one.ravel().tolist()}
    with open(result_path, "w") as f:
        json.dump({"answers": answers, "seconds": seconds, "weights_seed": 7}, f)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "train":
        train(sys.argv[2])
    elif len(sys.argv) == 4 and sys.argv[1] == "serve":
        serve(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)

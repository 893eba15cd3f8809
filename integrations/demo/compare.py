"""compare.py WITHOUT WITH: are the answers of two runs of serve.py the same?

Predicted classes must be equal. The decode block is judged against float64, computed here from each run's own last
input, by the rule that the judge uses: the error may be 1.5 times that of the run without kfit, or what sums of that
length in float32 may lose (0.3 sqrt(K) units of roundoff), whichever is more.
Prints one line per check and a JSON summary on the last line; exit status 1 if anything differs.
"""
import json
import sys

import numpy as np

U = 2.0**-24
K = 3072  # terms of the longest sum


def weights(seed):
    rng = np.random.default_rng(seed)
    up = rng.standard_normal((768, 3072), dtype=np.float32) / np.float32(768**0.5)
    down = rng.standard_normal((3072, 768), dtype=np.float32) / np.float32(3072**0.5)
    return up.astype(np.float64), down.astype(np.float64)


def error(answer, up, down):
    """Relative root mean square error of one decode step against float64."""
    x = np.array(answer["in"]).reshape(-1, 768)
    want = np.maximum(x @ up, 0) @ down
    got = np.array(answer["out"]).reshape(-1, 768)
    return float(np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2)))


def main(without_path, with_path):
    with open(without_path) as f:
        before = json.load(f)
    with open(with_path) as f:
        after = json.load(f)
    up, down = weights(before["weights_seed"])
    total = different = 0
    worse = []
    for name, a in before["answers"].items():
        b = after["answers"][name]
        if isinstance(a, list):
            total += len(a)
            different += sum(x != y for x, y in zip(a, b)) + abs(len(a) - len(b))
        else:
            e_before, e_after = error(a, up, down), error(b, up, down)
            print(f"{name}: error against float64 {e_before:.2e} without, {e_after:.2e} with kfit")
            if not e_after <= max(1.5 * e_before, 0.3 * K**0.5 * U):
                worse.append(name)
    print(f"predictions: {total - different} equal, {different} different")
    seconds = {name: [s, after["seconds"][name]] for name, s in before["seconds"].items()}
    ok = not different and not worse and total > 0
    print(json.dumps({"predictions": total, "different": different, "worse": worse, "seconds": seconds, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]) if len(sys.argv) == 3 else __doc__)

"""What tests/gpu/test_torch.py asks of kfit, and makes of its answers, tried where there is no GPU: those of its cases that the double's
programs (double/torch_cases.py) can stand in for, so that a mistake in them costs no time on a GPU. Arguments: see cli_helpers.py, then
the double's folder."""
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
DOUBLE, sys.argv[5] = sys.argv[5], str(HERE / "double/torch_cases.py")
sys.path[:0] = [str(HERE), str(HERE / "gpu")]
import test_torch  # noqa: E402
from cli_helpers import main  # noqa: E402

test_torch.PYTHON = sys.executable
SOURCE = """/* kfit-candidate 1
{"op":"gemm","name":"right","device":"cuda","arch":">=80","launches":[{"entry":"kfit_main","grid":[4,1,1],"block":[64,1,1]}]}
*/
// double: ns=5000
extern "C" __global__ void kfit_main(const short *a, const short *b, short *c, unsigned *ws) {}
"""
CASES = ["Torch.test_replays_are_counted", "Dispatched.test_off_names_the_graphs_that_go_on",
         "Dispatched.test_off_in_the_environment", "Dispatched.test_winners_keep_the_rule_of_accuracy", "Dispatched.test_a_pinned_workspace_means_the_original", "Dispatched.test_what_a_handle_is_told"]


class Torch(test_torch.Torch):
    pass


class Dispatched(test_torch.Dispatched):
    def tune(self):
        """Of three shapes two have a winner, given by hand: the double cannot run what a search finds."""
        self.env["KFIT_NVRTC"] = DOUBLE + "/libnvrtc.so.13"
        _, trace = self.counted("shapes")
        self.cache = tempfile.mkdtemp(prefix="kfit-torch-") + "/cache"
        unittest.addModuleCleanup(shutil.rmtree, os.path.dirname(self.cache))
        (self.dir / "right.cu").write_text(SOURCE)
        for k in trace["keys"][:2]:
            self.c("eval", "--wait", "--key", k["key"], "--generic", DOUBLE + "/libcublas.so.13", "--trusted", self.dir / "right.cu")
        self.c("approve", "--all")
        test_torch.Dispatched.winners = sum(r["kind"] == "winner" for r in self.records().values())
        self.assertEqual(test_torch.Dispatched.winners, 2)
        test_torch.Dispatched.shared = self.cache


if __name__ == "__main__":
    if test_torch.SANITIZER != "none":
        print("skipped: a shim with a sanitizer cannot be preloaded")
        sys.exit(77)
    sys.argv[5:] = sys.argv[5:] or CASES
    main()

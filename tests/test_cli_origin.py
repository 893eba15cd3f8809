"""Who proposed a kernel: kfit eval writes it into the receipt. Arguments: see cli_helpers.py."""
import json
import os
import pwd

from cli_helpers import Case, key, main

SOURCE = """/* kfit-candidate 1
{"op":"gemm", "device":"host", "name":"loops", "launches":[{"entry":"kfit_main"}]}
*/
#include "kfit_host.h"
%s
"""
# wrong, so that it is judged to the end of the gates, and soon
WRONG = """void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *w)
{
    (void)a, (void)b, (void)w;
    c[0] = %d;
}"""


class Origin(Case):
    def origin(self, n, *options):
        source = self.dir / "k.c"
        source.write_text(SOURCE % (WRONG % n))
        out, _ = self.kfit("eval", source, "--key", key(64), "--cache", self.cache, "--json", "--wait", *options, rc=1)
        return json.loads(out)["origin"]

    def test_origins(self):
        me = pwd.getpwuid(os.getuid()).pw_name
        for n, (options, want) in enumerate([
                ([], (me, "", "eval", "person:" + me)),
                (["--by", "ada"], ("ada", "", "eval", "person:ada")),
                (["--by", "agent7", "--model", "some-model-2", "--campaign", "night"],
                 ("agent7", "some-model-2", "night", "llm:some-model-2"))]):
            o = self.origin(n, *options)
            self.assertEqual((o["proposer"], o["model"], o["campaign"], o["text"]), want)
            self.assertEqual(o["operator"], "eval")
            self.assertRegex(o["source_digest"], "^[0-9a-f]{64}$")

    def test_names_that_are_none(self):
        for option, name in [("--by", ""), ("--by", "a b"), ("--by", "x" * 32), ("--model", ""), ("--model", "a,b"),
                             ("--model", "*"), ("--model", "x" * 64), ("--campaign", "a\033[31m")]:
            _, err = self.kfit("eval", "k.c", "--key", key(64), option, name, rc=2)
            self.assertIn(option + ': "', err)
            self.assertNotIn("\033", err)
        self.assertIn("k.c: No such file", self.kfit("eval", "k.c", "--key", key(64), "--by", "x" * 31, rc=1)[1])


if __name__ == "__main__":
    main()

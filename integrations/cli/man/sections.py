"""What the manual pages say that no table of kfit knows. Commands are named as typed: "trace ls"."""

NAME = "kernels fitted to the shapes that a program really runs"

DESCRIPTION = """\
Servers run a few hundred exact shapes again and again, yet every call goes to a kernel written for any shape. kfit records \
the shapes that recur in a running program, searches offline for a kernel made for each of them, proves it right and faster \
than what runs today, and, once a person or a policy approves, lets the program pick it by exact shape. Anything else goes \
to the original call. The program is not changed: kfit comes in through LD_PRELOAD.
What was found is staged in a store. `kfit approve` publishes it as a generation: numbered, immutable, and read-only for \
servers. A server starts on one generation and keeps it. `kfit rollback` publishes what an earlier one held, `kfit off` stops \
replacing calls in running processes within one call.
A key is an operation at one exact shape, for example \
gemm/f32,f32,f32/acc=f32/m=4,n=64,k=64/nn/lda=64,ldb=64,ldc=64/alpha=1,beta=0/align=16. C[m,n] is op(A)[m,k] times \
op(B)[k,n], row-major; the two letters say which of A and B is transposed.
Data goes to standard output, messages to standard error. Where something is listed, `--json` prints it as JSON."""

EXIT_STATUS_COMMON = [
    ("0", "It was done."),
    ("1", "It failed, or it found what it looks for: a damaged cache, a process that cannot be reached, a missing part. "
          "Standard error says what, where, and what to do."),
    ("2", "It was called the wrong way; nothing was done."),
]

EXIT_STATUS = {
    "ab": [("0", "It was measured, whatever came of it."),
           ("1", "Nothing is concluded: a run failed, nothing was dispatched, or the outputs differ and must not."),
           ("2", "It was called the wrong way; nothing ran.")],
    "run": [("N", "That of the command; 128 + N if signal N ended it."),
            ("1", "kfit could not begin, for example because the shim is missing."),
            ("2", "kfit was called the wrong way; the command did not run."),
            ("126", "The command could not be executed."),
            ("127", "The command was not found.")],
    "eval": [("0", "The kernel is promoted, or kept: right, and not enough faster."),
             ("1", "It is refused, waits for a person, or could not be judged."),
             ("2", "It was called the wrong way.")],
}

FILES = [
    ("CACHE/current", "Number and digest of the current generation."),
    ("CACHE/generations/N.mdb, N.json", "A generation and its manifest; never changed once written."),
    ("CACHE/pins", "Generations that `kfit cache gc` keeps: a number or digest a line, # begins a comment. Written by hand, for "
                   "servers elsewhere that set KFIT_GENERATION."),
    ("CACHE/off", "Present while kfit is switched off for programs with this cache; says by whom and why."),
    ("CACHE/store/", "The tuner's store: results, receipts, sources. Servers never open it."),
    ("DIR/*.kft", "Traces, one per process and, with -cudaN in the name, per GPU of it, where KFIT_TRACE or `kfit run --trace` says."),
    ("$XDG_RUNTIME_DIR/kfit, /dev/shm/kfit-UID", "Traces when nobody said where, and run-* of each `kfit run` that is at work or was "
                                                 "killed."),
    ("STATE/held-*, STATE/run-*", "In KFIT_STATE: generations that a program only records with after crashes; programs that run kernels now."),
    ("STATE/bans", "In KFIT_STATE, written by hand: keys that must not run on this host, one a line, # begins a comment."),
    ("LIBDIR/kfit/libkfit_preload.so", "The shim, which LD_PRELOAD names."),
]

# Variables that matter to a command though its options do not name them.
VARIABLES = {
    "ab": ["LD_PRELOAD"],
    "run": ["LD_PRELOAD"],
    "tune": ["KFIT_CC", "KFIT_NVRTC", "KFIT_CUPTI", "OPENBLAS_CORETYPE"],
    "eval": ["KFIT_CC", "KFIT_NVRTC", "KFIT_CUPTI", "OPENBLAS_CORETYPE"],
    "doctor": ["KFIT_CC", "KFIT_NVRTC", "KFIT_CUPTI"],
    "status": ["KFIT_TRACE"],
    "report": ["KFIT_TRACE"],
    "metrics": ["KFIT_TRACE"],
    "top": ["KFIT_TRACE", "TERM"],
    "off": ["KFIT_TRACE"],
    "on": ["KFIT_TRACE"],
    "trace ls": ["KFIT_TRACE"],
    "trace kernels": ["KFIT_TRACE"],
    "trace graphs": ["KFIT_TRACE"],
}

SEE_ALSO = {
    "ab": ["report", "run", "rollback"],
    "run": ["trace ls", "tune", "status", "off"],
    "tune": ["run", "eval", "review"],
    "eval": ["tune", "cache show"],
    "review": ["approve", "cache show", "tune"],
    "approve": ["review", "rollback", "cache diff", "cache disable"],
    "rollback": ["approve", "cache ls", "cache diff", "off"],
    "retime": ["status", "explain", "approve"],
    "cache diff": ["cache ls", "approve", "rollback"],
    "cache disable": ["cache enable", "approve", "off"],
    "cache enable": ["cache disable", "approve"],
    "cache retime": ["retime", "approve"],
    "cache gc": ["cache ls", "rollback"],
    "off": ["on", "status", "trace graphs", "rollback"],
    "on": ["off", "status"],
    "status": ["off", "report", "explain"],
    "trace ls": ["trace kernels", "trace graphs", "status"],
    "trace kernels": ["trace ls", "report"],
    "trace graphs": ["trace ls", "off", "explain"],
    "explain": ["status", "report", "cache show"],
    "report": ["status", "explain", "tune"],
    "metrics": ["status", "top", "report"],
    "top": ["status", "metrics", "explain"],
    "doctor": ["status", "cache verify"],
    "demo": ["run", "tune", "approve", "report"],
}

KEY = "gemm/f32,f32,f32/acc=f32/m=4,n=64,k=64/nn/lda=64,ldb=64,ldc=64/alpha=1,beta=0/align=16"

EXAMPLES = {
    "": [("Record, search, publish, replace, look, undo:",
          "kfit run --trace traces -- python3 server.py\n"
          "kfit tune traces\n"
          "kfit review\n"
          "kfit approve --all\n"
          "kfit run --cache ~/.cache/kfit -- python3 server.py\n"
          "kfit status\n"
          "kfit rollback")],
    "run": [("Record a server for as long as it runs:", "kfit run --trace traces --label web -- python3 server.py"),
            ("Replace what generation 3 has kernels for, and record:",
             "kfit run --cache ~/.cache/kfit --generation 3 -- python3 server.py")],
    "trace ls": [("What was recorded in the usual places:", "kfit trace ls")],
    "trace kernels": [("Whose kernels take most launches, and which of them come from calls that kfit knows:",
                       "kfit trace kernels --top 10 traces")],
    "trace graphs": [("What graph 3 replays, in order:", "kfit trace graphs --graph 3 traces"),
                     ("Graphs that hold kernels of kfit's:",
                      "kfit trace graphs --json | jq '.[] | .graphs[] | select(.by_kfit > 0) | .graph'")],
    "trace merge": [("One trace of many:", "kfit trace merge --output all.kft traces")],
    "trace export": [("The recorded keys, most called first:",
                      "kfit trace export traces | jq -r '.keys | sort_by(-.calls)[] | \"\\(.calls) \\(.key)\"'")],
    "tune": [("Search for an hour; run it again to go on:", "kfit tune --seconds 3600 traces"),
             ("Listed shapes against cuBLAS:", "kfit tune --device=cuda --keys shapes.txt")],
    "eval": [("Judge a kernel of your own:", f"kfit eval kernel.c --key {KEY}")],
    "review": [("What would be published, with each key's share of the recorded time:", "kfit review --trace traces")],
    "approve": [("Everything at least 1.2 times as fast:", "kfit approve --all --min-ratio 1.2 --note 'weekly tune'"),
                ("One key:", f"kfit approve {KEY}"),
                ("By policy, weighed by what a server recorded; the file holds "
                 "{\"kfit_policy\": 1, \"min_ratio\": 1.1, \"min_share_percent\": 0.1, \"origins\": [\"seed:*\"], \"max_keys\": 20}:",
                 "kfit approve --policy policy.json --trace traces --dry-run"),
                ("Those that one picks, asked or as a list:",
                 "kfit approve --ask\n"
                 "kfit review --json | jq -r '.changes[] | select(.gain > 0.001) | .key' > keys.txt\n"
                 "kfit approve --keys keys.txt")],
    "rollback": [("To the generation before the current one:", "kfit rollback"), ("To generation 3:", "kfit rollback 3")],
    "retime": [("After an upgrade, with the library that the servers use now:",
                "kfit retime --dry-run --trace traces\n"
                "kfit retime --trace traces\n"
                "kfit review\n"
                "kfit approve --all")],
    "off": [("Now, everywhere on this machine:", "kfit off --reason 'latency up since 14:00'")],
    "on": [("Undo it:", "kfit on")],
    "status": [("What runs now:", "kfit status --live")],
    "cache ls": [("What servers load:", "kfit cache ls"), ("What was tuned:", "kfit cache ls --staged"),
                 ("The generations, by whom and when:", "kfit cache ls --generations")],
    "cache diff": [("What generation 4 brought:", "kfit cache diff 3 4"),
                   ("What a rollback to 3 would undo:", "kfit cache diff 3")],
    "cache disable": [("Take one kernel out of what servers load when they next start:",
                       f"kfit cache disable --reason 'wrong in ticket 7' {KEY}\nkfit approve {KEY}"),
                      ("What is banned:", "kfit cache disable")],
    "cache enable": [("Let it in again:", f"kfit cache enable {KEY}\nkfit approve {KEY}")],
    "cache retime": [("Which winners are stale here:", "kfit cache retime --dry-run")],
    "cache gc": [("What would go:", "kfit cache gc --keep 5 --dry-run"), ("Keep one more:", "kfit cache gc --keep 5 --pin 3")],
    "cache show": [("Record and receipt:", f"kfit cache show {KEY}")],
    "cache export": [("Generation 7, for other machines:", "kfit cache export 7 server-7.kfit")],
    "cache import": [("To review it here:", "kfit cache import server-7.kfit"),
                     ("To publish it as it is, if one of these keys signed it:",
                      "KFIT_TRUST=/etc/kfit/signers kfit cache import --approve --cache /var/lib/kfit/cache server-7.kfit")],
    "cache sign": [("After looking at it:", "kfit cache sign 7 --sign release.key")],
    "key new": [("For those who approve:", "kfit key new release.key --name 'release team'")],
    "key show": [("The line for KFIT_TRUST:", "kfit key show release.key")],
    "cache verify": [("Every generation and the store:", "kfit cache verify")],
    "explain": [("Why a key does or does not run a kernel of ours:", f"kfit explain {KEY}"),
                ("The same for all keys of a trace:", "kfit explain traces"),
                ("What a live process makes of it:", f"kfit explain --pid 4242 {KEY}")],
    "ab": [("A batch program, in ten pairs of runs:", "kfit ab -- python3 batch.py"),
           ("A server that prints its speed, switched every 10 seconds:",
            "kfit ab --phases 10 --metric 'tokens/s: ([0-9.]+)' --out ab.json -- python3 server.py"),
           ("How quiet the machine is:", "kfit ab --aa -- python3 batch.py")],
    "report": [("What it brings:", "kfit report traces"), ("As text, and as JSON in a file:", "kfit report --json=report.json traces")],
    "metrics": [("A page to scrape, whose counters outlive a restart:",
                 "kfit metrics --listen 9464 --state /var/lib/kfit/metrics.json"),
                ("A file for node_exporter, from a timer:", "kfit metrics --textfile /var/lib/node_exporter/kfit.prom")],
    "doctor": [("Before tuning, or when something is odd:", "kfit doctor"),
               ("What killed programs left, and what is held back:", "kfit doctor left unfinished state")],
    "top": [("Every five seconds, on any terminal:", "kfit top --interval 5"), ("One frame, for a ticket:", "kfit top --once")],
    "doctor": [("Before tuning, or when something is odd:", "kfit doctor")],
    "demo": [("In a directory of its own:", "kfit demo --dir demo")],
}

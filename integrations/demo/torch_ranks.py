"""A tensor-parallel group in CUDA graphs: every rank must hold the same kernels, or the ranks' answers part.

  torch_ranks.py [--ranks 2] [--model NAME] [--steps N] [--between COMMAND] [--stagger] [--kfit PATH] [--json FILE]
  kfit run --cache DIR -- python3 torch_ranks.py          (or torchrun --nproc-per-node=2 torch_ranks.py)

Norms and router are replicated, the projections before and behind attention and MLP are each rank's own part, and the
partial sums of the row-parallel ones meet in an all-reduce inside the graph. A rank whose router rounds another way
chooses other experts than its neighbour, and from then on they compute different things. So each rank prints

  rank=0 phase=1 generation=3 digest=8f1c... choices=5b0e... output=77aa...

the generation that its process holds (asked of `kfit status`), and digests of all experts chosen and of the last output.
Exit status 1 unless all ranks print the same. With --between COMMAND, an approval say, rank 0 runs it after the first phase;
in the second, in new graphs, the generation must be what it was. With --stagger rank 0 makes its first GEMM call before
COMMAND and the others theirs after it.
"""
import argparse
import hashlib
import json
import os
import subprocess
import sys


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", type=int, default=2, help="processes to start, unless torchrun has")
    p.add_argument("--model", default="qwen3.5-122b-attn")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--length", type=int, default=256)
    p.add_argument("--steps", type=int, default=64, help="in a phase; each one's output is the next one's input")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--between", metavar="COMMAND", help="for /bin/sh, run once by rank 0, without kfit in its environment")
    p.add_argument("--stagger", action="store_true")
    p.add_argument("--kfit", default="kfit", help="the command to ask (kfit)")
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: gloo and no graphs, to try the program")
    p.add_argument("--json", metavar="FILE")
    return p.parse_args()


def plain_environment():
    """As it was before kfit run, but for where things are."""
    return {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "KFIT_MODE", "KFIT_GENERATION")}


def generation(a):
    """Number and digest that this process holds on its GPU: (0, "") if none."""
    if not os.environ.get("KFIT_TRACE"):
        return 0, ""
    try:
        p = subprocess.run([a.kfit, "status", "--json", os.environ["KFIT_TRACE"]], env=plain_environment(), text=True, stdout=subprocess.PIPE)
        mine = [q for q in json.loads(p.stdout)["processes"] if q["pid"] == os.getpid()]
    except (OSError, ValueError) as why:
        sys.exit(f"torch_ranks.py: {a.kfit} status: {why}; name the command with --kfit")
    for q in mine:
        if "-cuda" in os.path.basename(q["trace"]) or a.device == "cpu":
            return q["generation"], q["generation_digest"]
    return 0, ""


def between(command):
    p = subprocess.run(command, shell=True, env=plain_environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(f"between: exit status {p.returncode}\n{p.stdout}", end="", flush=True)
    return p.returncode


class Group:
    """This rank's model and how a phase of it runs."""

    def __init__(self, a, rank, world, device):
        import decode_model

        self.a, self.device = a, device
        self.model = decode_model.Decoder(a.model, a.layers, a.length, device, seed=a.seed, tp=world, rank=rank,
                                          reduce=torch.distributed.all_reduce)
        self.x, self.rope, self.cache = self.model.place(a.batch)
        self.start = self.x.clone()

    def first_call(self):
        torch.nn.functional.linear(self.x, next(self.model.layers.parameters()))

    def step(self):
        return self.model(self.x, self.rope, self.cache)

    def captured(self):
        """The step as something to call; on a GPU a new graph."""
        if self.device == "cpu":
            return self.step
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self.step()

        def launch():
            graph.replay()
            return out

        return launch

    def phase(self):
        """Digests of all choices and of the last output."""
        launch, choices = self.captured(), hashlib.sha256()
        self.x.copy_(self.start)
        for _ in range(self.a.steps):
            out = launch()
            chosen = self.model.choices(self.a.batch)
            if chosen is not None:
                choices.update(chosen.cpu().numpy().tobytes())
            self.x.copy_(out)
        last = hashlib.sha256(out.cpu().view(torch.int16).numpy().tobytes())
        return choices.hexdigest()[:16], last.hexdigest()[:16]


def rank_main(rank, a, world):
    """Exit status of one rank."""
    global torch
    import torch
    import torch.distributed as dist

    cuda = a.device == "cuda"
    device = f"cuda:{rank}" if cuda else "cpu"
    if cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=world, device_id=torch.device(device) if cuda else None)
    failed, rows = 0, []
    with torch.no_grad():
        group = Group(a, rank, world, device)
        commands = [None, a.between] if a.between else [None]
        if a.stagger:
            commands = [a.between]
            if rank == 0:
                group.first_call()
        for phase, command in enumerate(commands):
            if rank == 0 and command:
                failed |= between(command)
            dist.barrier()
            choices, output = group.phase()
            number, digest = generation(a)
            mine = dict(rank=rank, phase=phase, generation=number, digest=digest[:16], choices=choices, output=output)
            print(" ".join(f"{k}={v if v != '' else 'none'}" for k, v in mine.items()), flush=True)
            everyone = [None] * world
            dist.all_gather_object(everyone, mine)
            rows += everyone
        dist.barrier()
    same = {k: len({r[k] for r in rows}) == 1 for k in ("digest", "choices", "output")}
    ok = all(same.values()) and not failed  # only rank 0 knows of failed
    if rank == 0:
        print(f"all {world} ranks alike: " + " ".join(f"{k}={'yes' if v else 'NO'}" for k, v in same.items()), flush=True)
        if a.json:
            with open(a.json, "w") as f:
                json.dump(dict(model=a.model, layers=a.layers, batch=a.batch, steps=a.steps, ranks=rows, same=same, between=failed, ok=ok), f,
                          indent=1)
    dist.destroy_process_group()
    return 0 if ok else 1


def started(rank, a, world, port):
    """A process of our own, with what a launcher would have told it."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))
    sys.exit(rank_main(rank, a, world))


def main():
    a = arguments()
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as why:
        sys.exit(f"torch_ranks.py: {why}; this program needs PyTorch and transformers")
    world = int(os.environ.get("WORLD_SIZE", a.ranks))
    if a.device == "cuda" and torch.cuda.device_count() < world:
        sys.exit(f"torch_ranks.py: {world} ranks need as many GPUs, and PyTorch sees {torch.cuda.device_count()}")
    if "RANK" in os.environ:
        sys.exit(rank_main(int(os.environ["LOCAL_RANK"]), a, world))
    import multiprocessing
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=started, args=(r, a, world, port)) for r in range(world)]
    for p in ranks:
        p.start()
    for p in ranks:
        p.join()
    sys.exit(max(p.exitcode if p.exitcode >= 0 else 1 for p in ranks))


if __name__ == "__main__":
    main()

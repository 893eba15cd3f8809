"""Decoder layers of real models by transformers: real dimensions, few layers, random weights. Nothing is downloaded.

Built as a server has them. A tensor-parallel rank holds 1/tp of heads and widths (key and value heads at least one).
Projections that read the same input are one matrix, since vLLM loads them so: q, k and v one call, gate and up
another. That changes N, and N is part of a kernel's key; fused=False calls them one by one, as transformers does.
Qwen3.5's attention has an output gate, the other half of q. Its routed experts are left out: servers run them as grouped
kernels, which are no GEMM calls. The router chooses all the same, and the choices can be read.
"""
import re
import zlib

import torch
import transformers
from torch import nn

MODELS = {
    "llama-3.1-8b": dict(kind="llama", hidden=4096, heads=32, kv_heads=8, head_dim=128, width=14336),
    "qwen3.5-122b-attn": dict(kind="qwen", hidden=3072, heads=32, kv_heads=2, head_dim=256, width=1024, experts=256, top_k=8),
    # for a look at these programs where no GPU is
    "tiny-llama": dict(kind="llama", hidden=256, heads=8, kv_heads=4, head_dim=32, width=512),
    "tiny-qwen": dict(kind="qwen", hidden=256, heads=8, kv_heads=2, head_dim=32, width=128, experts=16, top_k=4),
}


def dimensions(name):
    """"llama-3.1-8b-tp4" -> its table and 4; ValueError names what there is."""
    base, tp = re.fullmatch(r"(.*?)(?:-tp([0-9]+))?", name).groups()
    if base not in MODELS:
        raise ValueError(f'no model "{name}"; there are {", ".join(MODELS)}, each also with -tp2, -tp4, -tp8 behind it')
    return MODELS[base], int(tp or 1)


class Fused(nn.Module):
    """Several linears of one input as one matrix."""

    def __init__(self, linears):
        super().__init__()
        self.sizes = [l.out_features for l in linears]
        self.weight = nn.Parameter(torch.cat([l.weight for l in linears]), requires_grad=False)
        self.last = None

    def part(self, x, i):
        if i == 0:
            self.last = nn.functional.linear(x, self.weight).split(self.sizes, dim=-1)
        found = self.last[i]
        if i + 1 == len(self.sizes):
            self.last = None
        return found


class Part(nn.Module):
    """Stands where one of them stood. The first is called first: it computes for all."""

    def __init__(self, fused, i):
        super().__init__()
        self.fused, self.i = fused, i

    def forward(self, x):
        return self.fused.part(x, self.i)


class Reduced(nn.Module):
    """A row-parallel linear: each rank has a part of the sum."""

    def __init__(self, linear, reduce):
        super().__init__()
        self.linear, self.reduce = linear, reduce

    def forward(self, x):
        y = self.linear(x)
        self.reduce(y)
        return y


class Routed(nn.Module):
    """A mixture-of-experts block without its routed experts; `choices` holds what the router chose last."""

    def __init__(self, block, rows, top_k):
        super().__init__()
        self.router, self.shared_expert, self.shared_expert_gate = block.gate, block.shared_expert, block.shared_expert_gate
        self.register_buffer("choices", torch.zeros(rows, top_k, dtype=torch.int64), persistent=False)

    def forward(self, h):
        x = h.view(-1, h.shape[-1])
        shared = self.shared_expert(x)
        self.choices[: x.shape[0]].copy_(self.router(x)[2])
        return (torch.sigmoid(self.shared_expert_gate(x)) * shared).view_as(h)


class FullCache:
    """Keys and values of `length` positions; a step writes the last one and attends to all: every step is the same."""

    def __init__(self, layers, batch, heads, length, head_dim, dtype, device, seed):
        g = torch.Generator(device).manual_seed(seed)
        self.kv = [[torch.randn(batch, heads, length, head_dim, dtype=torch.float32, device=device, generator=g).to(dtype)
                    for _ in range(2)] for _ in range(layers)]
        self.static = [t for pair in self.kv for t in pair]

    def update(self, k, v, layer, *_):
        for cache, new in zip(self.kv[layer], (k, v)):
            cache[:, :, -1:].copy_(new)
        return tuple(self.kv[layer])

    def to(self, dtype):
        other = FullCache.__new__(FullCache)
        other.kv = [[t.to(dtype) for t in pair] for pair in self.kv]
        other.static = [t for pair in other.kv for t in pair]
        return other


def config_of(d, tp, layers):
    heads, kv_heads, width = d["heads"] // tp, max(1, d["kv_heads"] // tp), d["width"] // tp
    if heads < 1 or d["heads"] % tp or d["width"] % tp:
        raise ValueError(f'{d["heads"]} heads and a width of {d["width"]} cannot be divided by {tp}')
    common = dict(hidden_size=d["hidden"], num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
                  head_dim=d["head_dim"], vocab_size=32, pad_token_id=None, bos_token_id=None, eos_token_id=None,
                  attn_implementation="sdpa")
    if d["kind"] == "llama":
        return transformers.LlamaConfig(intermediate_size=width, **common), transformers.LlamaModel
    return (transformers.Qwen3_5MoeTextConfig(shared_expert_intermediate_size=width, moe_intermediate_size=1, num_experts=d["experts"],
                                              num_experts_per_tok=d["top_k"], layer_types=["full_attention"] * layers, **common),
            transformers.Qwen3_5MoeTextModel)


REPLICATED = ("router.weight", "shared_expert_gate.weight")  # the same on every rank, as norms are


def fill(model, seed, rank):
    """Random weights that keep a row's size, from the seed, the name and, where a rank has its own part, the rank."""
    for name, p in model.named_parameters():
        p.requires_grad_(False)
        if p.dim() != 2:
            continue
        who = 0 if name.endswith(REPLICATED) else rank
        g = torch.Generator(p.device).manual_seed(zlib.crc32(f"{seed}/{name}/{who}".encode()))
        p.normal_(0, p.shape[1] ** -0.5, generator=g)


class Decoder(nn.Module):
    """A decode step of one rank: `step()` takes x [batch, 1, hidden], and returns what the last norm makes of it."""

    def __init__(self, name, layers, length, device, dtype=torch.bfloat16, seed=7, fused=True, tp=None, rank=0, reduce=None,
                 rows=64):
        super().__init__()
        self.table, given = dimensions(name)
        self.tp = tp or given
        self.length, self.seed = length, seed
        self.config, cls = config_of(self.table, self.tp, layers)
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            with torch.device(device), torch.no_grad():
                model = cls(self.config).eval()
                for layer in model.layers:
                    self.arrange(layer, fused, reduce, rows)
        finally:
            torch.set_default_dtype(before)
        self.layers, self.norm, self.rotary = model.layers, model.norm, model.rotary_emb
        with torch.no_grad():
            fill(self, seed, rank)

    def arrange(self, layer, fused, reduce, rows):
        if self.table["kind"] == "qwen":
            layer.mlp = Routed(layer.mlp, rows, self.table["top_k"])
        attention, mlp = layer.self_attn, getattr(layer.mlp, "shared_expert", layer.mlp)
        for owner, names in ((attention, ("q_proj", "k_proj", "v_proj")), (mlp, ("gate_proj", "up_proj"))):
            if fused:
                whole = Fused([getattr(owner, n) for n in names])
                for i, n in enumerate(names):
                    setattr(owner, n, Part(whole, i))
        if reduce:
            attention.o_proj, mlp.down_proj = Reduced(attention.o_proj, reduce), Reduced(mlp.down_proj, reduce)

    def place(self, batch):
        """The cache and the rotary embedding of a batch, both at fixed addresses; and an input."""
        p = next(self.layers.parameters())
        g = torch.Generator(p.device).manual_seed(self.seed)
        x = torch.randn(batch, 1, self.table["hidden"], device=p.device, generator=g).to(p.dtype)
        positions = torch.full((batch, 1), self.length - 1, device=p.device)
        if self.table["kind"] == "qwen":
            positions = positions.expand(3, batch, 1)  # of text: the same in time, height and width
        rope = self.rotary(x, positions)
        cache = FullCache(len(self.layers), batch, self.config.num_key_value_heads, self.length, self.config.head_dim, p.dtype,
                          p.device, self.seed)
        return x, rope, cache

    def forward(self, x, rope, cache):
        for layer in self.layers:
            x = layer(x, position_embeddings=rope, past_key_values=cache, attention_mask=None)
        return self.norm(x)

    def choices(self, batch):
        """What the routers chose in the last step: [layers, batch, top k], or None."""
        found = [l.mlp.choices[:batch] for l in self.layers if isinstance(l.mlp, Routed)]
        return torch.stack(found) if found else None

    def describe(self):
        weights = sum(p.numel() * p.element_size() for p in self.layers.parameters())
        return f"{len(self.layers)} layers, tensor parallel {self.tp}, {weights / 1e6:.0f} MB of weights, {self.length} cached positions"

"""What card.py measures on one NVIDIA GPU, and against what: a list of rows, the most important first.

A row is posenc's way, its peers run next to it, and a check of its result. Attention is checked on the last queries of
the call that is timed, in value and gradients, against the definition in float64: under a causal mask these rows depend
on all keys and on no other query, so that the check takes the memory of a few rows of scores at any length.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from measuring import random_qkv
from timing import Run
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from posenc import ALiBi, Encoding, ForgetGate, RoPE, ScoreEncoding, T5Bias, attention, explain_backend
from posenc.bias import FIRE
from posenc.bias.alibi import alibi_slopes
from posenc.layers import KVCache, SelfAttention, StaticKVCache
from posenc.layers.cache.keys import NewTokens
from posenc.positions.checking import default_positions
from posenc.score import CoPE
from posenc.weight import StickBreaking

Call = Callable[..., Tensor]
Score = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Errors = dict[str, float]

COPY, NO_BIAS, SDPA = "device copy of q and k", "FlexAttention, no bias", "causal SDPA, no bias"
BANDWIDTH_GOAL, TRAINING_GOAL = 1 / 0.8, 1.5  # times of the copy; times of FlexAttention without a bias
VALUES, GRADIENTS = 2e-2, 6e-2  # most error of bfloat16, relative to the largest entry
NOT_INSTALLED = "not installed"
ROOM = 128  # tokens that a static cache of this benchmark has room for, besides those it starts with


class Setup(NamedTuple):
    """Sizes, and where they run."""

    device: torch.device
    rotation: tuple[int, int, int, int] = (4, 2048, 32, 128)  # batch, tokens, heads, width
    lengths: tuple[int, ...] = (16384, 4096)
    batch: int = 1
    heads: int = 16
    width: int = 128
    checked: int = 64  # queries whose results are compared with the definition
    caches: tuple[int, ...] = (4096, 32768)
    decode_heads: int = 32
    decode_kv_heads: int = 8

    @property
    def dry(self) -> bool:
        return self.device.type == "cpu"


DRY = Setup(torch.device("cpu"), (1, 24, 2, 16), (48, 32), 1, 2, 16, 8, (16, 24), 4, 2)


class Comparison(NamedTuple):
    """One row."""

    run: Run
    peers: Mapping[str, Run | str]  # a run, or why there is none
    check: Callable[[], Errors]  # relative errors, by the name of the tensor
    tolerance: float
    backend: str = ""
    goals: Mapping[str, float] = {}  # at most so many times as long as the peer
    moved: int = 0  # bytes read and written
    calls: int = 0  # of each in a round, for calls that fill a cache; 0: as many as a timing needs


def rows(setup: Setup) -> dict[str, Callable[[], Comparison]]:
    """All rows by name."""
    named: dict[str, Callable[[], Comparison]] = {}
    for layout in ("half", "interleaved"):
        for way in ("eager", "compiled"):
            named[f"rotation, {layout}, {way}"] = partial(rotation_row, setup, layout, way)
    long, *shorter = setup.lengths
    order = [(long, True, "T5"), (long, True, "FIRE")]
    order += [(long, training, name) for training in (False, True) for name in ENCODINGS]
    layers = [(tokens, way) for tokens in setup.caches for way in LAYER_WAYS]
    order_later = [(n, training, name) for n in shorter for training in (True, False) for name in ENCODINGS]
    for length, training, name in order:
        named.setdefault(attention_name(length, training, name), partial(attention_row, setup, length, training, name))
    for tokens, way in layers:
        named[f"layer step, {tokens} cached tokens, {way}"] = partial(layer_row, setup, tokens, way)
    for length, training, name in order_later:
        named[attention_name(length, training, name)] = partial(attention_row, setup, length, training, name)
    for tokens in setup.caches:
        for name in ("NoPE", *ENCODINGS):
            named[f"one query, {tokens} keys, {name}"] = partial(decode_row, setup, tokens, name)
    return named


def attention_name(length: int, training: bool, name: str) -> str:
    return f"{'forward + backward' if training else 'forward'}, {length} tokens, {name}"


def compiled(setup: Setup, call: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The call under PyTorch's compiler; the dry run leaves out code generation."""
    return torch.compile(call, backend="eager") if setup.dry else torch.compile(call, **options)


def relative_errors(got: Mapping[str, Tensor], exact: Mapping[str, Tensor]) -> Errors:
    """The largest error of each tensor, relative to its largest entry.

    An entry of 1 % of the largest number of all is the least scale: some gradients are zero but for rounding, as that
    of a bias which softmax does not see.
    """
    largest = {name: float(right.detach().abs().max()) for name, right in exact.items()}
    least = 0.01 * max(largest.values())
    return {
        name: float((got[name].detach().double() - right.detach().double()).abs().max()) / max(largest[name], least)
        for name, right in exact.items()
    }


# Rotation


def rotation_row(setup: Setup, layout: str, way: str) -> Comparison:
    """q and k as projections leave them: tokens before heads in memory."""
    batch, tokens, heads, width = setup.rotation
    generator = torch.Generator().manual_seed(0)
    shape = (batch, tokens, heads, width)
    q, k = (torch.randn(shape, generator=generator).to(setup.device, torch.bfloat16).transpose(1, 2) for _ in "qk")
    rope, where = RoPE(width, layout=layout), default_positions(tokens, setup.device)
    cos, sin = rope.table(where, like=q)
    ready = torch.empty_like(q), torch.empty_like(k)
    by_hand = compiled(setup, hand_written_half if layout == "half" else hand_written_interleaved, dynamic=False)

    by_compiler = compiled(setup, lambda q, k, where: rope(q, k, where, where), dynamic=False)

    def run() -> tuple[Tensor, Tensor]:
        result: tuple[Tensor, Tensor] = rope(q, k, where, where) if way == "eager" else by_compiler(q, k, where)
        return result

    def check() -> Errors:
        wide_q, wide_k = q.double(), k.double()
        table = rope.table(where, like=wide_q)
        exact = {"q": rope.rotate(wide_q, table), "k": rope.rotate(wide_k, table)}
        return relative_errors(dict(zip("qk", run(), strict=True)), exact)

    peers: dict[str, Run | str] = {
        COPY: lambda: (ready[0].copy_(q), ready[1].copy_(k)),
        "hand-written, compiled": lambda: by_hand(q, k, cos, sin),
    }
    moved = 4 * q.numel() * q.element_size()
    return Comparison(inference(run), peers, check, VALUES, goals={COPY: BANDWIDTH_GOAL}, moved=moved)


def hand_written_half(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """What a user of torch.compile writes, in float32 and rounded once as posenc's."""

    def rotate(x: Tensor) -> Tensor:
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

    return rotate(q), rotate(k)


def hand_written_interleaved(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """The same for pairs of neighbours."""

    def rotate(x: Tensor) -> Tensor:
        a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)  # type: ignore[no-untyped-call]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2).to(x.dtype)

    return rotate(q), rotate(k)


def inference(run: Run) -> Run:
    """The call without a record for gradients."""

    def call() -> object:
        with torch.no_grad():
            return run()

    return call


# Attention over whole texts


class Inputs(NamedTuple):
    """q, k, v and the layer's input, of which gradients are wanted."""

    q: Tensor
    k: Tensor
    v: Tensor
    x: Tensor


class Subject(NamedTuple):
    """An encoding with what else computes it."""

    make: Callable[[Setup], Encoding]
    score: Callable[[Encoding, Inputs], Score] | None = None  # the same term for FlexAttention
    official: Callable[[Encoding, Inputs], tuple[str, Run | str]] | None = None  # its authors' kernel, forward
    level: float = 0.0  # mean of the scores
    reads_x: bool = False


def t5_score(encoding: Encoding, inputs: Inputs) -> Score:
    """The table's rows by distance, read inside the kernel."""
    assert isinstance(encoding, T5Bias)
    length = inputs.q.shape[2]
    buckets = encoding.bucket(torch.arange(-length + 1, 1, device=inputs.q.device)).flip(0)  # of the distance i − j
    table = F.embedding(buckets, encoding.weight).T.contiguous()
    return lambda score, b, h, i, j: score + table[h, (i - j).clamp(min=0)]


def alibi_score(encoding: Encoding, inputs: Inputs) -> Score:
    """A slope a head."""
    slopes = torch.tensor(alibi_slopes(inputs.q.shape[1]), device=inputs.q.device)
    return lambda score, b, h, i, j: score + slopes[h] * (j - i)


def fox_score(encoding: Encoding, inputs: Inputs) -> Score:
    """Running sums of log gates in float32."""
    assert isinstance(encoding, ForgetGate)
    sums = log_gates(encoding, inputs.x).cumsum(-1)
    return lambda score, b, h, i, j: score + sums[b, h, i] - sums[b, h, j]


def log_gates(encoding: ForgetGate, x: Tensor) -> Tensor:
    """(batch, heads, tokens), in float32."""
    assert encoding.weight is not None
    return F.logsigmoid(F.linear(x.float(), encoding.weight, encoding.bias)).transpose(1, 2)


def official_alibi(encoding: Encoding, inputs: Inputs) -> tuple[str, Run | str]:
    name = "flash_attn, alibi_slopes"
    try:
        from flash_attn import flash_attn_func  # type: ignore[import-not-found]
    except ImportError:
        return name, NOT_INSTALLED
    slopes = torch.tensor(alibi_slopes(inputs.q.shape[1]), device=inputs.q.device)
    q, k, v = (t.detach().transpose(1, 2) for t in inputs[:3])
    return name, lambda: flash_attn_func(q, k, v, causal=True, alibi_slopes=slopes)


def official_fox(encoding: Encoding, inputs: Inputs) -> tuple[str, Run | str]:
    name = "fla, parallel_forgetting_attn"
    try:
        from fla.ops.forgetting_attn import parallel_forgetting_attn  # type: ignore[import-not-found]
    except ImportError:
        return name, NOT_INSTALLED
    assert isinstance(encoding, ForgetGate)
    q, k, v = (t.detach().transpose(1, 2) for t in inputs[:3])
    return name, lambda: parallel_forgetting_attn(q, k, v, log_gates(encoding, inputs.x).transpose(1, 2))


def official_sticks(encoding: Encoding, inputs: Inputs) -> tuple[str, Run | str]:
    name = "stickbreaking_attention, sb_attn"
    try:
        from stickbreaking_attention.sb_attn import sb_attn  # type: ignore[import-not-found]
    except ImportError:
        return name, NOT_INSTALLED
    q, k, v = (t.detach() for t in inputs[:3])
    return name, lambda: sb_attn(q, k, v, inv_temp=q.shape[-1] ** -0.5)


def forgetting(setup: Setup) -> Encoding:
    """Gates near 0.99, as trained ones."""
    gate = ForgetGate(setup.heads * setup.width, num_heads=setup.heads)
    nn.init.constant_(gate.bias, 4.6)  # type: ignore[arg-type]
    return gate


def counting(setup: Setup) -> Encoding:
    cope = CoPE(setup.width, max_position=64)
    nn.init.normal_(cope.table, std=setup.width**-0.5)
    return cope


ENCODINGS: dict[str, Subject] = {
    "T5": Subject(lambda s: T5Bias(s.heads, init_std=1.0), t5_score),
    "FIRE": Subject(lambda s: FIRE(s.heads)),
    "ALiBi": Subject(lambda s: ALiBi(s.heads), alibi_score, official_alibi),
    "FoX, gates near 0.99": Subject(forgetting, fox_score, official_fox, reads_x=True),
    "stick-breaking": Subject(lambda s: StickBreaking(), official=official_sticks),
    "stick-breaking, long sticks": Subject(lambda s: StickBreaking(), official=official_sticks, level=-8.0),
    "CoPE": Subject(counting),
}


@cache
def text_inputs(setup: Setup, length: int, level: float) -> Inputs:
    shape = (setup.batch, setup.heads, length, setup.width)
    x = torch.randn(setup.batch, length, setup.heads * setup.width, generator=torch.Generator().manual_seed(1))
    tensors = (*random_qkv(shape, shape, level=level), x)
    return Inputs(*(t.to(setup.device, torch.bfloat16).requires_grad_() for t in tensors))


@cache
def causal_blocks(setup: Setup, length: int) -> Any:
    return create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device=str(setup.device))


def attention_row(setup: Setup, length: int, training: bool, name: str) -> Comparison:
    """One encoding, forward or with gradients for q, k, v, all parameters and, where gates read it, x."""
    subject = ENCODINGS[name]
    torch.manual_seed(0)
    encoding = subject.make(setup).to(setup.device)
    inputs = text_inputs(setup, length, subject.level)
    leaves = [*(inputs if subject.reads_x else inputs[:3]), *encoding.parameters()]
    target = inputs.v.detach().roll(1, 2)
    blocks = causal_blocks(setup, length)
    kernel = flex_by_definition if setup.dry else torch.compile(flex_attention, dynamic=False)

    def posenc_call() -> Tensor:
        return attention(*inputs[:3], [encoding], x=inputs.x if subject.reads_x else None)

    def no_bias() -> Tensor:
        return kernel(*inputs[:3], block_mask=blocks)

    def same_bias() -> Tensor:
        assert subject.score is not None
        return kernel(*inputs[:3], score_mod=subject.score(encoding, inputs), block_mask=blocks)

    def sdpa() -> Tensor:
        return F.scaled_dot_product_attention(*inputs[:3], is_causal=True)

    def timed(call: Call, leaves: list[Tensor]) -> Run:
        return (lambda: torch.autograd.grad(call(), leaves, target)) if training else inference(call)

    peers: dict[str, Run | str] = {
        NO_BIAS: timed(no_bias, [*inputs[:3]]),
        SDPA: timed(sdpa, [*inputs[:3]]),
    }
    if subject.score is not None:
        learned = [p for p in leaves if p.requires_grad]
        peers["FlexAttention, the same bias"] = timed(same_bias, learned)
    if subject.official is not None and not training:
        official, run = subject.official(encoding, inputs)
        peers[official] = run if isinstance(run, str) else inference(run)
    check = partial(checked_rows, setup, encoding, inputs, subject.reads_x, leaves if training else [], posenc_call)
    with torch.set_grad_enabled(training):
        backend = explain_backend(*inputs[:3], [encoding], x=inputs.x if subject.reads_x else None).backend
    goals = {NO_BIAS: TRAINING_GOAL} if training and name in ("T5", "FIRE") and length == max(setup.lengths) else {}
    tolerance = GRADIENTS if training else VALUES
    return Comparison(timed(posenc_call, leaves), peers, check, tolerance, backend, goals)


def checked_rows(
    setup: Setup, encoding: Encoding, inputs: Inputs, reads_x: bool, leaves: list[Tensor], posenc_call: Call
) -> Errors:
    """Results of the last queries, and the gradients that they give, against the definition in float64."""
    last = setup.checked
    wide_encoding = copy.deepcopy(encoding).double()
    wide = Inputs(*(t.detach().double().requires_grad_() for t in inputs))
    target = torch.zeros_like(inputs.v)
    target[:, :, -last:] = inputs.v.detach()[:, :, :last]
    with torch.set_grad_enabled(bool(leaves)):
        right = attention(
            wide.q[:, :, -last:], wide.k, wide.v, [wide_encoding], x=wide.x if reads_x else None, backend="dense"
        )
        got = posenc_call()
    results, exact = {"result": got[:, :, -last:]}, {"result": right}
    if leaves:
        names = [*Inputs._fields[: 4 if reads_x else 3], *(n for n, _ in encoding.named_parameters())]
        wide_leaves = [*(wide if reads_x else wide[:3]), *wide_encoding.parameters()]
        gradients = torch.autograd.grad(got, leaves, target)
        right_gradients = torch.autograd.grad(right, wide_leaves, target[:, :, -last:].double())
        results |= {f"gradient of {n}": g for n, g in zip(names, gradients, strict=True)}
        exact |= {f"gradient of {n}": g for n, g in zip(names, right_gradients, strict=True)}
    return relative_errors(results, exact)


def flex_by_definition(q: Tensor, k: Tensor, v: Tensor, *, score_mod: Score | None = None, block_mask: Any) -> Tensor:
    """FlexAttention for the dry run, whose own has no gradients on CPU: a slip in a score_mod shows here."""
    indices = torch.meshgrid(*(torch.arange(n) for n in (*q.shape[:3], k.shape[2])), indexing="ij")
    scores = q.float() @ k.float().mT * q.shape[-1] ** -0.5
    scores = scores if score_mod is None else score_mod(scores, *indices)
    visible = block_mask.mask_mod(*indices)
    return (scores.masked_fill(~visible, float("-inf")).softmax(-1) @ v.float()).to(q.dtype)


# Decode steps


def decode_row(setup: Setup, tokens: int, name: str) -> Comparison:
    """One query over keys and values that lie ready."""
    sizes = setup._replace(heads=setup.decode_heads)
    subject = ENCODINGS.get(name)
    torch.manual_seed(0)
    encodings = [] if subject is None else [subject.make(sizes).to(setup.device)]
    shapes = (1, sizes.heads, 1, setup.width), (1, setup.decode_kv_heads, tokens, setup.width)
    level = 0.0 if subject is None else subject.level
    q, k, v = (t.to(setup.device, torch.bfloat16) for t in random_qkv(*shapes, level=level))
    token_states: list[Tensor | None] | None = None
    if subject is not None and subject.reads_x:
        x = torch.randn(1, tokens, sizes.heads * sizes.width, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            token_states = [e.token_state(x.to(setup.device)) for e in encodings if isinstance(e, ScoreEncoding)]

    def posenc_call() -> Tensor:
        return attention(q, k, v, encodings, token_states=token_states)

    def check() -> Errors:
        wide = [copy.deepcopy(e).double() for e in encodings]
        with torch.no_grad():
            right = attention(q.double(), k.double(), v.double(), wide, token_states=token_states, backend="dense")
            return relative_errors({"result": posenc_call()}, {"result": right})

    peers: dict[str, Run | str] = {
        "SDPA(enable_gqa), no bias": inference(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
    }
    with torch.no_grad():
        backend = explain_backend(q, k, v, encodings, token_states=token_states).backend
    moved = 2 * k.numel() * k.element_size()
    return Comparison(inference(posenc_call), peers, check, VALUES, backend, moved=moved)


LAYER_WAYS = (
    "KVCache, eager",
    "StaticKVCache, eager",
    "StaticKVCache, compiled with CUDA graphs",
    "StaticKVCache, captured in a CUDA graph",
)


def layer_row(setup: Setup, tokens: int, way: str) -> Comparison:
    """A step of a whole attention layer with RoPE; each call adds one token to the cache."""
    heads, kv_heads, width = setup.decode_heads, setup.decode_kv_heads, setup.width
    dim, place = heads * width, torch.zeros((), device=setup.device, dtype=torch.bfloat16)
    torch.manual_seed(0)
    layer = SelfAttention(dim, heads, num_kv_heads=kv_heads, encodings=[RoPE(width)]).to(place).eval()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 1, dim, generator=generator).to(place)
    k, v = torch.randn(2, 1, kv_heads, tokens, width, generator=generator).to(place)
    dynamic = way.startswith("KVCache")
    layer_cache: KVCache | StaticKVCache = grown(k, v) if dynamic else filled(layer, k, v)

    def step() -> Tensor:
        return layer(x, cache=layer_cache)

    run = inference(step)
    if "compiled" in way:
        by_compiler = compiled(setup, layer, mode="reduce-overhead", fullgraph=True)

        def compiled_step() -> Tensor:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            return by_compiler(x, cache=layer_cache)  # type: ignore[no-any-return]

        run = inference(compiled_step)
    elif "captured" in way and not setup.dry:
        run = captured(step)
    before = int(layer_cache.seen) - tokens  # steps that capturing has made

    def check() -> Errors:
        """Of the first step that is timed."""
        wide, cache = copy.deepcopy(layer).double(), grown(k.double(), v.double())
        with torch.no_grad():
            for _ in range(before + 1):
                right = wide(x.double(), cache=cache)
        return relative_errors({"result": run()}, {"result": right})  # type: ignore[dict-item]

    bare = Bare(layer, k, v)
    bare_compiled = compiled(setup, bare, mode="reduce-overhead")

    def marked() -> object:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return bare_compiled(x)

    peers: dict[str, Run | str] = {
        "projections and SDPA over ready keys, eager": inference(lambda: bare(x)),
        "projections and SDPA over ready keys, compiled with CUDA graphs": inference(marked),
    }
    moved = sum(p.numel() * p.element_size() for p in layer.parameters()) + 2 * k.numel() * k.element_size()
    return Comparison(run, peers, check, VALUES, moved=moved, calls=2 if setup.dry else 8)


class Bare(nn.Module):
    """A layer's projections with SDPA over keys and values that lie ready, which CUDA graphs need not copy."""

    k: Tensor
    v: Tensor

    def __init__(self, layer: SelfAttention, k: Tensor, v: Tensor) -> None:
        super().__init__()
        self.layer = layer
        self.register_buffer("k", k)
        self.register_buffer("v", v)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        layer = self.layer
        q, *new = (proj(x).view(1, -1, 1, layer.head_dim) for proj in (layer.q_proj, layer.k_proj, layer.v_proj))
        out = layer.o_proj(F.scaled_dot_product_attention(q, self.k, self.v, enable_gqa=True).flatten()[None, None])
        return out, *new


def grown(k: Tensor, v: Tensor) -> KVCache:
    """A growing cache of these keys and values, which count as rotated."""
    cache = KVCache()
    with torch.no_grad():
        cache._take(cache._extended(NewTokens(k, v, [None])))
    return cache


def filled(layer: SelfAttention, k: Tensor, v: Tensor) -> StaticKVCache:
    """A static cache of these keys and values, with room for what is measured."""
    tokens = k.shape[2]
    cache = layer.static_cache(1, tokens + ROOM)
    with torch.no_grad():
        cache.k[:, :, :tokens], cache.v[:, :, :tokens] = k, v
        cache.real[:, :tokens] = True
        cache.positions[:, :tokens] = torch.arange(tokens, device=k.device)
        cache.seen.fill_(tokens)
        cache.count.fill_(tokens)
    return cache


def captured(step: Call) -> Run:
    """The step as one CUDA graph, which is replayed; three steps are made before."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        out = step()

    def replay() -> Tensor:
        graph.replay()
        return out

    return replay

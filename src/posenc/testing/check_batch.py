"""Is this batch correct for my model? Packed documents, padding, positions and labels, by what the model computes.

A model that reads past a document's beginning trains without an error. Whether it does so follows from the batch, the
model's class, its attention implementation and its arguments together, so that only running it decides. Here the
model is called as the training loop calls it, and answers by its derivatives: the gradient of a document's logits with
respect to the embeddings of another document's tokens is exactly zero where the two are separate, since a weight of
zero passes on zeros. One pass backward for a document, and no threshold.

Positions have no such sign. For them each document is processed once more alone, and the difference of its logits is
compared with rounding.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

Kind = Literal[
    "leaks", "padding counted", "causal broken", "positions differ from alone", "labels cross", "undecidable"
]
PADDING = -1
IGNORED = -100  # a label that no loss counts, as in PyTorch and transformers
ROWS, DOCUMENTS = 2, 4  # rows of a batch, and documents of a row, that are looked at
TOKENS, NEXT = 4096, 64  # tokens of a row that are looked at; where the first document is longer, so many after its end
ROUNDING = 32.0  # times the effect of one rounding of the embeddings that a difference must exceed
CUMULATIVE = ("cu_seq_lens_q", "cu_seqlens", "cu_seq_lens", "cu_seqlens_q")
DOCUMENT_IDS = ("seq_idx", "segments", "segment_ids", "document_ids", "sequence_ids")
OWN_PARTS = ("logits", "last_hidden_state")  # of a model's output, the first that it has


class BatchError(ValueError):
    """A batch is wrong for a model; the message names the documents, the tokens and what to change."""


@dataclass(frozen=True)
class BatchFinding:
    """One thing that is wrong, or that could not be decided.

    Attributes:
        kind: ``"leaks"``, ``"padding counted"`` (read, or counted by position ids), ``"causal broken"``,
            ``"positions differ from alone"``, ``"labels cross"`` or ``"undecidable"``.
        row, token: where the logits (or the label) are, by index into the batch as it was given.
        other: the token whose embedding they read and should not, or None.
        effect: the largest change of those logits, in their standard deviations; None where nothing was changed.
        rounding: what rounding alone changes, in the same unit.
        text: the sentence.
        remedy: what to change; empty where nothing that was tried helps.
    """

    kind: Kind
    row: int
    token: int
    text: str
    other: int | None = None
    effect: float | None = None
    rounding: float | None = None
    remedy: str = ""


@dataclass(frozen=True)
class BatchReport:
    """What `check_batch` found.

    Attributes:
        findings: what is wrong, or could not be decided; empty where the batch is right.
        condition: how the model was called: its class, attention implementation, and the batch's keys.
        documents: ``(rows, tokens)``, the documents that were assumed; -1 is padding.
        source: what they were taken from.
        checked: what was looked at, in words.
    """

    findings: tuple[BatchFinding, ...]
    condition: str
    documents: Tensor
    source: str
    checked: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether nothing wrong was found; what could not be decided counts as not wrong."""
        return all(finding.kind == "undecidable" for finding in self.findings)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The kinds of the findings, each once; ``("separate",)`` where there are none."""
        return tuple(dict.fromkeys(finding.kind for finding in self.findings)) or ("separate",)

    def __str__(self) -> str:
        head = f"{', '.join(self.verdicts)}: {self.condition}; documents by {self.source}"
        lines = [f"- {f.kind}: {f.text}" + (f" {f.remedy}" if f.remedy else "") for f in self.findings]
        return "\n".join([head, *lines, f"checked: {', '.join(self.checked)}"])

    def raise_if_wrong(self) -> None:
        """Raise a `BatchError` with the report's text unless `ok`."""
        if not self.ok:
            raise BatchError(str(self))


def check_batch(
    model: nn.Module | Callable[..., Any],
    batch: Mapping[str, Any],
    *,
    documents: Tensor | None = None,
    causal: bool | None = None,
    labels_are_shifted: bool = False,
    embedding: nn.Module | None = None,
) -> BatchReport:
    """Test whether a batch is correct for a model: separate documents, hidden padding, positions, labels.

    The model is called as ``model(**batch)`` on at most two rows, in the mode (train or eval) that it is in, under the
    caller's autocast if there is one; gradients of parameters are not touched, and the random state is kept.

    Args:
        model: a decoder, encoder or hybrid of transformers, attached or not, a `PosencForCausalLM`, a wrapper around
            one (DDP, PEFT), or any callable that takes the batch and returns logits ``(rows, tokens, …)``, or an output
            that has them as ``logits`` or ``last_hidden_state``.
        batch: what the training loop calls it with; ``input_ids``, ``(rows, tokens)``, must be among it.
        documents: ``(rows, tokens)``, equal numbers for tokens of one document, -1 for padding. By default from what
            the batch says: document ids (``seq_idx``, ``segments``), cumulative lengths (``cu_seq_lens_q``), a mask
            that counts documents, positions that restart; else each row is one document. Padding is where a two-axis
            ``attention_mask`` is 0.
        causal: whether a token attends only to itself and earlier tokens; by default as the model's class and
            configuration say.
        labels_are_shifted: whether ``labels[t]`` is the token after ``t`` already; transformers' models shift by
            themselves.
        embedding: the module that embeds the tokens, where the model has no ``get_input_embeddings``; by default its
            first `nn.Embedding`.

    Returns:
        A `BatchReport`, whose ``verdicts`` say what was found.

    Raises:
        ValueError: where the batch has no ``input_ids``, or ``documents`` does not fit.
    """
    ids = batch.get("input_ids")
    if not isinstance(ids, Tensor) or ids.ndim != 2:
        raise ValueError(f"batch: input_ids (sequences, tokens) expected, got {describe(ids)}")
    if documents is None:
        documents, source = documents_of(batch)
    elif documents.shape != ids.shape:
        raise ValueError(f"documents: shape {tuple(ids.shape)} as input_ids expected, got {tuple(documents.shape)}")
    else:
        source = "the argument documents"
    # which pictures belong to which row only the model knows
    pictures = any(name.startswith("pixel") for name in batch)
    rows = list(range(len(ids))) if pictures else interesting_rows(documents)
    selected, numbers = cut(batch, rows, ids.shape[0]), documents[rows].to(ids.device)
    length = ids.shape[1] if pictures else looked_at(numbers)
    subject = Subject(model, shortened(selected, length, ids.shape[1]), numbers[:, :length], embedding)
    causal = subject.is_causal() if causal is None else causal
    findings: list[BatchFinding] = []
    checked = [f"sequences {', '.join(map(str, rows))} of {ids.shape[0]}"]
    checked += [f"their first {length:,} tokens of {ids.shape[1]:,}"] if length < ids.shape[1] else []
    with subject.prepared():
        try:
            new_findings = read_influence(subject, causal)
            checked.append("what each document's logits depend on, by their gradients")
        except NotDifferentiableError as error:
            new_findings = changed_influence(subject, causal)
            checked.append(f"what a changed document changes (no gradients: {error})")
        findings += new_findings
        if not any(f.kind in ("leaks", "undecidable") for f in new_findings):
            findings += positions_alone(subject, causal)
            checked.append("each document alone")
    if "labels" in batch:
        findings += crossing_labels(selected, numbers, labels_are_shifted)
        checked.append("labels")
    findings = [moved(finding, rows) for finding in findings]
    return BatchReport(tuple(findings), subject.condition(), documents, source, tuple(checked))


def check_collator(
    model: nn.Module | Callable[..., Any],
    collator: Callable[[list[Any]], Mapping[str, Any]],
    samples: Sequence[Mapping[str, Any]],
    **options: Any,
) -> BatchReport:
    """Run `check_batch` on what a collator makes of samples; each sample is found again in the batch.

    Args:
        model, options: as of `check_batch`.
        collator: what the data loader calls with a list of samples.
        samples: two or more, each with ``input_ids``; a token that stands nowhere else in them tells best.

    Raises:
        ValueError: where a sample is not found again whole.
    """
    batch = collator([dict(sample) for sample in samples])
    documents = torch.full_like(batch["input_ids"], PADDING)
    for number, sample in enumerate(samples):
        tokens = torch.as_tensor(sample["input_ids"]).flatten().to(documents.device)
        row, start = place_of(tokens, batch["input_ids"], documents)
        documents[row, start : start + len(tokens)] = number
    return check_batch(model, batch, documents=documents, **options)


def place_of(tokens: Tensor, ids: Tensor, taken: Tensor) -> tuple[int, int]:
    """The row and first token at which a document's tokens stand and no other document was found."""
    length = len(tokens)
    if length <= ids.shape[1]:
        equal = (ids.unfold(1, length, 1) == tokens).all(-1) & (taken.unfold(1, length, 1) == PADDING).all(-1)
        if equal.any():
            row, start = equal.nonzero()[0].tolist()
            return row, start
    raise ValueError(f"samples: {length} tokens that begin with {tokens[:4].tolist()} are in no sequence of the batch")


# What the batch says --------------------------------------------------------------------------------------------------


def documents_of(batch: Mapping[str, Any]) -> tuple[Tensor, str]:
    """Documents, ``(rows, tokens)`` with -1 for padding, and the key of the batch that they were taken from."""
    ids, mask = batch["input_ids"], batch.get("attention_mask")
    padding = torch.zeros_like(ids, dtype=torch.bool)
    if isinstance(mask, Tensor) and mask.shape == ids.shape:
        padding = mask == 0
    numbers_by_token, source = torch.zeros_like(ids), "rows"
    lengths = next((name for name in CUMULATIVE if isinstance(batch.get(name), Tensor)), None)
    numbers = next((name for name in DOCUMENT_IDS if isinstance(batch.get(name), Tensor)), None)
    where = batch.get("position_ids")
    if numbers is not None and batch[numbers].shape == ids.shape:
        numbers_by_token, source = batch[numbers].long(), numbers
    elif lengths is not None and ids.shape[0] == 1:
        bounds = batch[lengths].to(ids.device).long()
        numbers_by_token = torch.bucketize(torch.arange(ids.shape[1], device=ids.device), bounds[1:], right=True)[None]
        source = lengths
    elif isinstance(mask, Tensor) and mask.shape == ids.shape and mask.dtype != torch.bool and int(mask.max()) > 1:
        numbers_by_token, source = mask.long(), "attention_mask"
    elif isinstance(where, Tensor):
        restarts = torch.zeros_like(where[0] if where.ndim == 3 else where, dtype=torch.bool)
        if where.ndim == 3:  # of M-RoPE's axes, time does not fall within a document and the others do
            restarts[:, 1:] = (where[:, :, 1:] == 0).all(0) & (where[:, :, :-1] != 0).any(0)
        else:
            restarts[:, 1:] = where[:, 1:] <= where[:, :-1]
        # ids of padding on the left stand still, or are all one number
        restarts &= ~padding.expand_as(restarts)
        restarts[:, 1:] &= ~padding[:, :-1].expand_as(restarts[:, :-1])
        numbers_by_token, source = restarts.cumsum(-1).expand_as(ids), "position_ids"
    if padding.any():
        source += " and attention_mask" if source != "attention_mask" else ""
    return torch.where(padding, PADDING, numbers_by_token), source


def interesting_rows(documents: Tensor) -> list[int]:
    """At most `ROWS` rows: those of most documents, then those with padding."""
    amount = [len(row[row != PADDING].unique()) for row in documents]
    padded = [bool((row == PADDING).any()) for row in documents]
    order = sorted(range(len(amount)), key=lambda i: (-amount[i], -padded[i], i))
    return sorted(order[:ROWS])


def cut(batch: Mapping[str, Any], rows: list[int], total: int) -> dict[str, Any]:
    """The batch with some of its rows; what has no axis of rows (cumulative lengths, pixels) stays as it is."""
    if len(rows) == total:
        return dict(batch)

    def of(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.ndim == 0:
            return value
        if value.shape[0] == total:
            return value[rows]
        return value[:, rows] if value.ndim == 3 and value.shape[1] == total else value

    return {name: of(value) for name, value in batch.items()}


def looked_at(documents: Tensor) -> int:
    """How many tokens of the rows are looked at: enough to meet the second document, where a row has one."""
    needed = TOKENS
    for row in documents:
        begins = (row[1:] != row[:-1]).nonzero()[:, 0] + 1
        begins = begins[row[begins] != PADDING]  # padding on the left is followed by the first document
        after = begins[: 2 if int(row[0]) == PADDING else 1]
        needed = max([needed, *(int(at) + NEXT for at in after)])
    return min(needed, documents.shape[1])


def shortened(batch: dict[str, Any], length: int, total: int) -> dict[str, Any]:
    """The batch with the first tokens of its rows: in each axis of tokens, and in cumulative lengths."""
    if length == total:
        return batch

    def of(key: str, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return min(value, length) if is_length(key) and isinstance(value, int) else value
        if is_length(key):
            return value.clamp(max=length).unique() if value.ndim == 1 else value.clamp(max=length)  # type: ignore[no-untyped-call]
        for axis in range(1, value.ndim):
            value = value.narrow(axis, 0, length) if value.shape[axis] == total else value
        return value

    return {key: of(key, value) for key, value in batch.items()}


def crossing_labels(batch: Mapping[str, Any], documents: Tensor, shifted: bool) -> Iterator[BatchFinding]:
    """Labels that a token of another document, or padding, is asked for."""
    labels = batch["labels"]
    if not isinstance(labels, Tensor) or labels.shape != documents.shape:
        return
    counted = labels != IGNORED
    ids = batch["input_ids"]
    inside = counted[:, :-1] & (documents[:, :-1] == documents[:, 1:]) & (documents[:, 1:] != PADDING)
    if not shifted and int(inside.sum()) >= 4:
        own_share, following_share = (
            float((labels[:, :-1] == other)[inside].float().mean()) for other in (ids[:, :-1], ids[:, 1:])
        )
        if following_share > 0.9 > own_share:
            row, token = inside.nonzero()[0].tolist()
            yield BatchFinding(
                "labels cross", row, token, f"label {token} of sequence {row} is the token after it, and the model "
                "shifts labels by itself: each token learns the one after the next.",
                remedy="Pass labels equal to input_ids.",
            )  # fmt: skip
            return
    # The label of token t is read from the logits of token t - 1, or of t itself. Every collator asks padding on the
    # left for the token after it, so that this is no fault.
    ends = (documents[:, :-1] != documents[:, 1:]) & (documents[:, :-1] != PADDING)
    begins = torch.zeros_like(counted)
    if shifted:
        begins[:, :-1] = ends
    else:
        begins[:, 1:] = ends
    for problem, wrong in (
        ("is padding and counted", counted & (documents == PADDING)),
        ("is asked of the document before it", counted & begins & (documents != PADDING)),
    ):
        if wrong.any():
            row, token = wrong.nonzero()[0].tolist()
            yield BatchFinding(
                "labels cross", row, token,
                f"label {token} of sequence {row} {problem} ({int(wrong.sum())} such labels).",
                remedy="Set the first label of each document and those of padding to -100.",
            )  # fmt: skip


# The model ------------------------------------------------------------------------------------------------------------


class NotDifferentiableError(Exception):
    """The model's logits have no gradient with respect to its embeddings."""


class Subject:
    """A model, some rows of a batch, and how it is called."""

    def __init__(
        self,
        model: nn.Module | Callable[..., Any],
        batch: dict[str, Any],
        documents: Tensor,
        embedding: nn.Module | None,
    ) -> None:
        self.model, self.batch, self.documents = model, batch, documents
        self.inner = unwrapped(model)
        self.embedding = embedding if embedding is not None else embedding_of(self.inner)
        self.leaf: Tensor | None = None
        self.perturbed = False

    @property
    def config(self) -> Any:
        return getattr(self.inner, "config", None)

    def is_causal(self) -> bool:
        """By the class's name, its attention modules and its configuration; else it is taken for a decoder."""
        config, name = self.config, type(self.inner).__name__
        if config is None:
            return True
        if getattr(config, "is_encoder_decoder", False):
            raise ValueError("model: an encoder with a decoder is not checked; pass its decoder, or causal=")
        text = getattr(config, "text_config", config)
        decodes = any(word in name for word in ("CausalLM", "ConditionalGeneration", "LMHead", "ForCausal"))
        if decodes or getattr(text, "is_decoder", False):
            return True
        settings = [
            module.is_causal for module in modules_of(self.inner) if isinstance(getattr(module, "is_causal", 0), bool)
        ]
        return any(settings) if settings else bool(getattr(text, "use_cache", False))

    def condition(self) -> str:
        """How the model was called."""
        name, config = type(self.inner).__name__, self.config
        implementation = getattr(config, "_attn_implementation", None)
        parts = [name] + ([f"{implementation} attention"] if implementation else [])
        keys = [key for key, value in self.batch.items() if value is not None and key != "labels"]
        parts.append("train mode" if getattr(self.inner, "training", False) else "eval mode")
        return f"{', '.join(parts)}, called with {', '.join(keys)}"

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """The embeddings' output becomes a leaf of the graph in each call; the random state is put back."""
        devices = [self.batch["input_ids"].device.index or 0] if self.batch["input_ids"].is_cuda else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(0)
            if self.embedding is None:
                yield
                return
            handle = self.embedding.register_forward_hook(self._replace)
            try:
                yield
            finally:
                handle.remove()
                self.leaf = None

    def _replace(self, module: nn.Module, args: object, out: Tensor) -> Tensor:
        if out.ndim != 3 or out.shape[:2] != self.batch_shape:
            return out
        changed = out.detach().clone()
        if self.perturbed:  # each number by at most one unit in its last place, either way
            sign = torch.randint_like(changed, 2) * 2 - 1
            changed = changed * (1 + sign * torch.finfo(changed.dtype).eps)
        self.leaf = changed.requires_grad_(torch.is_grad_enabled())
        return self.leaf

    def logits(self, batch: Mapping[str, Any]) -> Tensor:
        """The model's logits of a batch, ``(rows, tokens, …)``."""
        self.batch_shape = batch["input_ids"].shape
        out = self.model(**{key: value for key, value in batch.items() if key != "labels"})
        for part in OWN_PARTS:
            if isinstance(output := getattr(out, part, None), Tensor):
                return output
        if isinstance(out, tuple):
            out = next((value for value in out if isinstance(value, Tensor) and value.ndim >= 2), out)
        if not isinstance(out, Tensor):
            raise TypeError(f"model: logits expected, got {describe(out)}")
        return out

    @torch.no_grad()
    def evaluated(self, batch: Mapping[str, Any], *, perturbed: bool = False) -> Tensor:
        """Logits in eval mode without gradients, where dropout would drown what is compared."""
        training = isinstance(self.model, nn.Module) and self.model.training
        self.perturbed = perturbed
        try:
            if training:
                self.model.eval()  # type: ignore[union-attr]
            return self.logits(batch).float()
        finally:
            self.perturbed = False
            if training:
                self.model.train()  # type: ignore[union-attr]

    def pairs(self) -> list[tuple[int, int]]:
        """The documents to look at: (row, number), at most `DOCUMENTS` a row, longest left out last."""
        sampled = []
        for row, numbers in enumerate(self.documents):
            named = [n for n in dict.fromkeys(numbers.tolist()) if n != PADDING]
            sampled += [(row, number) for number in named[:DOCUMENTS]]
        return sampled

    def pictures(self) -> Tensor:
        """Which tokens of the batch stand for parts of a picture, a video or a sound."""
        ids: Tensor = self.batch["input_ids"]
        values = vars(self.config) if self.config is not None else {}
        kinds = ("image", "video", "vision", "audio")
        special = [v for k, v in values.items() if k.startswith(kinds) and k.endswith("token_id") and type(v) is int]
        return torch.isin(ids, torch.tensor(special, device=ids.device, dtype=ids.dtype))

    def tokens(self, row: int, number: int) -> Tensor:
        return (self.documents[row] == number).nonzero()[:, 0]


def unwrapped(model: Any) -> Any:
    """The model inside DDP's, FSDP's, torch.compile's or PEFT's wrapper."""
    for name in ("module", "_orig_mod"):
        while isinstance(inner := getattr(model, name, None), nn.Module):
            model = inner
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def embedding_of(model: Any) -> nn.Module | None:
    if hasattr(model, "get_input_embeddings"):
        embedding = model.get_input_embeddings()
        if isinstance(embedding, nn.Module):
            return embedding
    if not isinstance(model, nn.Module):
        return None
    return next((module for module in model.modules() if isinstance(module, nn.Embedding)), None)


def describe(value: object) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


# What a document reads ------------------------------------------------------------------------------------------------


def read_influence(subject: Subject, causal: bool) -> list[BatchFinding]:
    """Which tokens each document's logits read, by the gradient of a random projection of them.

    Two projections a document: of all its tokens, which must read no other document, and of its first half, which must
    not read its second half under a causal mask.
    """
    if subject.embedding is None:
        raise NotDifferentiableError("no module that embeds tokens was found; name it by embedding=")
    try:
        with torch.enable_grad():
            logits = subject.logits(subject.batch)
    except (NotImplementedError, RuntimeError) as error:  # a kernel without a pass backward; or the call itself is
        raise NotDifferentiableError(brief(error)) from error  # wrong, and fails again without
    leaf = subject.leaf
    if leaf is None or logits.grad_fn is None:
        raise NotDifferentiableError("its logits have no gradient")
    if logits.shape[:2] != subject.documents.shape:
        raise NotDifferentiableError(f"its output has shape {tuple(logits.shape)}")

    def read_by(row: int, tokens: Tensor) -> Tensor:
        part = logits[row, tokens].float()
        try:
            projected = (part * torch.randn_like(part)).sum()
            (grad,) = torch.autograd.grad(projected, leaf, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            raise NotDifferentiableError(brief(error)) from error
        if grad is None or not grad.isfinite().all():
            raise NotDifferentiableError("the gradient of its logits is none, or not finite")
        return grad.abs().amax(-1) != 0

    findings: list[BatchFinding] = []
    for row, number in subject.pairs():
        tokens = subject.tokens(row, number)
        read = read_by(row, tokens)
        if not read[row, tokens].any():
            raise NotDifferentiableError("the gradient of a document's logits is zero on its own tokens")
        findings += judged_reading(subject, row, number, read)
        half = tokens[: len(tokens) // 2]
        if causal and len(half):
            later = read_by(row, half)[row] & (torch.arange(read.shape[1], device=read.device) > half[-1])
            later &= subject.documents[row] == number
            later &= ~subject.pictures()[row]  # the tokens of a picture may see each other
            if later.any():
                findings.append(broken_order(subject, row, int(half[-1]), int(later.nonzero()[0])))
    return first_of_each(findings)


def judged_reading(subject: Subject, row: int, number: int, read: Tensor) -> Iterator[BatchFinding]:
    """What a document reads that it should not, ``read`` (rows, tokens) being all that it reads."""
    here, tokens = subject.documents[row], subject.tokens(row, number)
    first, of_document = int(tokens[0]), f"sequence {row}, the document of tokens {spelled(here == number)}"
    foreign, hidden = (read[row] & part for part in ((here != number) & (here != PADDING), here == PADDING))
    cases: tuple[tuple[Kind, Tensor, int], ...] = (("leaks", foreign, -1), ("padding counted", hidden, 0))
    for kind, wrong, at in cases:
        if wrong.any():
            other = int(wrong.nonzero()[at])
            whose = (
                ", which is padding"
                if wrong is hidden
                else f" of the document of tokens {spelled(here == here[other])}"
            )
            effect, rounding = effect_of_change(subject, subject.batch, row, tokens, wrong, perturbed=True)
            text = f"{of_document} depends on token {other}{whose}{in_numbers(effect, rounding)}."
            remedy = remedy_for(subject, row, tokens, wrong)
            yield BatchFinding(kind, row, first, text, other, effect, rounding, remedy)
    rows = read.any(-1)
    rows[row] = False
    if rows.any():
        mate = int(rows.nonzero()[0])
        text = f"sequence {row} depends on sequence {mate} of the batch."
        yield BatchFinding("leaks", row, first, text, int(read[mate].nonzero()[0]))


def broken_order(subject: Subject, row: int, token: int, other: int) -> BatchFinding:
    later = torch.zeros_like(subject.documents[row], dtype=torch.bool)
    later[other] = True
    text = f"sequence {row}, the logits of tokens up to {token} depend on token {other}, which comes after them."
    tokens = torch.arange(token + 1, device=later.device)
    return BatchFinding("causal broken", row, token, text, other, remedy=remedy_for(subject, row, tokens, later))


def first_of_each(findings: list[BatchFinding]) -> list[BatchFinding]:
    """One finding of a kind and row: the documents after a leak tell the same."""
    return list({(finding.kind, finding.row): finding for finding in reversed(findings)}.values())[::-1]


def changed_influence(subject: Subject, causal: bool) -> list[BatchFinding]:
    """As `read_influence`, by forward passes: do logits change with tokens that they must not read?"""
    base = subject.evaluated(subject.batch)
    if base.shape[:2] != subject.documents.shape:
        text = f"logits of shape {tuple(subject.documents.shape)} and more were expected, got {tuple(base.shape)}."
        return [BatchFinding("undecidable", 0, 0, text)]
    again = subject.evaluated(subject.batch)
    findings: list[BatchFinding] = []
    for row, number in subject.pairs():
        here, tokens = subject.documents[row], subject.tokens(row, number)
        document = f"sequence {row}, the document of tokens {spelled(here == number)}"
        half, later = tokens[: len(tokens) // 2], here == number
        later[half] = False
        cases: list[tuple[Kind, str, Tensor, Tensor]] = [
            ("leaks", f"{document} depends on other documents", tokens, (here != number) & (here != PADDING)),
            ("padding counted", f"{document} depends on padding", tokens, here == PADDING),
        ]
        if causal and len(half):
            cases.append(("causal broken", f"{document}: its first half depends on its second half", half, later))
        for kind, sentence, judged, replaced in cases:
            if not replaced.any():
                continue
            noise = relative(again[row, judged], base[row, judged])
            changed = subject.evaluated(subject.batch | {"input_ids": other_tokens(subject, row, replaced)})
            effect = relative(changed[row, judged], base[row, judged])
            if effect > 4 * noise:
                remedy = remedy_for(subject, row, judged, replaced)
                text = f"{sentence}{in_numbers(effect, noise)}."
                findings.append(BatchFinding(kind, row, int(judged[0]), text, None, effect, noise, remedy))
    return first_of_each(findings)


def other_tokens(subject: Subject, row: int, where: Tensor) -> Tensor:
    """The batch's tokens with those of a row replaced by others that the batch has; those of pictures stay."""
    ids: Tensor = subject.batch["input_ids"].clone()
    pictures = subject.pictures()
    pool: Tensor = ids[~pictures].unique()  # type: ignore[no-untyped-call]
    where = where & ~pictures[row]
    ids[row, where] = pool[(torch.searchsorted(pool, ids[row, where].contiguous()) + 1 + len(pool) // 2) % len(pool)]
    return ids


def effect_of_change(
    subject: Subject, batch: Mapping[str, Any], row: int, tokens: Tensor, replaced: Tensor, *, perturbed: bool
) -> tuple[float, float]:
    """How far other tokens move the logits of some, and how far a second run does, its embeddings rounded or not."""
    base, again = (subject.evaluated(batch, perturbed=rounded)[row, tokens] for rounded in (False, perturbed))
    changed = subject.evaluated({**batch, "input_ids": other_tokens(subject, row, replaced)})[row, tokens]
    return relative(changed, base), relative(again, base)


def relative(got: Tensor, base: Tensor) -> float:
    """The largest difference, in standard deviations of the logits."""
    return float((got - base).abs().max() / base.std().clamp(min=1e-30))


def in_numbers(effect: float, rounding: float) -> str:
    return f"; other tokens there change its logits by {effect:.2g} standard deviations (rounding: {rounding:.1g})"


def brief(error: Exception) -> str:
    return " ".join(str(error).split())[:160]


def spelled(which: Tensor) -> str:
    indices = which.nonzero()[:, 0]
    return f"{int(indices[0])}-{int(indices[-1])}"


# Positions ------------------------------------------------------------------------------------------------------------


def positions_alone(subject: Subject, causal: bool) -> list[BatchFinding]:
    """Documents whose logits are others than when the model reads them alone, with its own positions.

    A model may be indifferent to where a document begins: then a shift of its ids changes no more than rounding does.
    """
    if any(name.startswith("pixel") for name in subject.batch):
        return list(mrope_positions(subject))
    findings = []
    base = subject.evaluated(subject.batch)
    rounded = subject.evaluated(subject.batch, perturbed=True)
    for row, number in subject.pairs():
        tokens = subject.tokens(row, number)
        document = f"sequence {row}, the document of tokens {spelled(subject.documents[row] == number)}"
        ids = subject.batch["input_ids"][row, tokens][None]
        alone = {"input_ids": ids}
        if "attention_mask" in subject.batch:
            alone["attention_mask"] = torch.ones_like(ids)
        try:
            got = subject.evaluated({**without_tokens(subject.batch), **alone})
            again = subject.evaluated({**without_tokens(subject.batch), **alone}, perturbed=True)
        except Exception as error:
            text = f"{document} cannot be evaluated alone: {brief(error)}"
            return [BatchFinding("undecidable", row, int(tokens[0]), text)]
        rounding = max(relative(rounded[row, tokens], base[row, tokens]), relative(again[0], got[0]))
        effect = relative(base[row, tokens], got[0])
        if effect > ROUNDING * max(rounding, torch.finfo(torch.float32).eps) or ids_are_wrong(
            subject, row, tokens, base
        ):
            worst = int((base[row, tokens] - got[0]).abs().flatten(1).amax(-1).argmax())
            remedy = remedy_for_positions(subject, row, tokens, got[0], rounding)
            behind_padding = bool((subject.documents[row, : int(tokens[0])] == PADDING).any())
            text = f"{document} has other logits than alone: by {effect:.2g} standard deviations at token "
            text += f"{int(tokens[worst])} (rounding: {rounding:.1g})."
            kind: Kind = "padding counted" if behind_padding and remedy else "positions differ from alone"
            findings.append(BatchFinding(kind, row, int(tokens[worst]), text, None, effect, rounding, remedy))
    return first_of_each(findings)


def ids_are_wrong(subject: Subject, row: int, tokens: Tensor, base: Tensor) -> bool:
    """Whether a document's ids are not consecutive and the model reads them, which needs no threshold.

    In a model whose weights say little yet, or in 16 bits, what wrong ids change is less than rounding may be. But a
    run with the same shapes repeats its numbers: if other ids change any, the model reads them.
    """
    position_ids = subject.batch.get("position_ids")
    if not isinstance(position_ids, Tensor) or position_ids.ndim != 2 or position_ids.shape != subject.documents.shape:
        return False
    ids = position_ids[row, tokens]
    if torch.equal(ids - ids[0], torch.arange(len(ids), device=ids.device)):
        return False
    restarting = position_ids.clone()
    restarting[row, tokens] = ids[0] + torch.arange(len(ids), device=ids.device)
    noise = (subject.evaluated(subject.batch) - base)[row].abs().max()
    change = (subject.evaluated(subject.batch | {"position_ids": restarting}) - base)[row].abs().max()
    return bool(change > 4 * noise)


def without_tokens(batch: Mapping[str, Any]) -> dict[str, Any]:
    """What of a batch does not speak of its tokens: flags and modes."""
    return {key: value for key, value in batch.items() if not isinstance(value, Tensor) and not is_length(key)}


def is_length(key: str) -> bool:
    return key in CUMULATIVE or key.startswith(("cu_seq", "max_length", "max_seqlen", "max_seq"))


def mrope_positions(subject: Subject) -> Iterator[BatchFinding]:
    """Ids of a vision-language model against its own rule, document by document, with the pictures of each."""
    position_ids = subject.batch.get("position_ids")
    if not isinstance(position_ids, Tensor):
        return
    for row, number, tokens, expected in ids_by_rule(subject):
        if isinstance(expected, str):
            text = f"sequence {row}, document {number}: get_rope_index of the model fails: {expected}"
            yield BatchFinding("undecidable", row, int(tokens[0]), text)
            continue
        # a fourth axis in front, where there is one, is the text's own and restarts with each document
        got = (
            position_ids[-len(expected) :, row, tokens]
            if position_ids.ndim == 3
            else position_ids[row, tokens].expand_as(expected)
        )
        wrong = got - got[:, :1].amin() != expected - expected[:, :1].amin()
        if wrong.any():
            axis, at = wrong.nonzero()[0].tolist()
            text = f"sequence {row}, token {int(tokens[at])}: position {int(got[axis, at])} on axis {axis} of M-RoPE, "
            text += f"where the model's own rule (get_rope_index) gives {int(expected[axis, at])} in its document."
            remedy = "Take position_ids from get_rope_index of each document after the last change of its tokens."
            yield BatchFinding("positions differ from alone", row, int(tokens[at]), text, remedy=remedy)
            return


def ids_by_rule(subject: Subject) -> Iterator[tuple[int, int, Tensor, Tensor | str]]:
    """Row, number and tokens of each document, and its ids by the model's rule, ``(axes, tokens)``, or an error."""
    rule = next((m.get_rope_index for m in modules_of(subject.inner) if hasattr(m, "get_rope_index")), None)
    if rule is None:
        return
    for row, number, tokens, options in documents_with_pictures(subject):
        try:
            yield row, number, tokens, called_with_known(rule, options)[0][:, 0]
        except Exception as error:
            yield row, number, tokens, brief(error)


def text_and_mrope_ids(subject: Subject) -> Tensor | None:
    """Ids ``(4, sequences, tokens)``: the text's, from 0 in each document, and M-RoPE's three by the model's rule."""
    ids = starting_over(subject.documents).expand(4, -1, -1).clone()
    ruled = list(ids_by_rule(subject))
    for row, _, tokens, expected in ruled:
        if isinstance(expected, str):
            return None
        ids[1:, row, tokens] = expected
    return ids if ruled else None


def documents_with_pictures(subject: Subject) -> Iterator[tuple[int, int, Tensor, dict[str, Any]]]:
    """Row, number, tokens and `get_rope_index`'s arguments of each document; pictures lie in the order of tokens."""
    config, batch = subject.config, subject.batch
    merged = int(getattr(getattr(config, "vision_config", None), "spatial_merge_size", 1)) ** 2
    used = {"image": 0, "video": 0}
    for row, numbers in enumerate(subject.documents):
        for number in [n for n in dict.fromkeys(numbers.tolist()) if n != PADDING]:
            tokens = subject.tokens(row, number)
            ids = batch["input_ids"][row, tokens][None].long()  # the rule may take no other integers
            options: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            kinds = torch.zeros_like(ids, dtype=torch.int32)
            for place, kind in enumerate(used, 1):
                here = ids == getattr(config, f"{kind}_token_id", -1)
                kinds[here] = place
                grids, left, first = batch.get(f"{kind}_grid_thw"), int(here.sum()), used[kind]
                while grids is not None and left > 0 and used[kind] < len(grids):
                    left -= int(grids[used[kind]].prod()) // merged
                    used[kind] += 1
                if grids is not None and used[kind] > first:
                    options[f"{kind}_grid_thw"] = grids[first : used[kind]]
            yield row, number, tokens, options | {"mm_token_type_ids": kinds}


def called_with_known(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """A call with those of the options that the function names."""
    names = inspect.signature(function).parameters
    return function(**{name: value for name, value in options.items() if name in names})


def modules_of(model: Any) -> Iterator[Any]:
    yield model
    if isinstance(model, nn.Module):
        yield from (module for module in model.modules() if module is not model)


# Remedies: the first change of the call that helps --------------------------------------------------------------------


def variants(subject: Subject) -> Iterator[tuple[str, dict[str, Any]]]:
    """Other ways to hand over the same rows, and what each is called."""
    batch, documents = subject.batch, subject.documents
    mask = batch.get("attention_mask")
    real = documents != PADDING
    unmasked = dict(batch)
    if isinstance(mask, Tensor):
        unmasked = {key: value for key, value in batch.items() if key != "attention_mask"}
    restarting = {"position_ids": starting_over(documents)}
    if not real.all():
        yield "Pass attention_mask, 0 at padding.", {**batch, "attention_mask": real.long()}
    yield "Pass use_cache=False.", {**batch, "use_cache": False}
    if mask is not None and real.all():
        yield "Leave attention_mask out: it hides nothing, and with it documents are not told apart.", unmasked
        yield "Leave attention_mask out and pass use_cache=False.", {**unmasked, "use_cache": False}
    if documents.amax(-1).max() > 0 and (four := text_and_mrope_ids(subject)) is not None:
        remedy = (
            "Pass position_ids (4, sequences, tokens): from 0 in each document, then get_rope_index of each document;"
        )
        yield f"{remedy} and use_cache=False.", {**unmasked, "position_ids": four, "use_cache": False}
    elif documents.amax(-1).max() > 0:
        yield "Pass position_ids that begin at 0 in each document.", {**batch, **restarting}
        remedy = "Pass position_ids that begin at 0 in each document, no attention_mask, and use_cache=False."
        yield remedy, {**unmasked, **restarting, "use_cache": False}
    if documents.amax(-1).max() > 0:
        same = (documents[:, :, None] == documents[:, None, :]) & real[:, None, :]
        if subject.is_causal():
            same &= torch.ones_like(same[0]).tril()
        dtypes = (p.dtype for p in subject.inner.parameters()) if isinstance(subject.inner, nn.Module) else iter(())
        dtype = next(dtypes, torch.float32)
        bias = torch.zeros(same.shape, dtype=dtype, device=same.device).masked_fill(~same, torch.finfo(dtype).min)
        remedy = (
            "Pass attention_mask (sequences, 1, queries, keys), the lowest number between documents, 0 within them."
        )
        yield remedy, {**unmasked, "attention_mask": bias[:, None], "use_cache": False}


def starting_over(documents: Tensor) -> Tensor:
    """0, 1, … in each document, and 0 in padding."""
    at = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return torch.where(documents == PADDING, 0, at - torch.where(begins, at, 0).cummax(-1).values)


def remedy_for(subject: Subject, row: int, tokens: Tensor, replaced: Tensor) -> str:
    """The first way of `variants` in which the tokens no longer read the others; each is tried."""
    for remedy, batch in variants(subject):
        try:
            if not reads(subject, batch, row, tokens, replaced):
                return remedy
        except Exception:  # a way that this model does not take is no remedy
            continue
    return "Give each document a sequence of its own: no other arguments that were tried separate them."


def reads(subject: Subject, batch: Mapping[str, Any], row: int, tokens: Tensor, replaced: Tensor) -> bool:
    """Whether the logits of some tokens depend on others: by their gradient, else by a change of the others."""
    try:
        with torch.enable_grad():
            part = subject.logits(batch)[row, tokens].float()
            if subject.leaf is not None and part.grad_fn is not None:
                (grad,) = torch.autograd.grad((part * torch.randn_like(part)).sum(), subject.leaf)
                return bool((grad[row].abs().amax(-1) != 0)[replaced].any())
    except (NotImplementedError, RuntimeError):  # no pass backward: what fails for another reason fails again below
        pass
    effect, noise = effect_of_change(subject, batch, row, tokens, replaced, perturbed=False)
    return effect > 4 * noise


def remedy_for_positions(subject: Subject, row: int, tokens: Tensor, alone: Tensor, rounding: float) -> str:
    """The first of other position ids that mends it."""
    without = {key: value for key, value in subject.batch.items() if key != "position_ids"}
    ways = {
        "Pass position_ids that begin at 0 in each document.": starting_over(subject.documents),
        "Leave position_ids out: the model counts by itself, and not from where these begin.": None,
    }
    for remedy, ids in ways.items():
        try:
            got = subject.evaluated(without if ids is None else {**without, "position_ids": ids})[row, tokens]
        except Exception:  # a way that this model does not take is no remedy
            continue
        if relative(got, alone) <= ROUNDING * max(rounding, torch.finfo(torch.float32).eps):
            return remedy
    return ""


def moved(finding: BatchFinding, rows: list[int]) -> BatchFinding:
    """A finding with its row counted in the whole batch."""
    row = rows[finding.row]
    return replace(finding, row=row, text=finding.text.replace(f"sequence {finding.row},", f"sequence {row},", 1))

"""Thirteen rules of thumb, "use X if …", each condition with a verdict, a sentence, and what the sentence rests on.

The conditions come from notes by learners. A verdict judges the advice as it is given: "depends" names on what, and
"inconclusive" and "not tested here" promise nothing. Numbers come from the recorded comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from posenc.catalogue.studies import Contrast, Mean, Study, StudyRow, studies
from posenc.recommend.rule import Basis
from posenc.recommend.sources import SOURCES as SOURCES_OF_ADVICE
from posenc.recommend.sources import arxiv, code

SOURCES = {
    **SOURCES_OF_ADVICE,
    "sinusoid": arxiv("Vaswani et al.", "1706.03762", "sinusoids in the first encoder-decoder"),
    "fire": arxiv("FIRE", "2310.04418", "its authors report the best length generalisation among biases they tried"),
    "resonance": arxiv("Resonance RoPE", "2403.00071",
         "wavelengths rounded to whole tokens; its authors report gains with YaRN"),
    "clex": arxiv("CLEX", "2310.16450", "a learned differential equation of the factor; extends beyond 4 times"),
    "gpt2": code("GPT-2", "gpt2/modeling_gpt2.py", "self.wpe = nn.Embedding", "a learned table of 1,024 positions"),
}  # fmt: skip
Verdict = Literal["true", "depends", "false", "inconclusive", "not tested here"]


@dataclass(frozen=True)
class Judgement:
    """One condition of a rule of thumb.

    Attributes:
        condition: as the notes have it.
        verdict: on the advice to use the encoding in this case.
        text: why, in a sentence or two.
        basis, sources: as of `Sentence`.
    """

    condition: str
    verdict: Verdict
    text: str
    basis: Basis
    sources: tuple[str, ...]


def estimate(mean: Mean | tuple[float, float, float], study: Study, *, signed: bool = False) -> str:
    """A mean with half of its interval, as the reports show it."""
    value, low, high = mean
    sign, half = "+" if signed else "", (high - low) / 2
    if study.percent:
        return f"{100 * value:{sign}.1f} ± {100 * half:.1f}".replace("-", "−")
    return f"{value:{sign}.3f} ± {half:.3f}".replace("-", "−")


def over_length(row: StudyRow) -> Contrast:
    """The change of a row from the training length to the longest."""
    return next(contrast for contrast in row.contrasts if contrast.against == "1x")


def _study(name: str) -> Study:
    return next(study for study in studies() if study.name == name)


def _by_definition(method: str) -> Callable[..., Judgement]:
    def judge(condition: str, text: str, verdict: Verdict = "true") -> Judgement:
        return Judgement(condition, verdict, text, "by definition", (f"docs/methods/{method}.md",))

    return judge


def _practice(condition: str, text: str, *sources: str, verdict: Verdict = "true") -> Judgement:
    return Judgement(condition, verdict, text, "practice", sources)


def _untested(condition: str, text: str, *papers: str) -> Judgement:
    return Judgement(condition, "not tested here", text, "not known", ("docs/findings.md", *papers))


def _measured(condition: str, verdict: Verdict, text: str, *names: str) -> Judgement:
    places = tuple(name if name in SOURCES else f"docs/results/{_study(name).name}" for name in names)
    return Judgement(condition, verdict, text, "measured here", places)


def _at(study: Study, row: str, times: int) -> str:
    return estimate(study.rows[row].means[times * study.train_length], study)


def _rise(study: Study, row: StudyRow) -> str:
    change = over_length(row)
    return f"{estimate((change.mean, change.low, change.high), study, signed=True)} at {study.longest} times"


@cache
def rules_of_thumb() -> dict[str, tuple[Judgement, ...]]:
    """Judgements by encoding, a name of the catalogue.

    >>> [judgement.verdict for judgement in rules_of_thumb()["learned"]]
    ['true', 'true', 'true', 'true']
    """
    text, quick, extension, real = _study("text"), _study("quick"), _study("extension"), _study("smollm2")
    passkey, recall, counting = _study("passkey"), _study("recall"), _study("counting")
    small = f"small models trained on 64 bytes, {text.rows['rope'].seeds} trainings"
    extended = f"small models trained at 64 bytes, {extension.rows['rope'].seeds} trainings"
    short = next(c for c in extension.rows["yarn@16"].at_first if c.against == "rope")
    four = next(c for c in real.rows["yarn@4"].at_first if c.against == "rope")
    lost = over_length(passkey.rows["alibi"])
    static = estimate((short.mean, short.low, short.high), extension, signed=True)
    static_real = estimate((four.mean, four.low, four.high), real, signed=True)
    alibi_keys = estimate((lost.mean, lost.low, lost.high), passkey, signed=True)
    alibi = (
        f"Its loss hardly rises ({_rise(text, text.rows['alibi'])} the training length; {small}), because far tokens "
        f"hardly count; passkey retrieval changes by {alibi_keys} points over the same lengths "
        f"({passkey.rows['alibi'].seeds} trainings)."
    )
    define = {name: _by_definition(name) for name in (
        "sinusoidal", "learned", "rope", "alibi", "t5", "yarn", "ntk", "longrope", "fire", "resonance", "cope", "clex",
        "multiscale",
    )}  # fmt: skip
    return {
        "sinusoidal": (
            _practice("a standard encoder-decoder",
                 "The first one had it; T5 has a bias by distance and newer ones have RoPE.",
                 "sinusoid", "t5", "t5gemma", verdict="depends"),
            define["sinusoidal"]("deterministic positions", "It has no parameters, and nothing is drawn at random."),
            _measured("the training length is enough", "true",
                 f"And only then: its loss rises by {_rise(quick, quick.rows['sinusoidal'])} the training length, in "
                 "bits a byte (one small model trained on 64 bytes; it had learned little).", "quick"),
            define["sinusoidal"]("no parameters", "It has none."),
        ),
        "learned": (
            _practice("established architectures such as GPT-2 and BERT", "Both have a table, of 1,024 and 512 rows.",
                      "gpt2", "bert"),
            define["learned"]("trained and used at one length", "It is undefined beyond its table."),
            define["learned"]("its parameters can be afforded", "It has one vector for each position."),
            define["learned"]("no extrapolation is needed", "There is none: rows that were never trained mean nothing.")
                                                            ,
        ),
        "rope": (
            _practice("a decoder-only language model", "Llama 3, Qwen2.5, DeepSeek-V3 and Gemma 3 have it.", "llama3",
                      "qwen25", "deepseek_v3", "gemma3"),
            define["rope"]("relative positions without a bias on the scores",
                 "It rotates queries and keys, so that positions enter their dot product only by their difference."),
            _measured("interpolates well", "depends",
                 "On the method, and on training: at twice the training length, without training, position "
                 f"interpolation has {_at(extension, 'pi', 2)} bits a byte, YaRN {_at(extension, 'yarn', 2)}, and the "
                 f"model at its training length {_at(extension, 'rope', 1)} ({extended}).", "extension"),
            _practice("can be extended later", "Released models were: Llama 3.1, Qwen3, gpt-oss.", "llama31",
                      "qwen3_card", "gpt_oss"),
        ),
        "alibi": (
            _measured("excellent extrapolation out of the box", "depends", f"Of the loss, not of retrieval. {alibi}",
                      "text", "passkey"),
            _measured("zero-shot generalization to longer sequences", "depends", f"On what must generalize. {alibi}",
                      "text", "passkey"),
            define["alibi"]("simplicity, no learned parameters", "One fixed slope for each head."),
            _practice("trained short, used long",
                 "Its authors train at 1,024 tokens and read 2,048 and more with low perplexity; they do not test "
                 "retrieval. MPT and BLOOM have it.", "alibi", "mpt", "bloom",
                      verdict="depends"),
        ),
        "t5": (
            _practice("an encoder-decoder", "T5 has it; newer ones have RoPE (T5Gemma).", "t5", "t5gemma"),
            define["t5"]("learned relative biases", "One learned number for each head and bucket of distances."),
            define["t5"]("trained with texts of various lengths",
                 "Buckets that no training distance reached are not trained, and all distances beyond the last bucket "
                 "share one number.", "depends"),
            define["t5"]("its parameters can be afforded",
                 "Heads times buckets: 12 × 32 numbers in a model of 12 heads."),
        ),
        "yarn": (
            _practice("an existing RoPE model needs a longer context",
                 "It is what Qwen3's card documents, and what DeepSeek-V3 was extended with.",
                 "qwen3_card", "deepseek_v3"),
            define["yarn"]("smooth interpolation and extrapolation",
                 "Fast pairs keep their frequency, slow ones are interpolated, with a ramp between them."),
            _measured("short-context performance is preserved", "false",
                 f"Not with a static factor: fixed for 16 times the training length it costs {static} bits a byte at "
                 f"the training length ({extended}). For SmolLM2-135M the price of factor 4 at its 8,192 tokens is "
                 f"inconclusive ({static_real} nats, three documents). Qwen3's card warns of it.",
                                                                         "extension", "smollm2"),
            _practice("it can be fine-tuned on longer sequences",
                 "A few hundred steps in its paper, two phases of 1,000 steps in DeepSeek-V3.", "yarn", "deepseek_v3"),
        ),
        "ntk": (
            _measured("context extension at once, without fine-tuning", "depends",
                 f"On the factor: {_at(extension, 'ntk', 2)} bits a byte at twice the training length, "
                 f"{_at(extension, 'ntk', 4)} at four times, {_at(extension, 'rope', 1)} at the training length "
                 f"({extended}).", "extension"),
            define["ntk"]("non-uniform frequency scaling", "The base grows, so that slow pairs are scaled more."),
            _measured("2 to 8 times the length", "depends",
                 f"On the model. In small ones it fails: {_at(extension, 'ntk', 8)} bits a byte at eight times, where "
                 f"YaRN has {_at(extension, 'yarn', 8)} ({extended}). In large ones it was not tested here.",
                 "extension"),
            define["ntk"]("little budget", "No training, no parameters, no cost at run time."),
        ),
        "longrope": (
            _untested("a hundred times the length or more",
                 "Its authors report two million tokens; nothing here was extended as far.",
                 "longrope"),
            define["longrope"]("a search can be afforded", "Its factors are searched on the model's own loss."),
            define["longrope"]("separate factors for short and long texts", "It has a short and a long list."),
            _practice("progressive fine-tuning can be afforded",
                 "Its authors fine-tune in stages and search again; Phi-3's 128k models carry such factors.",
                 "longrope", "phi3"),
        ),
        "fire": (
            _measured("excellent length generalization", "depends",
                 f"On the task: recall changes by {_rise(recall, recall.rows['fire'])} the training length, counting "
                 f"by {_rise(counting, counting.rows['fire'])}, in points ({recall.rows['fire'].seeds} trainings). Its "
                 "authors report good results on larger models.",
                                                                    "recall", "counting", "fire"),
            define["fire"]("learned relative positions", "A small network maps a normalised distance to a bias."),
            define["fire"]("a function instead of a table",
                 "A small network of the normalised distance replaces the table."),
            define["fire"]("a small network's cost",
                 "It runs for every pair of positions; see the page for what posenc computes instead."),
        ),
        "resonance": (
            _untested("RoPE or YaRN that degrades at long context",
                 "Its authors report gains; no record here compares YaRN with and without it.", "resonance"),
            define["resonance"]("no interference of wavelengths",
                 "There is none to remove: whole wavelengths make the angles of a pair repeat exactly, and only if "
                 "they fit the training length.", "false"),
            define["resonance"]("clean periods over very long texts",
                 "For pairs whose wavelength fits the training length; the others, which fail first, gain nothing.",
                 "depends"),
            define["resonance"]("together with other scalings", "It rounds whatever wavelengths they give."),
        ),
        "cope": (
            define["cope"]("positions that depend on content", "A gate of query and key decides which tokens count."),
            _untested("structured data such as code",
                 "The recorded models of Python sources are not shown to use context that far."),
            define["cope"]("positions that adapt to structure", "They count what the gates let through."),
            _measured("both content and position", "depends",
                 f"On the task: in counting it changes by {_rise(counting, counting.rows['cope'])} the training "
                 f"length, in points ({counting.rows['cope'].seeds} trainings; whether within 2 points of no change "
                 "is inconclusive). Recall it did not learn in the steps given.",
                 "counting", "recall"),
        ),
        "clex": (
            define["clex"]("learned, continuous scaling", "A differential equation of the factor, learned."),
            _untested("any length",
                 "No record here follows its recipe (positions drawn in training, clipping).",
                 "clex"),
            define["clex"]("its training can be afforded",
                 "Untrained it is NTK-aware scaling; training bends the path of the frequencies."),
            define["clex"]("diverse training lengths", "Its training draws a factor for each batch."),
        ),
        "multiscale": (
            define["multiscale"]("other frequencies in each head", "Each head has a base of its own."),
            _untested("local and global patterns at once", "No comparison here asks for both at once."),
            _untested("models of several resolutions", "No comparison here has several resolutions."),
            define["multiscale"]("frequencies can be set for each head",
                 "Grouped queries share the base of their key head."),
        ),
    }  # fmt: skip

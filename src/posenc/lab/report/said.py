"""What is often said of positional encodings, by whom, and how runs are asked for it."""

from __future__ import annotations

from posenc.lab.report.checks import also, better, gains, harmless, keeps, loses, serves, unmoved
from posenc.lab.report.claims import Claim

SHORT = "The source trains far longer, and larger models."
STRETCHED = "extension checkpoint"  # a small model and a given one, both read past their trained length
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Sinusoidal positions may extrapolate to longer sequences than were trained.",
        "Vaswani et al., arXiv 1706.03762, section 3.5", "text", keeps("sinusoidal"),
    ),
    Claim(
        "Sinusoidal and rotary positions do not extrapolate.",
        "Press et al., arXiv 2108.12409, section 2.2", "text",
        also(loses("sinusoidal"), loses("rope")),
    ),
    Claim("RoPE is flexible in sequence length.", "Su et al., arXiv 2104.09864, abstract", "text", keeps("rope")),
    Claim("ALiBi reads past its trained length.", "Press et al., arXiv 2108.12409, abstract", "text", keeps("alibi")),
    Claim(
        "T5's bias extrapolates better than sinusoidal and rotary positions.",
        "Press et al., arXiv 2108.12409, section 2.2", "text", better("t5", "sinusoidal", "rope"),
    ),
    Claim(
        "Clipped relative positions generalise to sequence lengths that were not trained.",
        "Shaw et al., arXiv 1803.02155, section 3.2", "text", keeps("shaw"),
    ),
    Claim(
        "Transformer-XL's relative positions generalise to longer attention than was trained.",
        "Dai et al., arXiv 1901.02860, section 1", "text", keeps("transformer_xl"),
        "The source trains with a memory of the segment before, which is left out here.",
    ),
    Claim(
        "KERPLE's logarithmic kernel extrapolates.", "Chi et al., arXiv 2205.09921, abstract", "text", keeps("kerple")
    ),
    Claim(
        "Sandwich uses what lies farther back than was trained.",
        "Chi et al., arXiv 2212.10356, abstract", "text", gains("sandwich"), SHORT,
    ),
    Claim(
        "FIRE generalises to longer texts better than T5, ALiBi and KERPLE.",
        "Li et al., arXiv 2310.04418, abstract", "text", better("fire", "t5", "alibi", "kerple"), SHORT,
    ),
    Claim(
        "xPos extrapolates better than RoPE.", "Sun et al., arXiv 2212.10554, abstract", "text", better("xpos", "rope"),
        "The source tests with block-wise causal attention, which is left out here.",
    ),
    Claim(
        "Rounding RoPE's wavelengths to whole tokens helps past the trained length.",
        "Wang et al., arXiv 2403.00071, abstract", "text", better("resonance", "rope"),
        "The source rounds what was trained with long texts, or extended by YaRN.",
    ),
    Claim(
        "RoPE without its lowest frequencies is the better model.",
        "Barbero et al., arXiv 2410.06205, abstract", "text", better("proportional", "rope", times=1), SHORT,
    ),
    Claim(
        "DAPE is better on long text than encodings that do not adapt to the input.",
        "Zheng et al., arXiv 2405.14722, abstract", "text", better("dape", "alibi", "kerple", "fire"), SHORT,
    ),
    Claim("PaTH models text better than RoPE.", "Yang et al., arXiv 2505.16381, abstract", "text",
          better("path", "rope", times=1), SHORT),
    Claim(
        "With a forget gate, texts are read past the trained length without positions.",
        "Lin et al., arXiv 2503.02130, abstract", "text", keeps("fox"),
    ),
    Claim(
        "Stick-breaking attention gets better with texts longer than were trained.",
        "Tan et al., arXiv 2410.17980, abstract", "text", gains("stick-breaking"), SHORT,
    ),
    Claim(
        "Softmax that grows with log n, learned, generalises better to length.",
        "Nakanishi, arXiv 2501.19399, abstract", "text", better("rope+ssmax", "rope"), SHORT,
    ),
    Claim(
        "Logits times log n generalise better from short to longer inputs.",
        "Chiang and Cholak, arXiv 2202.12172, abstract", "text", better("rope+log_n", "rope"),
        "The source learns formal languages, and translates.",
    ),
    Claim(
        "Layers without positions among layers of RoPE under a window are better at length than RoPE.",
        "Yang et al., arXiv 2501.18795, abstract", "text", better("rope@16/nope:4", "rope"),
    ),
    Claim(
        "A sink in every layer does no harm where it is trained.", "Xiao et al., arXiv 2309.17453, section 4.2",
        "text", harmless("rope+sink", "rope"), "The source trains a token as a sink, not a logit a head.",
    ),
    Claim("PoPE models text better than RoPE.", "Gopalakrishnan et al., arXiv 2509.10534, abstract", "text",
          better("pope", "rope", times=1), SHORT),
    Claim(
        "PoPE reads past the trained length as it is.", "Gopalakrishnan et al., arXiv 2509.10534, abstract", "text",
        keeps("pope"), SHORT,
    ),
    Claim(
        "FoPE is steadier over lengths of text than RoPE and ALiBi.", "Hua et al., arXiv 2412.17739, abstract", "text",
        better("fope", "rope", "alibi"), SHORT,
    ),
    Claim(
        "Softly clipping RoPE's lowest frequencies helps long texts.", "Li et al., arXiv 2602.05258, abstract", "text",
        better("clipped", "rope"), "The source clips trained models, and trains them further on long texts.",
    ),
    Claim(
        "Heads that score by the imaginary part of RoPE's product are worth more than RoPE's.",
        "Liu et al., arXiv 2512.07525, abstract", "text", better("rope_pp", "rope", times=1), SHORT,
    ),
    Claim(
        "Position states that layers change by content (TAPE) model text better than fixed positions.",
        "Zhu et al., arXiv 2501.00712, abstract", "text", better("tape", "rope", "alibi", times=1), SHORT,
    ),
    Claim(
        "Rotations that tokens choose are better than RoPE's.", "Movahedi et al., arXiv 2511.17388, abstract",
        "text", better("selective_rope", "rope", times=1), "The source gives them to transformers with forget gates.",
    ),
    Claim(
        "CoPE solves counting, where popular encodings fail.", "Golovneva et al., arXiv 2405.18719, abstract",
        "counting", also(keeps("cope"), better("cope", "rope")),
    ),
    Claim(
        "CoPE solves flip-flops, where popular encodings fail.", "Golovneva et al., arXiv 2405.18719, abstract",
        "flipflop", also(keeps("cope"), better("cope", "rope")),
    ),
    Claim("PaTH keeps a state over length better than RoPE.", "Yang et al., arXiv 2505.16381, section on experiments",
          "flipflop", better("path", "rope")),
    Claim(
        "Transformers make errors on long flip-flops.", "Liu et al., arXiv 2306.00946, abstract", "flipflop",
        loses("rope"),
    ),
    *(
        Claim(
            f"Without positions, small tasks generalise to length better than with RoPE, ALiBi or T5's bias: {task}.",
            "Kazemnejad et al., arXiv 2305.19466, abstract", task, better("nope", "rope", "alibi", "t5"),
            "The source asks other tasks.",
        )
        for task in ("passkey", "recall", "counting", "copy")
    ),
    Claim(
        "With a forget gate, a needle far back is still found.", "Lin et al., arXiv 2503.02130, abstract", "passkey",
        keeps("fox"),
    ),
    Claim(
        "Abacus embeddings add numbers far longer than were trained.", "McLeish et al., arXiv 2405.17399, abstract",
        "addition", keeps("abacus"), "The source trains longer, and lets layers recur.",
    ),
    Claim(
        "After a short training, position interpolation extends a model many times.",
        "Chen et al., arXiv 2306.15595, abstract", "extension", serves("pi+tuned", 8),
        "The source trains larger models, and for more than the 150 steps here.",
    ),
    Claim(
        "NTK-aware scaling extends without training.", "bloc97 (2023), in Peng et al., arXiv 2309.00071, section 3.1",
        "extension", serves("ntk", 4), SHORT,
    ),
    Claim(
        "NTK-aware scaling that follows the text extends without training.",
        "emozilla (2023), in Peng et al., arXiv 2309.00071, section 3.3", "checkpoint", serves("dynamic_ntk", 2),
    ),
    Claim(
        "YaRN that follows the text extends to twice the trained length and more without training.",
        "Peng et al., arXiv 2309.00071, section 1", STRETCHED, serves("yarn", 2), SHORT,
    ),
    Claim(
        "YaRN extends a model better than position interpolation.", "Peng et al., arXiv 2309.00071, abstract",
        "extension", better("yarn+tuned", "pi+tuned", times=8, learnt=False),
    ),
    Claim(
        "LongRoPE's searched factors extend 8 times without training.", "Ding et al., arXiv 2402.13753, abstract",
        "extension", serves("longrope", 8), SHORT,
    ),
    Claim(
        "CLEX reads 4 times farther than it was trained.", "Chen et al., arXiv 2310.16450, abstract", "extension",
        serves("clex+tuned", 32), "The source draws other positions in training, and clips less.",
    ),
    Claim(
        "Self-Extend reads longer texts without training.", "Jin et al., arXiv 2401.01325, abstract", STRETCHED,
        serves("self_extend", 4),
    ),
    Claim(
        "ReRoPE reads texts of any length without training.", "Su (2023), kexue.fm 9708", "extension",
        serves("rerope", 16), SHORT,
    ),
    Claim(
        "Leaky ReRoPE reads longer texts without training.", "Su (2023), kexue.fm 9708", "extension",
        serves("leaky_rerope", 16), SHORT,
    ),
    Claim(
        "Dual chunk attention reads texts tens of times longer without training.",
        "An et al., arXiv 2402.17463, abstract", "extension", serves("dual_chunk", 16), SHORT,
    ),
    Claim(
        "Shifting far distances to frequent ones (STRING) makes a model better within its trained length.",
        "An et al., arXiv 2410.18745, abstract", "extension", better("string", "rope", times=1),
        "The source asks what lies far back of models whose longest distances were rare in training.",
    ),
    Claim(
        "LM-Infinite's mask and limit of distances keep a model fluent at any length.",
        "Han et al., arXiv 2308.16137, abstract", STRETCHED, serves("lm_infinite", 16, 4),
    ),
    Claim(
        "A window and the first tokens (StreamingLLM) keep a model stable at any length.",
        "Xiao et al., arXiv 2309.17453, abstract", STRETCHED, serves("streaming_llm", 16, 4),
    ),
    Claim(
        "ComRoPE's rotations commute, so that a constant added to all positions changes nothing.",
        "Yu et al., arXiv 2506.03737, abstract", "images", unmoved("comrope_ap", "+20"),
    ),
    Claim(
        "LieRE's rotations need not commute: a constant added to all positions changes what is seen.",
        "Ostmeier et al., arXiv 2406.10322, section on the method", "images", unmoved("liere", "+20", opposite=True),
        "What is learnt may come to commute.",
    ),
)  # fmt: skip

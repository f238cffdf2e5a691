"""Claims of the literature about positional encodings, each with its source and its test."""

from __future__ import annotations

from posenc.lab.report.claims import Claim, better, both, gains, harmless, keeps, loses, serves, unmoved

TEXT, EXTENSION, CHECKPOINT = ("text",), ("extension",), ("checkpoint",)
EXTENDED = (*EXTENSION, *CHECKPOINT)  # a small model and a released one, both tested beyond their training length
SHORT = "The source trains larger models, and far longer."
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Sinusoidal positions may extrapolate to sequences longer than those seen in training.",
        "Vaswani et al., arXiv 1706.03762, section 3.5", TEXT, keeps("sinusoidal"),
    ),
    Claim(
        "Sinusoidal and rotary positions do not extrapolate.",
        "Press et al., arXiv 2108.12409, section 2.2", TEXT,
        both(loses("sinusoidal"), loses("rope")),
    ),
    Claim(
        "ALiBi extrapolates beyond its training length.",
        "Press et al., arXiv 2108.12409, abstract", TEXT, keeps("alibi"),
    ),
    Claim(
        "T5's bias extrapolates better than sinusoidal and rotary positions.",
        "Press et al., arXiv 2108.12409, section 2.2", TEXT, better("t5", "sinusoidal", "rope"),
    ),
    Claim(
        "Clipped relative positions generalise to sequence lengths not seen in training.",
        "Shaw et al., arXiv 1803.02155, section 3.2", TEXT, keeps("shaw"),
    ),
    Claim(
        "Transformer-XL's relative positions generalise to attention lengths longer than those seen in training.",
        "Dai et al., arXiv 1901.02860, section 1", TEXT, keeps("transformer_xl"),
        "The source trains with a memory of the previous segment, which these runs do not have.",
    ),
    Claim(
        "KERPLE's logarithmic kernel extrapolates.", "Chi et al., arXiv 2205.09921, abstract", TEXT, keeps("kerple")
    ),
    Claim(
        "Sandwich uses context beyond its training length.",
        "Chi et al., arXiv 2212.10356, abstract", TEXT, gains("sandwich"), SHORT,
    ),
    Claim(
        "FIRE generalises to longer contexts better than T5, ALiBi and KERPLE.",
        "Li et al., arXiv 2310.04418, abstract", TEXT, better("fire", "t5", "alibi", "kerple"), SHORT,
    ),
    Claim(
        "xPos extrapolates better than RoPE.", "Sun et al., arXiv 2212.10554, abstract", TEXT, better("xpos", "rope"),
        "The source tests with block-wise causal attention, which these runs do not use.",
    ),
    Claim(
        "Rounding RoPE's wavelengths to whole tokens helps beyond the training length.",
        "Wang et al., arXiv 2403.00071, abstract", TEXT, better("resonance", "rope"),
        "The source rounds the wavelengths of models that were trained on long contexts or extended by YaRN.",
    ),
    Claim(
        "RoPE without its lowest frequencies is the better model.",
        "Barbero et al., arXiv 2410.06205, abstract", TEXT, better("proportional", "rope", times=1), SHORT,
    ),
    Claim(
        "DAPE is better at long context than encodings that do not adapt to the input.",
        "Zheng et al., arXiv 2405.14722, abstract", TEXT, better("dape", "alibi", "kerple", "fire"), SHORT,
    ),
    Claim("PaTH models text better than RoPE.", "Yang et al., arXiv 2505.16381, abstract", TEXT,
          better("path", "rope", times=1), SHORT),
    Claim(
        "With a forget gate, models extrapolate beyond the training length without positions.",
        "Lin et al., arXiv 2503.02130, abstract", TEXT, keeps("fox"),
    ),
    Claim(
        "Stick-breaking attention gets better beyond its training length.",
        "Tan et al., arXiv 2410.17980, abstract", TEXT, gains("stick-breaking"), SHORT,
    ),
    Claim(
        "A softmax scaled by a learned factor of log n generalises better to length.",
        "Nakanishi, arXiv 2501.19399, abstract", TEXT, better("rope+ssmax", "rope"), SHORT,
    ),
    Claim(
        "Attention logits times log n generalise better from short to longer inputs.",
        "Chiang and Cholak, arXiv 2202.12172, abstract", TEXT, better("rope+log_n", "rope"),
        "The source learns formal languages and translation.",
    ),
    Claim(
        "NoPE layers between windowed RoPE layers are better at long context than RoPE.",
        "Yang et al., arXiv 2501.18795, abstract", TEXT, better("rope@16/nope:4", "rope"),
    ),
    Claim(
        "A sink in every layer does no harm at the training length.", "Xiao et al., arXiv 2309.17453, section 4.2",
        TEXT, harmless("rope+sink", "rope"), "The source trains a token as a sink, not one logit per head.",
    ),
    Claim("PoPE models text better than RoPE.", "Gopalakrishnan et al., arXiv 2509.10534, abstract", TEXT,
          better("pope", "rope", times=1), SHORT),
    Claim(
        "PoPE extrapolates beyond its training length without changes.",
        "Gopalakrishnan et al., arXiv 2509.10534, abstract", TEXT,
        keeps("pope"), SHORT,
    ),
    Claim(
        "FoPE is more stable over context lengths than RoPE and ALiBi.", "Hua et al., arXiv 2412.17739, abstract", TEXT,
        better("fope", "rope", "alibi"), SHORT,
    ),
    Claim(
        "Softly clipping RoPE's lowest frequencies helps at long context.",
        "Li et al., arXiv 2602.05258, abstract", TEXT,
        better("clipped", "rope"), "The source clips trained models and fine-tunes them on long contexts.",
    ),
    Claim(
        "Heads that score by the imaginary part of RoPE's dot product improve on RoPE.",
        "Liu et al., arXiv 2512.07525, abstract", TEXT, better("rope_pp", "rope", times=1), SHORT,
    ),
    Claim(
        "Input-dependent rotations are better than RoPE's.", "Movahedi et al., arXiv 2511.17388, abstract",
        TEXT, better("selective_rope", "rope", times=1), "The source adds them to transformers with forget gates.",
    ),
    Claim(
        "CoPE solves counting, where popular encodings fail.", "Golovneva et al., arXiv 2405.18719, abstract",
        ("counting",), both(keeps("cope"), better("cope", "rope")),
    ),
    Claim(
        "CoPE solves flip-flops, where popular encodings fail.", "Golovneva et al., arXiv 2405.18719, abstract",
        ("flipflop",), both(keeps("cope"), better("cope", "rope")),
    ),
    Claim(
        "PaTH tracks state over long sequences better than RoPE.",
        "Yang et al., arXiv 2505.16381, section on experiments", ("flipflop",), better("path", "rope"),
    ),
    Claim(
        "Transformers make errors on long flip-flops.", "Liu et al., arXiv 2306.00946, abstract", ("flipflop",),
        loses("rope"),
    ),
    *(
        Claim(
            f"Without positions, small tasks generalise to length better than with RoPE, ALiBi or T5's bias: {task}.",
            "Kazemnejad et al., arXiv 2305.19466, abstract", (task,), better("nope", "rope", "alibi", "t5"),
            "The source uses other tasks.",
        )
        for task in ("passkey", "recall", "counting", "copy")
    ),
    Claim(
        "With a forget gate, distant needles are still retrieved.",
        "Lin et al., arXiv 2503.02130, abstract", ("passkey",),
        keeps("fox"),
    ),
    Claim(
        "Abacus embeddings add numbers far longer than those seen in training.",
        "McLeish et al., arXiv 2405.17399, abstract",
        ("addition",), keeps("abacus"), "The source trains longer and uses recurrent layers.",
    ),
    Claim(
        "After a short fine-tuning, position interpolation extends a model's context many times.",
        "Chen et al., arXiv 2306.15595, abstract", EXTENSION, serves("pi+tuned", 8),
        "The source fine-tunes larger models, for more than the 150 steps here.",
    ),
    Claim(
        "NTK-aware scaling extends the context without fine-tuning.",
        "bloc97 (2023), in Peng et al., arXiv 2309.00071, section 3.1",
        EXTENSION, serves("ntk", 4), SHORT,
    ),
    Claim(
        "Dynamic NTK-aware scaling extends the context without fine-tuning.",
        "emozilla (2023), in Peng et al., arXiv 2309.00071, section 3.3", CHECKPOINT, serves("dynamic_ntk", 2),
    ),
    Claim(
        "Dynamic YaRN extends the context to twice the training length and more without fine-tuning.",
        "Peng et al., arXiv 2309.00071, section 1", EXTENDED, serves("yarn", 2), SHORT,
    ),
    Claim(
        "YaRN extends a model better than position interpolation.", "Peng et al., arXiv 2309.00071, abstract",
        EXTENSION, better("yarn+tuned", "pi+tuned", times=8, must_learn=False),
    ),
    Claim(
        "A model whose rotation is dropped after training needs no long texts for longer contexts, after a short "
        "recalibration at its training length.",
        "Gelberg et al., arXiv 2512.12167, abstract", EXTENSION, serves("drope+continued", 4), SHORT,
    ),
    Claim(
        "A model whose rotation is dropped and that is recalibrated is better at longer contexts than scaled RoPE "
        "without training.",
        "Gelberg et al., arXiv 2512.12167, abstract", EXTENSION,
        better("drope+continued", "pi", "ntk", "yarn", times=8), SHORT,
    ),
    Claim(
        "LongRoPE's searched factors extend the context 8 times without fine-tuning.",
        "Ding et al., arXiv 2402.13753, abstract",
        EXTENSION, serves("longrope", 8), SHORT,
    ),
    Claim(
        "CLEX extrapolates to 4 times the length of its fine-tuning.",
        "Chen et al., arXiv 2310.16450, abstract", EXTENSION,
        serves("clex+tuned", 32), "The source samples other positions in training and clips less.",
    ),
    Claim(
        "Self-Extend extends the context without fine-tuning.", "Jin et al., arXiv 2401.01325, abstract", EXTENDED,
        serves("self_extend", 4),
    ),
    Claim(
        "ReRoPE extends the context to any length without fine-tuning.", "Su (2023), kexue.fm 9708", EXTENSION,
        serves("rerope", 16), SHORT,
    ),
    Claim(
        "Leaky ReRoPE extends the context without fine-tuning.", "Su (2023), kexue.fm 9708", EXTENSION,
        serves("leaky_rerope", 16), SHORT,
    ),
    Claim(
        "Dual chunk attention extends the context tens of times without fine-tuning.",
        "An et al., arXiv 2402.17463, abstract", EXTENSION, serves("dual_chunk", 16), SHORT,
    ),
    Claim(
        "Shifting large distances to frequent ones (STRING) makes a model better within its training length.",
        "An et al., arXiv 2410.18745, abstract", EXTENSION, better("string", "rope", times=1),
        "The source tests distant context in models whose longest distances were rare in training.",
    ),
    Claim(
        "LM-Infinite's mask and distance limit keep a model fluent at any length.",
        "Han et al., arXiv 2308.16137, abstract", EXTENDED, serves("lm_infinite", 16, 4),
    ),
    Claim(
        "A sliding window plus the first tokens (StreamingLLM) keep a model stable at any length.",
        "Xiao et al., arXiv 2309.17453, abstract", EXTENDED, serves("streaming_llm", 16, 4),
    ),
    Claim(
        "ComRoPE's rotations commute, so that a constant added to all positions changes nothing.",
        "Yu et al., arXiv 2506.03737, abstract", ("images",), unmoved("comrope_ap", "+20"),
    ),
    Claim(
        "LieRE's rotations need not commute: a constant added to all positions changes the result.",
        "Ostmeier et al., arXiv 2406.10322, section on the method", ("images",), unmoved("liere", "+20", opposite=True),
        "Learned rotations may come to commute.",
    ),
)  # fmt: skip

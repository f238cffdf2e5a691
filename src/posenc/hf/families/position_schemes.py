"""Position encodings of models that do not rotate queries and keys, in words and as the class of posenc.

A scheme names the config keys of its numbers, with the defaults of transformers' config class: the rows of a learned
table (`Table`, `PatchTable`), the buckets of a relative bias (`Buckets`). `posenc.hf.config.text_config` fills them in.

Source: the modelling files of transformers 5.23; transfo-xl: version 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Table:
    """A learned table with one row a position.

    Attributes:
        default: rows, or positions where ``extra`` is given, that the config class has; 0: as its instances do.
        key: config key of that number.
        extra: rows that the code adds to the number under ``key``, in front of the first position.
        padding: default of ``pad_token_id``, where positions start behind that row (RoBERTa), so that no position reads
            the rows up to it; None: positions start at the first row.
    """

    default: int
    key: str = "max_position_embeddings"
    extra: int = 0
    padding: int | None = None


@dataclass(frozen=True)
class PatchTable:
    """A learned table with one row a patch of an image, after a prefix of tokens such as the class token.

    Attributes:
        image_size, patch_size: defaults, in pixels; a pair is height and width; 0: as the config class has.
        prefix: rows before the rows of the patches.
        prefix_key: key of further rows next to the patches, and ``prefix_default`` its default.
        parent: key of the object that holds ``image_size`` and ``patch_size``, "" for the config itself.
        count_key: key of the number of patches, where the config gives it and no size of an image.
    """

    image_size: int | tuple[int, int]
    patch_size: int | tuple[int, int]
    prefix: int = 0
    prefix_key: str = ""
    prefix_default: int = 0
    parent: str = ""
    count_key: str = ""


@dataclass(frozen=True)
class Buckets:
    """Buckets of the distance, as T5 has them; an empty key means that the number is fixed in the code."""

    count: int = 32
    max_distance: int = 128
    count_key: str = "relative_attention_num_buckets"
    distance_key: str = "relative_attention_max_distance"


@dataclass(frozen=True)
class PositionScheme:
    """A position encoding that is no rotation.

    Attributes:
        text: what it is, for readers.
        builds: the call of posenc that builds it, "" where there is none. ``max_length``, ``(rows, columns)``,
            ``num_buckets`` and ``max_distance`` stand for the numbers of a config.
        table, patches, buckets: where those numbers stand.
        switched_by: keys of which one that is true turns the encoding on; empty: it is always there.
        on_by_default: whether it is on where none of the keys is given.
    """

    text: str
    builds: str = ""
    table: Table | None = None
    patches: PatchTable | None = None
    buckets: Buckets | None = None
    switched_by: tuple[str, ...] = ()
    on_by_default: bool = True

    def of(self, part: str) -> PositionScheme:
        """The same encoding in one part of a model."""
        return replace(self, text=f"{part}: {self.text}")

    def with_rows(self, default: int, key: str = "max_position_embeddings") -> PositionScheme:
        """The same encoding from a table of fixed length, past which there is nothing."""
        return replace(self, table=Table(default, key))

    def switched(self, *keys: str, default: bool = True) -> PositionScheme:
        """The same encoding, turned on by any of ``keys``."""
        return replace(self, switched_by=keys, on_by_default=default)


_LEARNED = "learned embeddings of the positions, added to the tokens'; there are none past the table"
_AFTER_PADDING = "learned embeddings of the positions; the first two rows of the table are not for positions of text"


def learned(default: int = 0, key: str = "max_position_embeddings") -> PositionScheme:
    """A learned table, as in BERT and GPT-2."""
    return PositionScheme(_LEARNED, "Learned(dim, max_length=max_length)", Table(default, key))


def learned_after_padding(default: int = 0, *, padding: int = 1) -> PositionScheme:
    """A learned table whose positions start behind the padding token's row, as in RoBERTa."""
    table = Table(default, padding=padding)
    return PositionScheme(_AFTER_PADDING, "Learned(dim, max_length=max_length, offset=2)", table)


def learned_with_offset(default: int = 0) -> PositionScheme:
    """A learned table with two rows in front of the rows of the positions, as in BART and OPT."""
    table = Table(default, extra=2)
    return PositionScheme(_AFTER_PADDING, "Learned(dim, max_length=max_length, offset=2)", table)


def learned_on_pages(default: int = 0, *, padding: int | None = None) -> PositionScheme:
    """A learned table of the positions in the text, and tables of the coordinates on a page."""
    scheme = learned(default) if padding is None else learned_after_padding(default, padding=padding)
    return replace(scheme, text=f"{scheme.text}; places on a page have tables of their own")


def patches(image_size: int | tuple[int, int] = 0, patch_size: int | tuple[int, int] = 0, *, prefix: int = 0,
            parent: str = "", prefix_key: str = "", prefix_default: int = 0,
            count_key: str = "") -> PositionScheme:  # fmt: skip
    """A learned table of the patches of an image, with ``prefix`` rows before them."""
    table = PatchTable(image_size, patch_size, prefix, prefix_key, prefix_default, parent, count_key)
    builds = "LearnedGrid(dim, size=(rows, columns), prefix=prefix)" if prefix else \
        "LearnedGrid(dim, size=(rows, columns))"  # fmt: skip
    return PositionScheme("learned embeddings of the patches of an image, resized for another image", builds,
                          patches=table)  # fmt: skip


PATCHES_UNSIZED = PositionScheme("learned embeddings of the patches of an image, resized for another image")


def t5_bias(*, each_layer: bool = False, buckets: Buckets = Buckets(),
            builds: str = "T5Bias(num_heads, num_buckets=num_buckets, max_distance=max_distance, bidirectional=True) "
                          "in the encoder, False in the decoder") -> PositionScheme:  # fmt: skip
    """T5's relative bias: one table for all layers, or a table for each layer."""
    where = "a table for each layer" if each_layer else "one table for all layers"
    text = f"T5's bias: a learned number for each head and bucket of the distance, {where}"
    return PositionScheme(text, builds, buckets=buckets)


_T5_IN_ONE = "T5Bias(num_heads, num_buckets=num_buckets, max_distance=max_distance{})"
T5_ENCODER = _T5_IN_ONE.format(", bidirectional=True")
T5_DECODER = _T5_IN_ONE.format("")
SINUSOIDAL = PositionScheme("sinusoidal embeddings of the positions, added to the tokens'", "Sinusoidal(dim)")
SINUSOIDAL_HALVES = replace(SINUSOIDAL, builds='Sinusoidal(dim, layout="half")')
SINUSOIDAL_FAIRSEQ = replace(SINUSOIDAL, builds='Sinusoidal(dim, layout="half", spacing="tensor2tensor")')
SINUSOIDAL_UNBUILT = replace(SINUSOIDAL, builds="")
ALIBI = PositionScheme("ALiBi: scores lose a slope times the distance", "ALiBi(num_heads)")
ALIBI_SCALED = replace(ALIBI, builds="ALiBi(num_heads, bias_scale=head_dim ** -0.5)")  # Falcon scales the biased scores
TRANSFORMER_XL = PositionScheme(
    "Transformer-XL's relative scores, from waves of the distance", "TransformerXL(dim, num_heads=num_heads)"
)
SHAW = PositionScheme(
    "learned vectors of the clipped distance in the scores, after Shaw",
    "Shaw(head_dim, max_distance=..., values=False)",
)
DISENTANGLED = PositionScheme("disentangled attention: content to distance and distance to content, by buckets")
SINUSOIDAL_PATCHES = PositionScheme("sinusoidal embeddings of the patches of an image", "SinusoidalGrid(dim)")
SWIN = PositionScheme("a learned bias for each offset within a window", "SwinBias(num_heads, window=window)")
LOG_CPB = PositionScheme(
    "a bias by a small network of the log offset within a window", "LogCPB(num_heads, axes=2, window=...)"
)
BEIT = PositionScheme(
    "a learned bias for each offset of patches, and for the class token", "BEiTBias(num_heads, window=window)"
)
BY_TOKEN = PositionScheme(
    "a bias of the distance whose numbers each query makes from its token, up to a longest distance"
)
CONVOLUTION = PositionScheme("a convolution over the tokens, added to them, tells their order")
RECURRENCE = PositionScheme("none: a recurrence reads the tokens in their order, and attention there is none")
NOPE = PositionScheme(
    "none in attention (NoPE); the recurrent layers between carry the order of tokens", "encodings=[]"
)
PIXELS = PositionScheme("none: convolutions see which pixels are neighbours")
AXIAL_TABLES = PositionScheme("learned axial embeddings: a table for each factor of the length, joined")
LATENTS = PositionScheme(
    "learned embeddings of its latents; inputs have Fourier features or a table, as the task wants"
)
FOURIER = PositionScheme(
    "Fourier features of the pixels behind their channels, at positions.signed(..., corners=True)",
    'SinusoidalGrid(258, family="perceiver", resolution=(224, 224), combine="concat")',
)
DECOMPOSED = PositionScheme(
    "a learned vector for each offset of rows and of columns, which each query reads",
    "DecomposedRelative(head_dim, window=window)",
)
RANDOM_FOURIER = PositionScheme(
    "random Fourier features of points, corners and the patches, at positions.signed", "RandomFourier(dim)"
)
_LAYOUT_CALL = "T5GridBias(num_heads, axes=3, num_buckets=(32, 64, 64), max_distance=(128, 256, 256){})"
LAYOUT_BIAS = PositionScheme(
    "T5's bias for the place in the text, for x and for y, one table an axis for all layers", _LAYOUT_CALL.format("")
)
LAYOUT_BIAS_SCALED = replace(LAYOUT_BIAS, builds=_LAYOUT_CALL.format(", bias_scale=head_dim**-0.5"))
UDOP_BIAS = replace(
    LAYOUT_BIAS,
    builds="T5GridBias(num_heads, axes=3, num_buckets=32, max_distance=(128, 100, 100), factor=(1, 100, 100)) in the "
    "encoder",
)
PAGE = PositionScheme("learned embeddings of places on a page, added to the tokens'")
SWITCHED_OFF = PositionScheme("none: no key of the configuration turns one on", "encodings=[]")


def resized_with_offset(scheme: PositionScheme) -> PositionScheme:
    """DINOv2's: its authors resize the table with an offset, transformers without."""
    return replace(scheme, text=f"{scheme.text}: resized(size, offset=0.1) as its authors do, without the offset here")


def resized_with_antialias(scheme: PositionScheme) -> PositionScheme:
    """DINOv2's with registers, which have no row of their own."""
    return replace(scheme, text=f"{scheme.text}: resized(size, antialias=True); registers have none")


def nearest(scheme: PositionScheme) -> PositionScheme:
    """Idefics': another image reads the nearest rows, and the table is not resized."""
    return replace(scheme, text="learned embeddings of the patches of an image; another image reads the nearest rows, "
                                "at positions.nearest")  # fmt: skip

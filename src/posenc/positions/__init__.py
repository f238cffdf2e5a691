"""Where tokens are: builders of positions and segments for the ways in which batches are laid out.

Positions are plain tensors: integers (exact) or float32/float64, ``(tokens,)`` or ``(batch, tokens)``; positions of
several coordinates add a last axis, of which the first coordinate moves slowest: (row, column), (frame, row, column).
Segments number the documents of a packed row: a query sees keys of its own segment only. Builders that count give
int64, those that measure floats, on the device of their argument.

Texts: `from_mask`, `from_segments`, `from_cu_seqlens`, `after`, `zigzag`, `abacus`. Any rows: `padded`, `packed`.
Pictures: `grid`, `block_order`, `windows`; then `centred`, `signed`, `spaced`, `rescaled`, `aligned`, `nearest`,
`cropped`; then `with_prefix`, `with_suffix`. Time: `seconds`, `video`, `on_all_axes`. Mixed streams: `stream`,
`from_token_ids`, `following`, and `multimodal` by the designs of papers. Training: `randomised`, `skipped`,
`perturbed`, `augmented`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from posenc.lazy_imports import lazy_names

if TYPE_CHECKING:
    from posenc.positions.batches import packed as packed
    from posenc.positions.batches import padded as padded
    from posenc.positions.blocks import block_order as block_order
    from posenc.positions.blocks import windows as windows
    from posenc.positions.checking import NO_POSITION as NO_POSITION
    from posenc.positions.designs import HOPE_STRIDES as HOPE_STRIDES
    from posenc.positions.designs import Circle as Circle
    from posenc.positions.designs import multimodal as multimodal
    from posenc.positions.grids import aligned as aligned
    from posenc.positions.grids import centred as centred
    from posenc.positions.grids import cropped as cropped
    from posenc.positions.grids import grid as grid
    from posenc.positions.grids import nearest as nearest
    from posenc.positions.grids import rescaled as rescaled
    from posenc.positions.grids import signed as signed
    from posenc.positions.grids import spaced as spaced
    from posenc.positions.parts import Audio as Audio
    from posenc.positions.parts import Image as Image
    from posenc.positions.parts import Text as Text
    from posenc.positions.parts import Video as Video
    from posenc.positions.perturbation import augmented as augmented
    from posenc.positions.perturbation import perturbed as perturbed
    from posenc.positions.perturbation import randomised as randomised
    from posenc.positions.prefix import with_prefix as with_prefix
    from posenc.positions.prefix import with_suffix as with_suffix
    from posenc.positions.skipping import Skipped as Skipped
    from posenc.positions.skipping import skipped as skipped
    from posenc.positions.streams import following as following
    from posenc.positions.streams import stream as stream
    from posenc.positions.text import abacus as abacus
    from posenc.positions.text import after as after
    from posenc.positions.text import from_cu_seqlens as from_cu_seqlens
    from posenc.positions.text import from_mask as from_mask
    from posenc.positions.text import from_segments as from_segments
    from posenc.positions.text import segments_from_cu_seqlens as segments_from_cu_seqlens
    from posenc.positions.text import zigzag as zigzag
    from posenc.positions.token_ids import from_token_ids as from_token_ids
    from posenc.positions.videos import on_all_axes as on_all_axes
    from posenc.positions.videos import seconds as seconds
    from posenc.positions.videos import video as video

HOMES = {  # the module of each name
    "posenc.positions.batches": "packed padded",
    "posenc.positions.blocks": "block_order windows",
    "posenc.positions.checking": "NO_POSITION",
    "posenc.positions.designs": "HOPE_STRIDES Circle multimodal",
    "posenc.positions.grids": "aligned centred cropped grid nearest rescaled signed spaced",
    "posenc.positions.parts": "Audio Image Text Video",
    "posenc.positions.perturbation": "augmented perturbed randomised",
    "posenc.positions.prefix": "with_prefix with_suffix",
    "posenc.positions.skipping": "Skipped skipped",
    "posenc.positions.streams": "following stream",
    "posenc.positions.text": "abacus after from_cu_seqlens from_mask from_segments segments_from_cu_seqlens zigzag",
    "posenc.positions.token_ids": "from_token_ids",
    "posenc.positions.videos": "on_all_axes seconds video",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, HOMES)

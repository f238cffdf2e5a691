"""Structures: the form of what an encoding adds to logits or weights, so that backends need no length × length matrix.

A score or weight encoding returns them in its method ``structure(context)``, next to the definition; a test of the
conformance suite holds statement and definition together. All of them speak of queries i that are the last tokens of
keys j in the order of the sequence, at distance n = i − j. Every tensor may carry gradients. A bias of positions states
``of_distance`` instead (a `Row`), `Network` or `Offsets`.

A structure is one class in a file of its own: its formula and its tensors, and what each kind of backend asks of it
(`Structure`). It adds itself to a tile of scores (``posenc.backends.tiles``); a score_mod computes it inside
FlexAttention; each has a refusal in words for calls in which that is not exact.

Axes of size 1 are shared: batch | 1, heads | 1. Gradients arrive in the same shapes.
"""

from posenc.structure.column import Column as Column
from posenc.structure.counts import Counts as Counts
from posenc.structure.decay import Decay as Decay
from posenc.structure.decay import gate_sums as gate_sums
from posenc.structure.head_mixing import HeadMixing as HeadMixing
from posenc.structure.interface import Bias as Bias
from posenc.structure.interface import ScoreMod as ScoreMod
from posenc.structure.interface import Structure as Structure
from posenc.structure.interface import TileContext as TileContext
from posenc.structure.interface import TileFacts as TileFacts
from posenc.structure.interface import Visible as Visible
from posenc.structure.lookup import Lookup as Lookup
from posenc.structure.low_rank import LowRank as LowRank
from posenc.structure.network import DistanceNetwork as DistanceNetwork
from posenc.structure.network import Network as Network
from posenc.structure.offsets import Offsets as Offsets
from posenc.structure.ranges import Factor as Factor
from posenc.structure.ranges import Range as Range
from posenc.structure.ranges import Ranges as Ranges
from posenc.structure.reflections import ReflectionProducts as ReflectionProducts
from posenc.structure.reflections import Reflections as Reflections
from posenc.structure.row import Row as Row
from posenc.structure.token_order import TokenOrder as TokenOrder
from posenc.structure.token_order import single_sequence as single_sequence
from posenc.structure.vectors import Vectors as Vectors
from posenc.structure.weights import Sink as Sink
from posenc.structure.weights import Sticks as Sticks

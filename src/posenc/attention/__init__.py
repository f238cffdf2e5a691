"""The one attention call. A path is a module with ``refuses(problem)`` and ``run(problem)``; `dense` is the definition.

Paths know the five places and the structures that an encoding states, never a concrete encoding.
"""

from posenc.attention.call import Explanation as Explanation
from posenc.attention.call import attention as attention
from posenc.attention.call import explain as explain

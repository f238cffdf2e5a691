"""The implementations behind the function `posenc.attention`.

A call is validated and written down once (`inputs.attention_call.AttentionCall`); each backend is a module with

    refuses(call)    why it should not serve the call, in words, or None
    strategy(call)   how it goes about the call, in words, for `posenc.explain`
    run(call)        the result, ``(batch, heads, queries, value_dim)`` in the dtype of q

`dense` is the definition, which every other backend equals in values and gradients up to rounding. `call.BACKENDS`
lists them, `preference` orders them by what was measured. Backends know hook points and the structures that encodings
state, never a concrete encoding.

Importing this package registers the operators that exported graphs call (`torch.export.load` needs them).
"""

from posenc.backends import call as call

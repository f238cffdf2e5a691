"""All checks in the order of the data flow, and `check_encoding`, which runs them over an encoding of yours."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from posenc.testing import (
    backends,
    compiling,
    decoding,
    errors,
    modules,
    positions,
    shapes,
)
from posenc.testing.cases import Case, Factory, applies

Check = Callable[[Case], None]

_ORDER: tuple[Check, ...] = (
    shapes.embedding_shapes,
    shapes.rotary_shapes,
    shapes.rotation_is_linear,
    shapes.bias_shapes,
    shapes.attention_shapes,
    shapes.dtype_in_dtype_out,
    shapes.autocast_changes_nothing,
    positions.explicit_positions,
    positions.positions_matter,
    positions.shuffled_positions,
    positions.offset_positions,
    positions.common_shift,
    positions.per_row_positions,
    positions.fractional_positions,
    positions.far_positions,
    positions.inputs_unharmed,
    positions.grids_of_any_shape,
    positions.tokens_without_a_place,
    decoding.decode_step_by_step,
    decoding.decode_in_chunks,
    decoding.decode_padded_batch,
    decoding.packed_documents,
    decoding.left_padding,
    decoding.batch_mates,
    decoding.no_trace_of_a_call,
    modules.bfloat16_round_trip,
    modules.meta_device,
    modules.reset_parameters,
    modules.patched_arange,
    modules.default_dtype,
    modules.double_parameters,
    modules.gradients,
    modules.state_dict_is_parameters,
    modules.strict_load,
    modules.deep_copy,
    modules.pickled,
    modules.readable,
    backends.distance_structure,
    backends.backends_equal_dense,
    backends.rows_without_keys,
    backends.weights_are_weights,
    backends.scores_are_read,
    errors.wrong_positions_raise,
    errors.inexact_positions_raise,
    errors.past_the_table_raises,
    errors.wrong_heads_raise,
    errors.wrong_widths_raise,
    errors.odd_head_dim_raises,
    errors.no_heads_raise,
    compiling.compiles_once,
    compiling.compiles_alone_with_inductor,
    compiling.compiles_with_inductor,
    compiling.exports,
)

CHECKS: Mapping[str, Check] = {check.__name__: check for check in _ORDER}
SLOW = frozenset({"compiles_alone_with_inductor", "compiles_with_inductor"})  # tens of seconds each


def check_encoding(
    make: Factory,
    *,
    exempt: Mapping[str, str] | None = None,
    slow: bool = False,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 8,
    max_length: int = 320,
    table_bound: bool = False,
) -> None:
    """Run the library's own conformance checks on an encoding of yours.

    Args:
        make: makes a new encoding, or a list of them, at each call: your class, or a function. It is handed those
            of the words num_heads, num_kv_heads, head_dim, value_dim, dim (num_heads · head_dim), max_length and
            train_length (32) that its signature has, so ``ALiBi`` and ``lambda: ALiBi(4)`` both serve.
        exempt: checks that do not hold for it, each with the reason: ``{"fractional_positions": "a table"}``.
        slow: whether to run the checks in `SLOW` too, which need a C++ compiler.
        num_heads, num_kv_heads, head_dim: the sizes of the checks, where ``make`` fixes others.
        max_length: positions that a table must have.
        table_bound: whether positions from ``max_length`` on must be refused.

    Raises:
        AssertionError: with one paragraph for each check that failed: its name, what it demands, what was found.
        ValueError: for a name in ``exempt`` that is no check.

    >>> from posenc import ALiBi
    >>> check_encoding(lambda num_heads: ALiBi(num_heads, slopes="geometric"))
    >>> class Growing(ALiBi):
    ...     def forward(self, q_pos, k_pos):  # divides by the number of keys: a decoding step gets another bias
    ...         return super().forward(q_pos, k_pos) / k_pos.shape[-1]
    >>> check_encoding(Growing)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    AssertionError: Growing: 8 of 41 checks failed
    """
    exempt = {} if exempt is None else exempt
    for name in exempt:
        if name not in CHECKS:
            raise ValueError(f"exempt: no check is named {name!r}: known are {', '.join(CHECKS)}")
    name = getattr(make, "__name__", type(make).__name__)
    case = Case(name, make, num_heads, num_kv_heads, head_dim, max_length, table_bound, exempt)
    todo = checks_for(case, slow=slow)
    failures = [failure for check in todo if (failure := verdict(check, case)) is not None]
    if failures:
        raise AssertionError("\n\n".join([f"{name}: {len(failures)} of {len(todo)} checks failed", *failures]))


def checks_for(case: Case, *, slow: bool = True) -> list[str]:
    """Names of the checks that a case must pass."""
    return [c for c in CHECKS if applies(c, case) and c not in case.exempt and (slow or c not in SLOW)]


def verdict(check: str, case: Case) -> str | None:
    """The message of a failing check, or None."""
    demand = (CHECKS[check].__doc__ or "").strip().splitlines()[0]
    try:
        CHECKS[check](case)
    except Exception as error:
        failure = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        return f"{check}\n  demands: {demand}\n  found:   {failure}"
    return None

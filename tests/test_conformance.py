"""Catalogue × checks: everything that `posenc.testing` demands, of every encoding; and that the checks can fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

import pytest
import torch

from posenc import DynamicNTK, YaRN
from posenc.bias import FIRE
from posenc.catalogue import CATALOGUE
from posenc.testing import CHECKS, SLOW, Case, applies, check_encoding, checks_for, verdict
from tests import broken

VARIANTS = (
    Case.from_catalogue("sinusoidal", {"layout": "half"}, variant="half"),
    Case.from_catalogue("sinusoidal", {"spacing": "tensor2tensor", "layout": "half"}, variant="tensor2tensor"),
    Case.from_catalogue("sinusoidal", {"combine": "concat"}, variant="concat"),
    Case.from_catalogue("learned", {"offset": 2}, variant="offset"),
    Case.from_catalogue("learned", {"layer_norm": 1e-12, "scale": 2.0}, variant="normed"),
    Case.from_catalogue("sinusoidal_grid", {"family": "simplevit"}, variant="simplevit"),
    Case.from_catalogue("sinusoidal_grid", {"family": "timm"}, variant="timm"),
    Case.from_catalogue("sinusoidal_grid", {"family": "interleaved", "axes": 3}, variant="interleaved_3"),
    Case.from_catalogue("learned_grid", {"size": (320, 160), "interpolation": "bilinear"}, variant="bilinear"),
    Case.from_catalogue("learned_grid", {"size": (320,), "prefix": 1}, variant="row"),
    Case.from_catalogue("rope", {"layout": "interleaved"}, variant="interleaved"),
    replace(
        Case.from_catalogue("rope", {"rotary_dim": 4}, variant="partial"),
        exempt={"odd_head_dim_raises": "rotary_dim must be even, head_dim need not be"},
    ),
    Case.from_catalogue("axial", {"convention": "dinov3"}, variant="dinov3"),
    Case.from_catalogue("axial", {"convention": "llama-4"}, variant="llama_4"),
    Case.from_catalogue("axial", {"convention": "pixtral", "axes": 4}, variant="pixtral_4"),
    Case.from_catalogue("mixed", {"directions": "golden", "learned": False, "axes": 3}, variant="golden"),
    replace(Case.from_catalogue("mixed", {"layout": "half"}, variant="ungrouped"), num_kv_heads=4),
    Case.from_catalogue("mrope", {"interleaved": True}, variant="interleaved"),
    Case.from_catalogue("mrope", {"time_last": True, "layout": "interleaved"}, variant="time_last"),
    Case.from_catalogue("mrope", {"scaling": YaRN(4.0, original_length=8)}, variant="yarn"),
    replace(
        Case.from_catalogue("mrope", {"scaling": DynamicNTK(original_length=5)}, variant="dynamic"),
        exempt={"common_shift": "the spectrum spans the largest coordinate + 1"},
    ),
    replace(
        Case.from_catalogue("vjepa", {"released": True}, variant="released"),
        head_dim=12,  # with fewer channels an axis has one pair, and both forms are the same
        exempt={"common_shift": "the released form is no rotation"},
    ),
    replace(Case.from_catalogue("alibi", variant="6_heads"), num_heads=6, num_kv_heads=3),
    Case.from_catalogue("t5", {"bidirectional": True}, variant="bidirectional"),
    Case.from_catalogue("kerple", {"kind": "power"}, variant="power"),
    Case("fire_leaky", lambda num_heads: FIRE(num_heads, leak=0.1), exempt=dict(CATALOGUE["fire"].exempt)),
    Case.from_catalogue("log_cpb", {"kind": "paper", "hidden": 8}, variant="paper"),
    Case.from_catalogue("log_cpb", {"axes": 2, "hidden": 8}, variant="axes2"),
    Case.from_catalogue("log_cpb", {"axes": 2, "hidden": 8, "kind": "paper", "window": 9}, variant="axes2_paper"),
    Case.from_catalogue("swin", {"window": (9,)}, variant="axes1"),
    Case.from_catalogue("swin", {"window": (3, 2, 4)}, variant="axes3"),
    Case.from_catalogue("beit", {"window": (3, 4)}, variant="small"),
    Case.from_catalogue("alibi_2d", {"axes": 3}, variant="axes3"),
    replace(
        Case.from_catalogue("distance_mlp", {"log": False, "hidden": 8}, variant="raw"),
        exempt={"far_positions": "the bias grows with the distance, and float32's rounding with it"},
    ),
    Case.from_catalogue("distance_mlp", {"norm": True, "hidden": 8}, variant="norm"),
    Case.from_catalogue("distance_mlp", {"norm": True, "log": False, "layers": 3, "hidden": 8}, variant="raw_norm"),
    replace(
        Case.from_catalogue("liere", {"block": 2}, variant="pairs"),
        exempt={"odd_head_dim_raises": "channels past the last whole block are not rotated"},
    ),
    replace(
        Case.from_catalogue("liere", {"block": 4, "per_head": False, "axes": 3}, variant="shared"),
        exempt={
            "common_shift": "generators that do not commute see places, not differences alone",
            "odd_head_dim_raises": "channels past the last whole block are not rotated",
        },
    ),
    replace(Case.from_catalogue("liere", {"axes": 1}, variant="text"), exempt={}),
    Case.from_catalogue("comrope_ap", {"block": 2}, variant="pairs"),
    Case.from_catalogue("comrope_ap", {"axes": 1}, variant="text"),
    Case.from_catalogue("comrope_ld", {"block": 2, "per_head": True, "axes": 3}, variant="pairs"),
    Case.from_catalogue("shaw", {"values": False}, variant="keys_only"),
    Case.from_catalogue("fox", {"kind": "bias", "decay_time": (2, 20)}, variant="bias"),
    Case.from_catalogue("fox", {"kind": "fixed", "decay_time": (2, 20)}, variant="fixed"),
    Case.from_catalogue("data_alibi", {"kind": "bidirectional"}, variant="bidirectional"),
    Case.from_catalogue("data_alibi", {"kind": "rows"}, variant="rows"),
    Case.from_catalogue("path", {"rank": None, "conv": 1}, variant="full"),
    Case.from_catalogue("path+fox", {"scaled": True}),
    replace(Case.from_catalogue("rope+fox"), exempt={"shuffled_positions": "keys must lie in the order of the text"}),
    Case.from_catalogue("transformer_xl", {"clamp": 5}, variant="clamped"),
    replace(
        Case.from_catalogue("transformer_xl", {"learned_distances": 7}, variant="learned"),
        exempt={"fractional_positions": "a table has no rows between rows"},
    ),
    Case.from_catalogue("cope", {"scaled": True, "rotated": True}, variant="rotated"),
    replace(
        Case.from_catalogue("cope", {"relative": 4}, variant="relative"),
        exempt={
            "shuffled_positions": "keys must lie in the order of the text",
            "fractional_positions": "a table has no rows between rows",
        },
    ),
    Case.from_catalogue("rope+transformer_xl"),
    Case.from_catalogue("cope", {"scaled": True}, variant="scaled"),
    Case.from_catalogue("cope", {"gates": "separate"}, variant="separate"),
    Case.from_catalogue("stick-breaking", {"attend_current": True}, variant="current"),
    Case.from_catalogue("stick-breaking", {"remainder": "own"}, variant="own"),
    replace(
        Case.from_catalogue("stick-breaking", {"remainder": "vector"}, variant="vector"),
        exempt={
            "shuffled_positions": "keys must lie in the order of the text",
            "weights_are_weights": "the check reads weights by values of its own width",
        },
    ),
    replace(Case.from_catalogue("rope+cope"), exempt={"shuffled_positions": "keys must lie in the order of the text"}),
    Case.from_catalogue("mixture", {"adaptive": True}, variant="adaptive"),
    Case.from_catalogue("rope+mixture"),
    Case.from_catalogue("rope+dape"),
    Case.from_catalogue("rope+alibi"),
    Case.from_catalogue("sinusoidal+rope+t5+shaw"),
)
OPTIONS = {
    "clex": {"max_factor": 4, "step": 0.25},  # a coarse equation, solved hundreds of times here
    "learned_grid": {"size": (320, 160)},  # a place for all coordinates of the checks, which are not a square
    "log_cpb": {"hidden": 8},  # many units moved one way saturate the sigmoid
    "distance_mlp": {"hidden": 8},  # many units moved one way add up to more than float32 resolves far out
    "self_extend": {"window": 3, "group": 2},  # texts of the checks are short
    "rerope": {"window": 3},
    "leaky_rerope": {"window": 3, "factor": 4.0},
    "dual_chunk": {"size": 4, "local": 2},
    "string": {"shift": 4, "local": 1},
    "lm_infinite": {"window": 3, "sinks": 2},
    "streaming_llm": {"window": 3, "sinks": 2},
    "pope": {"initial": "uniform"},  # biases within their bounds, where they learn
    "comrope_ld": {"block": 4, "per_head": True, "axes": 4},  # enough multipliers for their size to be told
}
SAME_KIND = {"rerope", "leaky_rerope", "string", "streaming_llm"}  # ranges of distances, as for self_extend
COMPILED = {"rope", "fox"}  # in the quick suite, as compiling takes seconds: a rotation; token_states and a score
BY_STRUCTURE = (
    "backends_equal_dense",
    "rows_without_keys",
    "scores_are_read",
    "gradients",
)  # alike for all variants
CASES = (*(Case.from_catalogue(name, OPTIONS.get(name)) for name in CATALOGUE), *VARIANTS)


def is_full(case: Case) -> bool:
    """Whether a case is an encoding of its own, neither a variant of one nor a scaling of frequencies."""
    return case not in VARIANTS and CATALOGUE[case.name].scaling is None


def subject(check: str) -> str:
    """The name of the file that has a check."""
    return CHECKS[check].__module__.rpartition(".")[2]


def other_numbers(case: Case) -> bool:
    """Whether a case is RoPE at other, fixed frequencies; YaRN speaks for all that is not about these."""
    entry = CATALOGUE.get(case.name)
    return entry is not None and entry.scaling is not None and case.name != "yarn" and not case.length_dependent


def slow(check: str, case: Case) -> bool:
    """Whether a pair is too long for the quick suite."""
    if check in ("compiles_once", "exports"):
        return case.name not in COMPILED
    if subject(check) not in ("positions", "numerics") and other_numbers(case):
        return True
    return check in SLOW or (check in BY_STRUCTURE and (not is_full(case) or case.name in SAME_KIND))


def groups() -> Iterator[object]:
    """Every case with every check that it must pass: long ones by themselves, the others of a subject together."""
    for case in CASES:
        alone = {check for check in checks_for(case) if slow(check, case) or check in (*BY_STRUCTURE, "compiles_once")}
        for check in sorted(alone):
            marks = [pytest.mark.slow] if slow(check, case) else []
            yield pytest.param(case, [check], id=f"{case.name}-{check}", marks=marks)
        for name, checks in groupby((check for check in checks_for(case) if check not in alone), subject):
            yield pytest.param(case, list(checks), id=f"{case.name}-{name}")


@pytest.mark.parametrize(("case", "checks"), list(groups()))
def test_conformance(case: Case, checks: list[str]) -> None:
    failed: dict[str, Exception] = {}
    for check in checks:
        try:
            CHECKS[check](case)
        except Exception as error:
            failed[check] = error
    if failed:
        raise ExceptionGroup(f"{case.name} fails {', '.join(failed)}", list(failed.values()))


def test_every_check_of_a_group_is_made() -> None:
    """After a failing check, too; and each is named."""
    case = Case("FloatBuffer", broken.FloatBuffer)
    checks = ["bfloat16_round_trip", "deep_copy", "state_dict_is_parameters"]
    with pytest.raises(ExceptionGroup, match=r"FloatBuffer.*bfloat16_round_trip, state_dict_is_parameters") as result:
        test_conformance(case, checks)
    assert len(result.value.exceptions) == 2


def test_every_check_of_every_case_is_in_one_test() -> None:
    built = [(case.name, check) for case, checks in (value.values for value in groups()) for check in checks]
    assert sorted(built) == sorted((case.name, check) for case in CASES for check in checks_for(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_exemptions_are_needed(case: Case) -> None:
    for name, reason in case.exempt.items():
        assert name in CHECKS, f"{case.name} is exempt from {name!r}, which is no check"
        assert reason, f"{case.name} is exempt from {name} without a reason"
        assert applies(name, case), f"{name} does not apply to {case.name}: drop the exemption"
        assert verdict(name, case) is not None, f"{case.name} passes {name}: drop the exemption"


@pytest.mark.parametrize(
    ("make", "check"), broken.CAUGHT, ids=[f"{make.__name__}-{check}" for make, check in broken.CAUGHT]
)
def test_broken_encodings_are_caught(make: type, check: str) -> None:
    case = Case(make.__name__, make, table_bound=True)
    assert applies(check, case)
    result = verdict(check, case)
    assert result is not None, f"{make.__name__} passes {check}"
    assert result.startswith(check)


def test_every_check_is_shown_to_fail() -> None:
    """A check that nothing can fail is no check."""
    shown = {check for _, check in broken.CAUGHT} | {check for case in CASES for check in case.exempt}
    assert set(CHECKS) - SLOW <= shown, f"no broken encoding for {sorted(set(CHECKS) - SLOW - shown)}"


@pytest.mark.slow
def test_sound_encoding_passes() -> None:
    check_encoding(broken.Sound)


@pytest.mark.slow
def test_report_names_each_failure() -> None:
    with pytest.raises(AssertionError, match="FloatBuffer") as caught:
        check_encoding(broken.FloatBuffer)
    for check in ("bfloat16_round_trip", "state_dict_is_parameters"):
        assert f"\n{check}\n  demands: " in str(caught.value)


def test_unknown_exemption_is_refused() -> None:
    with pytest.raises(ValueError, match="'far_position'"):
        check_encoding(broken.Sound, exempt={"far_position": "a slip"})


def test_checks_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    for check in ("gradients", "meta_device", "decode_step_by_step"):
        CHECKS[check](Case.from_catalogue("t5"))
    assert torch.equal(torch.get_rng_state(), before)

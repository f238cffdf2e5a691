"""The golden numbers of transformers' vision and document models are what their code makes today."""

from __future__ import annotations

import pytest

from tests.golden import config, load
from tests.reference import vision_models, vision_places
from tests.samples import gap

pytestmark = pytest.mark.reference
MAKERS = vision_models.MAKERS | vision_places.MAKERS


@pytest.mark.parametrize("name", MAKERS)
def test_golden_numbers_equal_the_authors(name):
    pytest.importorskip("transformers")
    arrays, meta = load(f"vision/{name}", None), config(f"vision/{name}")
    built, source = MAKERS[name]()
    assert meta == source
    assert arrays.keys() == built.keys()
    assert all(gap(arrays[key], built[key]) < 1e-6 * (1 + built[key].abs().max()) for key in built)

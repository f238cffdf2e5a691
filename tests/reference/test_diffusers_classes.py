"""Every class of the installed diffusers that rotates is known, or has a reason here: releases show what is missing."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections import Counter
from pathlib import Path

import pytest

from posenc.diffusion import MODELS
from posenc.diffusion.models import TRANSFORMERS
from posenc.diffusion.modules import MODULES
from posenc.hf.explanation.diffusion import diffusion_facts

pytestmark = pytest.mark.reference
diffusers = pytest.importorskip("diffusers")

ROTATES = re.compile(r"rotary|\brope|Rope|RoPE|freqs_cis")
SOUND = "sound: one axis of seconds, no picture or video"
REASONS = {
    "AceStepTransformer1DModel": SOUND,
    "LongCatAudioDiTTransformer": SOUND,
    "MiniMaxMusic3Transformer1DModel": SOUND,
    "StableAudioDiTModel": SOUND,
    "StableAudio3DiTModel": SOUND,
}


def rotating() -> dict[str, str]:
    """Models of diffusers whose file speaks of rotation, with the name of the file."""
    found = {}
    for package in ("transformers", "controlnets"):
        home = importlib.import_module(f"diffusers.models.{package}")
        for info in pkgutil.iter_modules(home.__path__):
            if not ROTATES.search((Path(home.__path__[0]) / f"{info.name}.py").read_text(encoding="utf-8")):
                continue
            module = importlib.import_module(f"{home.__name__}.{info.name}")
            for name, cls in inspect.getmembers(module, inspect.isclass):
                if (
                    cls.__module__ == module.__name__
                    and issubclass(cls, diffusers.ModelMixin)
                    and hasattr(diffusers, name)
                ):
                    found[name] = info.name
    return found


FOUND = rotating()


def test_every_class_that_rotates_is_attached_or_has_a_reason() -> None:
    transformers = {name for name in FOUND if "ControlNet" not in name}
    unknown = {name for name in transformers if name not in TRANSFORMERS and name not in REASONS}
    assert not unknown
    attached = {name for name in transformers if name in TRANSFORMERS}
    assert len(attached) >= 56
    assert set(REASONS) <= transformers
    assert all(not MODELS[TRANSFORMERS[name]].transformers[name].refused for name in attached)


def test_controlnets_that_rotate_are_known() -> None:
    controlnets = {name for name in FOUND if "ControlNet" in name}
    multiple = {name for name in controlnets if "Multi" in name}  # several ControlNets, each of which is attached to
    assert controlnets - multiple == {name for name in TRANSFORMERS if "ControlNet" in name}


def test_each_class_that_posenc_names_is_there_once() -> None:
    """By its name alone posenc knows a module's class: of each name there must be one."""
    adds = {name for name in TRANSFORMERS if name.startswith(("SD3", "PixArt"))}
    assert set(TRANSFORMERS) - adds <= set(FOUND)
    homes = [importlib.import_module(f"diffusers.models.{each}") for each in ("transformers", "controlnets")]
    texts = [path.read_text(encoding="utf-8") for home in homes for path in Path(home.__path__[0]).glob("*.py")]
    defined = Counter(name for text in texts for name in re.findall(r"^class (\w+)", text, re.M))
    alike = {"WanRotaryPosEmbed", "RopeEmbedder"}  # copied from file to file
    for name, _ in MODULES:
        assert defined[name] == 1 or (name in alike and defined[name]), name


@pytest.mark.parametrize("name", sorted(TRANSFORMERS))
def test_each_class_is_explained_by_the_defaults_of_its_constructor(name: str) -> None:
    """The keys and defaults that a record reads are those of the class."""
    cls = getattr(diffusers, name)
    record = MODELS[TRANSFORMERS[name]].transformers[name]
    parameters = inspect.signature(cls.__init__).parameters
    if "axes_dims_rope" in parameters and name == "HiDreamImageTransformer2DModel":
        return  # whose defaults no checkpoint has
    for key, value in record.defaults.items():
        if key in parameters and parameters[key].default not in (inspect.Parameter.empty, None):
            default = parameters[key].default
            assert tuple(default) == tuple(value) if isinstance(value, tuple) else default == value, key
    assert diffusion_facts({"_class_name": name, "use_rotary_positional_embeddings": True})["class"] == name

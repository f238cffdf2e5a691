"""Diffusion transformers: their positions, their rotation, and posenc's tables attached to those of diffusers.

    from posenc.diffusion import attach, detach, dype, preset, riflex
    attach(flux.transformer, dype())                                       # pictures above 1,024 pixels
    attach(wan.transformer, riflex(6, repeats_at=51))                      # videos longer than the trained ones
    attach(flux.transformer, {"rows": YaRN(2.0, original_length=64), "columns": YaRN(2.0, original_length=64)})
    detach(flux.transformer)
    rope, positions = preset("flux-1", [Text(512), Image(64, 64)])         # for a transformer of one's own

`attach` puts modules of posenc where a model computes its tables of cos and sin. Where nothing is scaled they call the
model's own module; else the tables come from posenc, in float32 of exact angles. Nothing else of the model changes.
`models` has one record a model, `MODULES` the classes of diffusers whose tables posenc computes.
"""

from posenc.lazy_imports import lazy_names

__all__ = [
    "MODELS", "MODULES", "PRESETS", "AttachedPositions", "Preset", "attach", "detach", "dype", "latents", "preset",
    "riflex", "rotation",
]  # fmt: skip

__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "posenc.diffusion.attached": "AttachedPositions attach detach",
        "posenc.diffusion.models": "MODELS PRESETS",
        "posenc.diffusion.modules": "MODULES",
        "posenc.diffusion.presets": "Preset preset rotation",
        "posenc.diffusion.rules": "latents",
        "posenc.diffusion.scalings": "dype riflex",
    },
)

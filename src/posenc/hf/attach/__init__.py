"""posenc's encodings in a live transformers model: attached, saved, loaded, detached."""

from posenc.hf.attach.attachment import attach as attach
from posenc.hf.attach.attachment import detach as detach
from posenc.hf.attach.attachment import load as load

"""Texts and pictures that models are trained on and measured with."""

from posenc.lab.data.documents import Document as Document

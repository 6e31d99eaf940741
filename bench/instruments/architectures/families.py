"""The families by name: the metadata of a tiny model of each, and the optional tensors in its files."""

from __future__ import annotations

from bench.instruments.architectures.attentive import ATTENTIVE
from bench.instruments.architectures.drafting import DRAFTING
from bench.instruments.architectures.family import Family
from bench.instruments.architectures.recurrent import RECURRENT
from bench.instruments.architectures.textless import EMBEDDERS, TEXTLESS

TEXT: dict[str, Family] = {**ATTENTIVE, **RECURRENT}
FAMILIES: dict[str, Family] = {**TEXT, **TEXTLESS, **EMBEDDERS, **DRAFTING}

"""The families by name: the metadata of a tiny model of each, and which optional tensors its files have."""

from __future__ import annotations

from tests.support.architectures.attentive import ATTENTIVE
from tests.support.architectures.drafting import DRAFTING
from tests.support.architectures.family import Family
from tests.support.architectures.recurrent import RECURRENT
from tests.support.architectures.textless import EMBEDDERS, TEXTLESS

TEXT: dict[str, Family] = {**ATTENTIVE, **RECURRENT}
FAMILIES: dict[str, Family] = {**TEXT, **TEXTLESS, **EMBEDDERS, **DRAFTING}

"""The file of a vision encoder, which llama.cpp calls mmproj: what its header says, and whether it fits a model.

Knows metadata keys and tensors' names; reads headers only and loads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runtime.core.errors import ModelError
from runtime.models.facts import ModelFacts
from runtime.models.header import TensorInfo, read_model_header
from runtime.models.shards import ENCODER

CLIP = "clip"  # the architecture that all of them name
# Kinds that resize no image of up to 4096 tokens
OF_ANY_SIZE = ("qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger")
ROOM = 4 * 46**2  # patches of an image for which the library allocates buffers for these at the start
# The tensors whose last dimension is the width of the model's embeddings, by the kind of encoder; the first one counts
WIDTHS = {
    "mlp": ("mm.4.weight", "mm.2.weight", "mm.0.weight"),
    "idefics3": ("mm.model.fc.weight",),
    **dict.fromkeys(("pixtral", *OF_ANY_SIZE), ("mm.2.weight",)),
}
TRANSPOSED = {"gemma3": "mm.input_projection.weight"}  # its first dimension is that width
NUMBERED = "hunyuanvl"  # kinds whose embeddings depend on the images before
LEAST_BUFFERS, MOST_BUFFERS = 2**26, 2**33  # bytes


@dataclass(frozen=True)
class ProjectorFacts:
    """Facts from the header of a vision encoder's file."""

    facts: ModelFacts

    @property
    def kind(self) -> str:
        """The kind of encoder, such as gemma3 or pixtral; "" if the header names none."""
        text = self.facts.header.text
        return text("clip.vision.projector_type") or text("clip.projector_type")

    @property
    def width(self) -> int:
        """The width of the embeddings that it computes; 0 if unknown."""
        shapes = {tensor.name: tensor.shape for tensor in self.facts.header.tensors}
        if name := TRANSPOSED.get(self.kind):
            return shapes.get(name, (0,))[0]
        return next((shapes[name][-1] for name in WIDTHS.get(self.kind, ()) if name in shapes), 0)

    @property
    def n_patches(self) -> int:
        """The number of patches of an image of the usual size, or for which the library makes room; 0 if unknown."""
        number = self.facts.header.number
        patch = number("clip.vision.patch_size")
        usual = (number("clip.vision.image_size") // patch) ** 2 if patch else 0
        return max(usual, ROOM) if self.kind in OF_ANY_SIZE else usual

    @property
    def n_needed(self) -> int:
        """An estimate of the bytes that it takes: its weights, and buffers for the activations of one layer."""
        number = self.facts.header.number
        width = number("clip.vision.embedding_length"), number("clip.vision.feed_forward_length")
        return self.facts.n_bytes + LEAST_BUFFERS + 4 * self.n_patches * (8 * width[0] + 2 * width[1])


def read_projector(path: Path) -> ProjectorFacts:
    """Return the facts of a vision encoder's file. Raises ModelError, a sentence, for any other file."""
    try:
        found = ProjectorFacts(ModelFacts(read_model_header(path)))
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}). Check `--mmproj`.") from error
    if not is_projector(found.facts):
        kind = found.facts.architecture or "unknown"
        raise ModelError(f"{path.name} is no vision encoder, but a model of the kind {kind}. Name an mmproj file.")
    if found.facts.header.metadata.get("clip.has_vision_encoder") is not True or not found.kind:
        raise ModelError(f"{path.name} encodes no images. Name the model's mmproj file for images.")
    if found.kind == NUMBERED:
        raise ModelError(
            f"{path.name} is a vision encoder of the kind {found.kind}, whose images have positions that depend on the "
            "images before them, which is not supported. Leave it out to use the model for text, or choose another "
            "model."
        )
    broken = next((tensor.name for tensor in found.facts.header.tensors if is_empty(tensor)), "")
    if clause := f"{broken} is empty" if broken else contradiction(found):
        raise ModelError(f"{path.name} is damaged or was converted wrongly: {clause}. Download it again.")
    return found


def is_projector(facts: ModelFacts) -> bool:
    """Return whether a file is a vision encoder, or another part that encodes what is no text."""
    return facts.architecture == CLIP


def refuse_projector(path: Path, facts: ModelFacts | None) -> None:
    """Raise ModelError for a vision encoder that is named as a model."""
    if facts and is_projector(facts):
        raise ModelError(
            f"{path.name} is a vision encoder, no model. Name the model, and the encoder with `--mmproj {path.name}`."
        )


def contradiction(found: ProjectorFacts) -> str:
    """Return what is wrong with the sizes in a header, over which the library would end the process; "" if nothing is.
    Other kinds than those that were run may lack some.
    """
    if found.n_needed - found.facts.n_bytes > MOST_BUFFERS:
        return "its sizes would need more memory than any encoder"
    if found.kind not in (*WIDTHS, *TRANSPOSED):
        return ""
    keys = ("image_size", "patch_size", "embedding_length", "attention.head_count", "block_count")
    image, patch, width, heads, layers = (found.facts.header.number(f"clip.vision.{key}") for key in keys)
    if not (image >= patch > 0 and width > 0 and heads > 0 and layers > 0):
        return "a size of the encoder is missing"
    if width % heads:
        return f"{heads} heads do not divide a width of {width}"
    return "" if found.width else "its projection is missing"


def is_empty(tensor: TensorInfo) -> bool:
    """Whether a tensor has no values, over which the library would end the process."""
    return tensor.n_values == 0


def check_width(path: Path, found: ProjectorFacts, width: int, target: str) -> None:
    """Check that an encoder's embeddings have the width of the model's. Raises ModelError."""
    if found.width and found.width != width:
        raise ModelError(
            f"{path.name} does not belong to {target}: its embeddings are {found.width} wide, the model's {width}. "
            "Name the model's own mmproj file."
        )


def projector_near(target: Path) -> Path | None:
    """Return the vision encoder in the model's folder, if there is just one file whose name begins like that of one."""
    try:
        found = sorted(target.parent.glob(f"{ENCODER}*.gguf"))
    except OSError:
        return None
    return found[0] if len(found) == 1 else None

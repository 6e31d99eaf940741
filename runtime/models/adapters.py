"""LoRA adapters in GGUF files: how a pair names them, and whether a file fits a model.

llama.cpp ends the whole process over some files, and leaves parts of others out, so all is checked before it reads one.
Reads headers; opens no model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from runtime.core.errors import ModelError
from runtime.models.facts import ModelFacts
from runtime.models.header import Header, TensorInfo, read_header, read_model_header
from runtime.models.model_files import HUB, begins_as_gguf

ENDINGS = ".lora_a", ".lora_b"  # of the names of an adapter's two matrices for one of the model
NORM = "_norm.weight"  # llama.cpp leaves these out
# Types of values that can be multiplied by; others, such as F64, end llama.cpp's process
KINDS = "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"
INPUT = "token_embd.weight"  # looked up and not multiplied by, so its first matrix is the other way round
ALPHA, ALORA = "adapter.lora.alpha", "adapter.alora.invocation_tokens"
WRONG_BASE = "It was made for another model: choose an adapter of this one"


class Adapter(NamedTuple):
    """A LoRA adapter of a pair. With a scale of 0 it is loaded, and used only by requests that ask for it."""

    path: Path
    scale: float = 1.0


def adapter_of(text: str, folder: Path | None = None) -> Adapter:
    """Return the adapter written as `FILE` or `FILE=SCALE`, in the folder or `hf:owner/repo:file` of the hub. Raises
    ValueError for a wrong scale.
    """
    place = Path() if text.startswith(HUB) else folder or Path()
    name, equals, number = text.rpartition("=")
    if not equals or (place / text).is_file():
        return Adapter(place / text)
    try:
        scale = float(number)
    except ValueError:
        scale = math.nan
    if not math.isfinite(scale):
        raise ValueError(f"the scale of {name} is '{number}', which is no number. Write {name}=0.5, or leave it out.")
    return Adapter(place / name, scale)


def titles(adapters: Sequence[Adapter]) -> list[str]:
    """Return a name for each adapter, its file's without the ending, with a number where another one has it."""
    found = list[str]()
    for path, _ in adapters:
        names = (path.stem, *(f"{path.stem}-{n}" for n in range(2, len(adapters) + 2)))
        found.append(next(name for name in names if name not in found))
    return found


def told(adapters: Sequence[Adapter], with_off: bool = False) -> str:
    """Return the adapters that are on and their scales, in words, or all of them; "" if there is none."""
    all_of_them = zip(titles(adapters), (scale for _, scale in adapters), strict=True)
    return ", ".join(in_words(title, scale) for title, scale in all_of_them if scale or with_off)


def in_words(title: str, scale: float) -> str:
    """Return one with its scale."""
    if not scale:
        return f"{title} (off)"
    return title if scale == 1 else f"{title} × {scale:g}"


def is_adapter(header: Header) -> bool:
    """Return whether the file is an adapter of some kind, and no model."""
    return header.text("general.type") == "adapter" or bool(header.text("adapter.type"))


def refuse_adapter(path: Path, facts: ModelFacts | None) -> None:
    """Raise ModelError for an adapter that is named as a model."""
    if facts and is_adapter(facts.header):
        raise ModelError(
            f"{path.name} is a LoRA adapter, not a model. Name the model that it was trained on, and the adapter with "
            f"`--lora {path.name}`."
        )


def check_adapters(adapters: Sequence[Adapter], model: Path) -> None:
    """Check that all adapters fit the model in this file. Raises ModelError, naming the first fault."""
    base = ModelFacts(read_model_header(model)) if adapters else None
    for path, _ in adapters:
        assert base is not None
        check_adapter(path, base, model.name)


def check_adapter(path: Path, base: ModelFacts, name: str) -> None:
    """Check one; see check_adapters."""
    header = read_adapter(path)
    check_kind(header, path.name, base, name)
    tensors = {tensor.name: tensor for tensor in base.header.tensors}
    for place, parts in pairs(header, path.name):
        fault = misfit(place, parts, tensors.get(place))
        if fault:
            raise ModelError(f"{path.name} does not fit {name}: {fault}. {WRONG_BASE}.")
        if tensors[place].kind == "NVFP4":
            raise ModelError(f"{name} has {place} in NVFP4, which llama.cpp cannot adapt. Choose another quantization.")


def read_adapter(path: Path) -> Header:
    """Return the header of an adapter's file. Raises ModelError for a file that is no GGUF."""
    if not path.exists():
        raise ModelError(f"There is no adapter {path}. Name a LoRA adapter in GGUF.")
    try:
        is_gguf = begins_as_gguf(path)
    except OSError as error:
        raise ModelError(f"The adapter {path} cannot be read ({error.strerror}). Name a GGUF file.") from error
    if not is_gguf:
        raise ModelError(
            f"The adapter {path.name} is not a GGUF file. Convert it with llama.cpp's convert_lora_to_gguf.py."
        )
    return read_header(path)


def check_kind(header: Header, file: str, base: ModelFacts, name: str) -> None:
    """Check what kind of adapter a file is, and of which architecture. Raises ModelError."""
    if not is_adapter(header):
        raise ModelError(f"{file} is a model, not a LoRA adapter. Name it with `-m`, or another file with `--lora`.")
    if (kind := header.text("adapter.type")) != "lora":
        raise ModelError(f"{file} is an adapter of the kind '{kind}': only 'lora' can be used. Choose another file.")
    if ALORA in header.metadata:
        raise ModelError(
            f"{file} is an activated LoRA, which begins in the middle of a prompt: that cannot be done here. Choose an "
            "ordinary LoRA."
        )
    if (kind := header.text("general.architecture")) != base.architecture:
        raise ModelError(
            f"{file} is for the architecture '{kind}', and {name} has '{base.architecture}'. {WRONG_BASE}."
        )
    alpha = header.metadata.get(ALPHA, 0.0)
    start, end = header.spans.get(ALPHA, (0, 0))
    is_single = end - start in (0, len(ALPHA) + 16)  # a length, the key, a type, and four bytes
    if not isinstance(alpha, float) or not math.isfinite(alpha) or not is_single:
        damaged(file, f"{ALPHA} is no number")


def damaged(file: str, what: str) -> NoReturn:
    """Raise the ModelError for an adapter that contradicts itself."""
    raise ModelError(
        f"{file} is damaged or was converted wrongly: {what}. Convert it again, or choose another adapter."
    )


def pairs(header: Header, file: str) -> Iterator[tuple[str, tuple[TensorInfo, TensorInfo]]]:
    """Yield the name of each adapted tensor of a model, and the adapter's two matrices for it. Raises ModelError."""
    found: dict[str, dict[str, TensorInfo]] = {}
    for tensor in header.tensors:
        ending = next((each for each in ENDINGS if tensor.name.endswith(each)), "")
        if ending:
            found.setdefault(tensor.name.removesuffix(ending), {})[ending] = tensor
        elif not tensor.name.endswith(NORM):
            damaged(file, f"{tensor.name} belongs to no LoRA")
    if not found:
        damaged(file, "it has no matrices")
    for tensor in header.tensors:
        if tensor.kind not in KINDS and tensor.name.endswith(ENDINGS):
            damaged(file, f"{tensor.name} has values of the type {tensor.kind}")
    for place, parts in found.items():
        if lacking := [ending for ending in ENDINGS if ending not in parts]:
            damaged(file, f"{place}{lacking[0]} is missing")
        yield place, (parts[ENDINGS[0]], parts[ENDINGS[1]])


def misfit(place: str, parts: tuple[TensorInfo, TensorInfo], base: TensorInfo | None) -> str:
    """Return why an adapter's two matrices do not fit a model's tensor; "" if they do. Shapes have the fastest
    dimension first: [n_in, n_out] for the model, [n_in, rank] and [rank, n_out] for the adapter.
    """
    if base is None:
        return f"it adapts {place}, which the model lacks"
    a, b, whole = (trimmed(each.shape) for each in (*parts, base))
    if len(base.shape) < 2:
        return f"it adapts {place}, which is no matrix"
    if place.endswith(INPUT):
        fits = a[1] == whole[1] and b[1] == whole[0] and a[0] == b[0]
    else:
        fits = a[0] == whole[0] and b[1] == whole[1] and a[1] == b[0]
    if fits and a[2:] == whole[2:] == b[2:]:
        return ""
    return f"its {shown(a)} and {shown(b)} are for another tensor than {place}, {shown(whole)}"


def trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape as ggml sees it: of at least two dimensions, and without those of 1 after them."""
    whole = (*shape, 1, 1)
    n = max([2, *(i + 1 for i, size in enumerate(whole) if size > 1)])
    return whole[:n]


def shown(shape: tuple[int, ...]) -> str:
    """Return a shape in words."""
    return " x ".join(map(str, shape))


def n_bytes(adapters: Sequence[Adapter]) -> int:
    """Return the bytes of the matrices of these adapters; 0 for a file that cannot be read: loading reports why."""
    total = 0
    for path, _ in adapters:
        try:
            total += sum(tensor.n_bytes for tensor in read_header(path).tensors)
        except (ModelError, OSError):
            continue
    return total


def as_adapters(values: object, folder: Path) -> object:
    """Return a registry's list of texts as adapters, relative to the registry's folder. Raises ValueError."""
    if not isinstance(values, list):
        return values
    if not all(isinstance(each, str | tuple) for each in values):
        raise ValueError('\'lora\' must be a list of texts, such as ["adapter.gguf", "other.gguf=0.5"].')
    try:
        return tuple(adapter_of(each, folder) if isinstance(each, str) else each for each in values)
    except ValueError as error:
        raise ValueError(f"'lora': {error}") from error

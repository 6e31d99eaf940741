"""Maps the file type number in a header to the name of its mixture of tensor types, as used in file names."""

from __future__ import annotations

from runtime.models.facts import ModelFacts

# llama.h's enum llama_ftype; some numbers are no longer used. 0 also stands for files without a type.
FILE_TYPES = {
    1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip


def quantization(facts: ModelFacts) -> str:
    """Return the name of a model's quantization, such as Q4_K_M, or else the tensor type with the most bytes."""
    return FILE_TYPES.get(facts.header.number("general.file_type")) or next(iter(facts.kinds), "")

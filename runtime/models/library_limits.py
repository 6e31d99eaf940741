"""Tables of llama.cpp's assumptions about a header, by metadata key. It ends the process if they do not hold.

Keys are without their architecture prefix. Where a table names architectures, others do not read the key this way.
"""

from __future__ import annotations

from dataclasses import dataclass

Names = frozenset[str]
ALL: Names = frozenset()
NO_END = 2**32 - 1
MAX_LAYERS, MAX_EXPERTS = 512, 1024

# No rotation, whatever the header contains about rotations
ROPELESS = frozenset(
    "clip gpt2 gptj mpt refact bloom mamba mamba2 jamba jina-bert-v2 t5 t5encoder jais rwkv6 rwkv6qwen2 rwkv7 "
    "arwkv7 wavtokenizer-dec nemotron_h nemotron_h_moe kimi-linear kimi-k3 glm5-next".split()
)
# Every number of a head is rotated
WHOLE_HEADS = frozenset(
    "apertus arcee arctic baichuan chameleon codeshell cogvlm cohere2moe dbrx deci deepseek dots1 dream ernie4_5 "
    "ernie4_5-moe exaone exaone-moe exaone4 falcon granite granite_swa graniteswitch grok grovemoe hunyuan-moe "
    "hunyuan-dense hunyuan_vl hy_v3 internlm2 jais2 llada llada-moe llama llama4 maincoder mellum mistral3 olmo "
    "olmo2 olmoe orion paddleocr pangu-embedded plamo pockettts qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3vl "
    "qwen3vlmoe rnd1 seed_oss smallthinker smollm3 starcoder2 talkie xverse".split()
)
# Values are as long as keys
EVEN_HEADS = WHOLE_HEADS | frozenset(
    "afmoe bailingmoe2 bitnet bloom chatglm cohere2 command-r deepseek4 dflash eagle3 glm4 glm4moe gpt2 gptneox "
    "granitehybrid "
    "jais laguna maple minimax-01 minimax-m2 minimax-m3 mpt muse-glimmer nanbeige nemotron nemotron_h "
    "nemotron_h_moe openelm phi2 phi3 qwen qwen35 qwen35moe qwen3next qwen4exp refact spark2_5 stablelm "
    "starcoder".split()
)
ROPE_SCALINGS = frozenset(("none", "linear", "yarn", "longrope"))
EXPERTLESS = frozenset(("hunyuan-dense", "hunyuan_vl"))  # a single expert is a dense layer
FIRST_HEADED = frozenset(("olmo2",))  # every layer's heads have the length of the first layer's
INDEXED = frozenset(("deepseek32", "deepseek4", "dots3note", "glm-dsa"))  # an index rotates as much as a head
ROTATED_SHAPES = frozenset(("gpt-oss", "bailingmoe"))  # tensors are measured by the rotated length, not the head's
TEMPERED = frozenset(("deepseek2", "mistral4"))  # a scale for long texts requires their length
DRAFT_HEADS = frozenset(("eagle3", "dflash", "gemma4-assistant"))  # these have MTP layers only
SECTIONED = frozenset("qwen2vl paddleocr qwen3vl qwen3vlmoe qwen35 qwen35moe".split())  # positions have several parts
# Some layer has an attention window: in every model, or where the header gives one
WINDOWED = frozenset(
    "cohere2 cohere2moe dots3note exaone-moe gemma2 gemma3n gemma4 gpt-oss granite_swa maple mimo2 muse-glimmer "
    "spark2_5 step35".split()
)
WINDOWED_BY_LENGTH = frozenset(("gemma3", "olmo2", "afmoe", "plamo3", "mellum"))
SHARING = frozenset(("gemma3n", "gemma4"))  # the last layers use the caches of two earlier ones
# Layers with states: the convolution of the first kind has a bias, the second is a delta net
MAMBAS = frozenset(("mamba", "mamba2", "jamba", "granitehybrid", "falcon-h1", "nemotron_h", "nemotron_h_moe"))
DELTA_NETS = frozenset(("qwen3next", "qwen35", "qwen35moe"))
HEADED_MAMBAS = MAMBAS - {"mamba", "jamba"}
OWN_LENGTHS = frozenset(("graniteswitch",))  # models with layers whose heads differ in length from the header's
# How experts are chosen: 0 means the default, or none
DEFAULT_GATES = frozenset(
    "afmoe cohere2moe deepseek2 deepseek2-ocr glm-dsa glm4moe glm5-next hy_v3 laguna step35".split()
)
NAMED_GATES = frozenset(
    "bailingmoe2 bailingmoe3 deepseek32 deepseek4 dots1 dots3note exaone-moe kimi-k3 kimi-linear lfm2moe minimax-m2 "
    "minimax-m3 smallthinker".split()
)


@dataclass(frozen=True, slots=True)
class Range:
    """The range of valid values of a key."""

    key: str
    least: int
    most: int = NO_END
    architectures: Names = ALL


@dataclass(frozen=True, slots=True)
class Parts:
    """A count that is split into `part` equal ones."""

    whole: str
    part: str
    architectures: Names = ALL


@dataclass(frozen=True, slots=True)
class Product:
    """A count that is `times` the product of others."""

    key: str
    factors: tuple[str, ...]
    architectures: Names
    times: int = 1


RANGES = (
    Range("block_count", 1, MAX_LAYERS),
    Range("expert_count", 0, MAX_EXPERTS),
    Range("expert_gating_func", 0, 4, DEFAULT_GATES),
    Range("expert_gating_func", 1, 4, NAMED_GATES),
    Range("interleave_moe_layer_step", 1, architectures=frozenset(("ernie4_5-moe",))),
    Range("attention.sliding_window", 0, 2**24),  # no larger cache is possible
    Range("token_shift_count", 2, 2, frozenset(("rwkv6", "rwkv7"))),
    Range("token_shift_count", 1, 1, frozenset(("rwkv6qwen2", "arwkv7"))),
    Range("attention.output_group_count", 1, architectures=frozenset(("deepseek4",))),
    Range("hyper_connection.sinkhorn_iterations", 1, 1000, frozenset(("deepseek4",))),  # 20 is usual
)
PARTS = (
    Parts("expert_count", "expert_group_count"),
    Parts("embedding_length", "wkv.head_size"),
    Parts("attention.head_count", "attention.output_group_count", frozenset(("deepseek4",))),
    Parts("ssm.inner_size", "ssm.time_step_rank", HEADED_MAMBAS),
    Parts("ssm.inner_size", "ssm.group_count", HEADED_MAMBAS),
    Parts("ssm.time_step_rank", "ssm.group_count", HEADED_MAMBAS | DELTA_NETS),
)
PRODUCTS = (
    Product("ssm.inner_size", ("embedding_length",), frozenset(("jamba", "granitehybrid")), times=2),
    Product("ssm.inner_size", ("ssm.time_step_rank", "ssm.state_size"), DELTA_NETS),
)

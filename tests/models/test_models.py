"""Headers of GGUF files, what they tell, and what a person may name a model by."""

from __future__ import annotations

import io
import json
import random
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import pytest

from app.models import info
from bench.instruments import fuzz
from bench.instruments.fuzz import sample, text
from runtime.backends.model import LlamaModel
from runtime.core.errors import ModelError, RegistryError
from runtime.models.cache_layout import HALVES, CacheSpec, cache_bytes
from runtime.models.facts import ModelFacts
from runtime.models.gguf_types import TYPES
from runtime.models.header import Header, TensorInfo, parse_header, read_header, read_model_header
from runtime.models.model_files import check_shards, find_file
from runtime.models.registry import find_pair, load_registry
from runtime.models.shards import is_first_shard, shard_names

DEMO = load_registry()["demo"]


def parse(data: bytes) -> ModelFacts:
    return ModelFacts(parse_header(io.BytesIO(data), "x.gguf", len(data)))


def test_the_header_is_what_the_library_that_defines_the_format_reads() -> None:
    ours, theirs = read_header(DEMO.target), gguf.GGUFReader(DEMO.target)
    assert [(tensor.name, *tensor.shape, tensor.n_bytes) for tensor in ours.tensors] == [
        (tensor.name, *tensor.shape.tolist(), int(tensor.n_bytes)) for tensor in theirs.tensors
    ]
    assert {key for key in theirs.fields if not key.startswith("GGUF.")} == set(ours.metadata)
    tokens = theirs.fields["tokenizer.ggml.tokens"]
    assert ours.strings("tokenizer.ggml.tokens").texts() == [
        bytes(tokens.parts[i]).decode("utf8", "replace") for i in tokens.data
    ]


def test_the_sizes_of_tensor_types_are_those_of_ggml() -> None:
    known = {int(kind): (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {kind: TYPES[kind] for kind in known} == known


def test_a_whole_sample_is_read_with_all_its_facts() -> None:
    facts = parse(sample())
    assert (facts.architecture, facts.n_layers, facts.n_context, facts.n_vocab) == ("llama", 2, 512, 3)
    assert (facts.n_parameters, facts.n_bytes) == (64 * 3 + 64, 2 * 3 * 34 + 64 * 4)
    assert facts.takes_tools
    assert facts.fills_gaps
    assert cache_bytes(facts, CacheSpec(10, HALVES)) == 2 * (32 + 32) * 10 * 2


def grown(before: bytes, after: bytes) -> bytes:
    """The sample with one change."""
    assert sample().count(before) == 1
    return sample().replace(before, after)


NORM = text("norm.weight")
COUNTS = b"GGUF" + struct.pack("<IQQ", 3, 2, 12)
HOSTILE = {
    "is not a GGUF file": b"GGML" + bytes(60),
    "header ends too early": COUNTS,
    "big-endian": b"GGUF" + bytes([0, 0, 0, 3]) + bytes(16),
    "of version 9": b"GGUF" + struct.pack("<IQQ", 9, 0, 0),
    "claims 18446744073709551615 tensors": grown(COUNTS, b"GGUF" + struct.pack("<IQQ", 3, 2**64 - 1, 12)),
    "claims 4294967296 metadata keys": grown(COUNTS, b"GGUF" + struct.pack("<IQQ", 3, 2, 2**32)),
    "claims 2305843009213693952 strings": grown(
        struct.pack("<IQ", 8, 3) + text("a"), struct.pack("<IQ", 8, 2**61) + text("a")
    ),
    "a string is longer than the header": grown(text("<SUF>"), struct.pack("<Q", 2**63) + b"<SUF>"),
    "has elements of type 9": grown(struct.pack("<IQ", 6, 3), struct.pack("<IQ", 9, 3)),
    "is there twice": grown(text("llama.block_count"), text("general.alignment")),
    "overlaps 'token_embd.weight'": grown(
        NORM + struct.pack("<IQIQ", 1, 64, 0, 224), NORM + struct.pack("<IQIQ", 1, 64, 0, 192)
    ),
    "is not aligned": grown(NORM + struct.pack("<IQIQ", 1, 64, 0, 224), NORM + struct.pack("<IQIQ", 1, 64, 0, 225)),
    "has the impossible shape 0": grown(NORM + struct.pack("<IQ", 1, 64), NORM + struct.pack("<IQ", 1, 0)),
    "has 5 dimensions": grown(NORM + struct.pack("<I", 1), NORM + struct.pack("<I", 5)),
    "has the unknown type 77": grown(NORM + struct.pack("<IQI", 1, 64, 0), NORM + struct.pack("<IQI", 1, 64, 77)),
    "two tensors have one name": grown(NORM, text("token_embd.weight")),
    "alignment is not a power of two": grown(
        text("general.alignment") + struct.pack("<II", 4, 32),
        text("general.alignment") + struct.pack("<II", 4, 33),
    ),
    "bytes are missing": sample()[:-1],
    "a name is not UTF-8": grown(b"norm.weight", b"norm.weigh\xff"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_header_gets_one_sentence(what: str) -> None:
    with pytest.raises(ModelError, match=r"x\.gguf") as refused:
        parse(HOSTILE[what])
    assert what in str(refused.value)


def test_a_name_cannot_command_the_terminal() -> None:
    with pytest.raises(ModelError) as refused:
        parse(grown(NORM + struct.pack("<I", 1), text("\x1b]0;owned") + struct.pack("<I", 9)))
    assert str(refused.value).isprintable()


def test_an_empty_file_a_folder_and_nothing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    for name, what in (("empty.gguf", "not a GGUF file"), (".", "is not a file"), ("none.gguf", "does not exist")):
        with pytest.raises(ModelError, match=what):
            read_header(tmp_path / name)


def test_a_template_is_never_run() -> None:
    bomb = "{{ 9 ** 9 ** 9 }}{% if tools %}x{% endif %}"
    old = "{% for m in messages %}{{ m.content }}{% if tools %}{{ tools }}{% endif %}{% endfor %}"
    assert parse(grown(text(old), text(bomb.ljust(len(old))))).takes_tools


def test_mutated_headers_and_registries_are_read_or_refused() -> None:
    whole = sample()
    outcomes, _ = fuzz.fuzz(lambda rng: fuzz.read_header(fuzz.mutate(whole, rng), rng), 2000, random.randrange(2**32))
    assert min(outcomes["read"], outcomes["refused"]) > 200
    outcomes, _ = fuzz.fuzz(fuzz.read_registry, 2000, random.randrange(2**32))
    assert min(outcomes["read"], outcomes["refused"]) > 5


def test_all_shards_of_a_split_model_are_found_from_any() -> None:
    shards = [f"q/m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert shard_names(shards[1]) == shards
    assert [is_first_shard(shard) for shard in shards] == [True, False, False]
    assert shard_names("m-00001-of-99999.gguf") == ["m-00001-of-99999.gguf"]
    assert shard_names("m.gguf") == ["m.gguf"]


def test_the_facts_of_a_split_model_are_those_of_all_shards(tmp_path: Path) -> None:
    for shard in shard_names("m-00001-of-00002.gguf"):
        (tmp_path / shard).write_bytes(sample())
    assert len(read_model_header(tmp_path / "m-00001-of-00002.gguf").tensors) == 4
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    with pytest.raises(ModelError, match=r"00002-of-00002\.gguf does not exist"):
        read_model_header(tmp_path / "m-00001-of-00002.gguf")


def test_a_split_model_is_opened_by_any_part_and_a_missing_or_renamed_one_is_named(tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in shard_names("m-00001-of-00002.gguf"))
    second.write_bytes(sample(part=1))
    assert find_file(str(second)) == second
    with pytest.raises(ModelError, match=r"a part of a model in 2 files, and m-00001-of-00002.gguf is not"):
        check_shards(second)
    first.write_bytes(sample(part=0))
    assert find_file(str(second)) == find_file(str(first)) == first
    check_shards(first)
    second.write_bytes(first.read_bytes())
    with pytest.raises(ModelError, match=r"m-00002-of-00002.gguf contains part 1 of a model, not part 2"):
        check_shards(first)
    second.unlink()
    with pytest.raises(ModelError, match=r"m-00002-of-00002.gguf is not in its folder"):
        LlamaModel(first)
    check_shards(tmp_path / "whole.gguf")


def test_a_pass_reads_a_share_of_the_experts_and_not_the_input_table() -> None:
    sizes = {"token_embd.weight": 1000, "output.weight": 100, "blk.0.ffn_up_exps.weight": 80, "blk.0.attn_q.weight": 7}
    tensors = tuple(TensorInfo(name, (n,), "I8", 0, n) for name, n in sizes.items())
    dense = {"general.architecture": "x"}
    assert ModelFacts(Header(dense, tensors, 0)).n_bytes_per_token == 187
    assert (
        ModelFacts(Header(dense | {"x.expert_count": 8, "x.expert_used_count": 2}, tensors, 0)).n_bytes_per_token == 127
    )
    assert ModelFacts(Header(dense, tensors[:1], 0)).n_bytes_per_token == 1000  # the head is the input table


def test_a_folder_with_one_model_is_that_model(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="no GGUF file"):
        find_pair(str(tmp_path), {})
    for shard in shard_names("m-00001-of-00002.gguf"):
        (tmp_path / shard).touch()
    assert find_pair(str(tmp_path), {}).target == tmp_path / "m-00001-of-00002.gguf"
    (tmp_path / "other.gguf").touch()
    with pytest.raises(RegistryError, match=r"2 models: m-00001-of-00002.gguf, other.gguf. Name one"):
        find_file(str(tmp_path))


def test_a_home_that_nobody_has_is_said() -> None:
    with pytest.raises(RegistryError, match=r"no home folder for '~nobodyatall/x\.gguf'"):
        find_pair("~nobodyatall/x.gguf", {})


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user's own registry is to be."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("runtime.models.registry.user_registry", lambda: tmp_path / "models.toml")
    return tmp_path / "models.toml"


def test_the_users_own_pairs_lie_over_the_bundled_key_by_key(own: Path) -> None:
    own.write_text("[pairs.demo]\ncontext = 512\n[pairs.mine]\ntarget = 'sub/mine.gguf'\n")
    pairs = load_registry()
    assert (pairs["demo"].context, pairs["demo"].target) == (512, DEMO.target)
    assert pairs["mine"].target == own.parent / "sub/mine.gguf"


@pytest.mark.parametrize(
    ("text", "what"),
    [("[pairs.mine]\ncontext = 512", "'target' is missing"), ("[pairs.demo]\ncontxt = 1", "Did you mean 'context'")],
)
def test_a_mistake_in_the_users_own_file_names_it(own: Path, text: str, what: str) -> None:
    own.write_text(text)
    with pytest.raises(RegistryError, match=what) as refused:
        load_registry()
    assert str(own) in str(refused.value)


def test_info_is_printed_for_both_models_of_a_pair(capsys: pytest.CaptureFixture[str]) -> None:
    info.show("demo", as_json=False)
    printed = capsys.readouterr().out
    for word in (
        "Slipstream demo target (llama)",
        "Slipstream demo draft",
        "21.0 million in 12 layers",
        "after layer 4 of 12",
        "2,048 tokens as trained",
    ):
        assert word in printed


def test_info_as_json_holds_the_same_facts(capsys: pytest.CaptureFixture[str]) -> None:
    info.show(str(DEMO.draft), as_json=True)
    found = json.loads(capsys.readouterr().out)["target"]
    assert (found["layers"], found["exit_layer"], found["vocabulary"]) == (2, 0, 4096)
    assert found["memory_bytes"]["2048"]["Q8_0/F16"] < found["memory_bytes"]["2048"]["F16"]


def test_info_refuses_a_damaged_file_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(HOSTILE["claims 18446744073709551615 tensors"])
    command = [sys.executable, "-m", "app.cli", "models", "info", str(tmp_path / "bad.gguf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "is damaged" in done.stderr

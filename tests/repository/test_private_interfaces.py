"""What the app uses of libraries that they promise nobody is there and does what is counted on. Where something no
longer holds, the test says for which version it was written and where to look.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Markdown, Static, TextArea

from app.tui import private_textual
from app.tui.markdown_dialect import markdown_parser
from app.tui.private_textual import AlignedCells, AlignedTable, MarkdownBlock
from app.tui.widgets.reply_markdown import IndentedParagraph
from bench.instruments.shapes import write_random
from runtime.backends import library, private_llama, shown_states
from runtime.backends.heads.early_exit import EarlyExitBackend
from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.private_llama import SYMBOLS, Override, Tensor, symbol, type_traits
from runtime.core.errors import ModelError
from runtime.models.header import TYPES
from runtime.models.hub import private_hub
from tests.support.early_exit import SHAPE, array
from tests.support.raw_hub import answering, http
from tests.support.tui import piloted

PRIVATE = {
    "llama_cpp": "runtime/backends/private_llama.py",
    "textual": "app/tui/private_textual.py",
    "huggingface_hub": "runtime/models/hub/private_hub.py",
}
LLAMA = "Look in src/llama-ext.h, src/llama-context.h, include/llama.h and ggml/include/ of that version for new names"
TEXTUAL = "Look in textual/widgets/_markdown.py, widget.py and app.py of that version for new names"
HUB = "Look in huggingface_hub/utils/__init__.py of that version, where they come from"


@contextmanager
def counted_on(written_for: str, remedy: str, file: str) -> Iterator[None]:
    """What fails inside is said to be of another version."""
    try:
        yield
    except Exception as error:
        raise AssertionError(
            f"{type(error).__name__}: {error}\nThis was written for {written_for}. {remedy}, and change {file}; the "
            "first lines of that say what each is needed for, and what the app does without it."
        ) from error


of_llama = partial(counted_on, private_llama.WRITTEN_FOR, LLAMA, PRIVATE["llama_cpp"])
of_textual = partial(counted_on, private_textual.WRITTEN_FOR, TEXTUAL, PRIVATE["textual"])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    opened = LlamaModel(write_random(tmp_path_factory.mktemp("private") / "model.gguf", SHAPE))
    yield opened
    opened.close()


def blocks(page: Markdown, markdown: str) -> list[MarkdownBlock]:
    """Return the blocks of that text, which are not on screen."""
    return private_textual.parsed(page, markdown_parser().parse(markdown))


def test_a_failure_names_the_version_and_the_remedy() -> None:
    with (
        pytest.raises(AssertionError, match=r"(?s)no such thing.*written for textual 8\.2\.8\. Look in .*app/tui/priv"),
        counted_on(private_textual.WRITTEN_FOR, TEXTUAL, PRIVATE["textual"]),
    ):
        raise AttributeError("no such thing")


@pytest.mark.parametrize("name", SYMBOLS)
def test_llama_has_the_functions_without_a_header(name: str) -> None:
    with of_llama():
        assert symbol(name) is not None, f"{SYMBOLS[name].itanium} is not in the library"


def test_without_one_of_the_functions_of_headers_it_is_told_which_version_to_install() -> None:
    with pytest.raises(ModelError, match=r"ggml_tensor_overhead.*Install llama-cpp-python 0\.3\.36"):
        private_llama.declared(SimpleNamespace(_lib=SimpleNamespace()))


def test_llama_tells_a_contexts_scheduler_and_lays_tensors_out_as_we_read_them(model: LlamaModel) -> None:
    with of_llama():
        early = EarlyExitBackend(model, 64, 5)
        named = {tensor.name for tensor in early.nodes._nodes.values()}
        assert symbol("scheduler")(early.handle) == early.nodes._scheduler
        assert {private_llama.layer_output(layer) for layer in range(SHAPE.layers)} <= named
        assert early.nodes.width == SHAPE.width
        assert early.nodes.head_of(7).n_words == 7
        assert early.check().problem == ""
        assert Tensor.flags.offset % 4 == Tensor.op.offset % 4 == 0  # nodes.py reads both among 32-bit numbers
        early.close()


def test_llama_shows_the_states_of_layers_and_of_the_end(model: LlamaModel) -> None:
    with of_llama():
        backend = LlamaBackend(model, 64)
        shown_states.show_layer(backend.handle, 0)
        shown_states.show_layer(backend.handle, 1)
        shown_states.show_hidden(backend.handle, masked=False)
        backend.forward(array([5, 6, 5]))
        first, second = (shown_states.layer_rows(backend.handle, layer, 3, SHAPE.width) for layer in (0, 1))
        assert np.array_equal(first[0], first[2])  # of the same token
        assert not np.array_equal(first[0], first[1])
        assert not np.array_equal(second[0], second[2])  # which stands elsewhere
        assert symbol("hidden")(backend.handle)  # test_heads.py has models with such states
        backend.close()


def test_llama_describes_types_of_values_as_we_read_them() -> None:
    with of_llama():
        ours = {number: sizes for number, (name, *sizes) in TYPES.items() if name != "Q8_1"}  # which no file has
        assert {number: [type_traits(number).block, type_traits(number).size] for number in ours} == ours
        half, found = np.array([1.5, -2.0], dtype=np.float16), np.empty(2, dtype=np.float32)
        to_float = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(type_traits(1).to_float)
        to_float(half.ctypes.data, found.ctypes.data, 2)
        assert found.tolist() == [1.5, -2.0]


@pytest.mark.parametrize(("pattern", "is_loaded"), [(b"^no such tensor$", True), (b"(", False)])
def test_llama_reads_where_tensors_are_to_lie(model: LlamaModel, pattern: bytes, is_loaded: bool) -> None:
    """By regular expressions, of which it refuses one that is none."""
    with of_llama():
        placed = (Override * 2)(Override(pattern, symbol("repacked")()))
        params = lib.llama_model_default_params()
        params.tensor_buft_overrides = ctypes.addressof(placed)
        loaded = lib.llama_model_load_from_file(os.fsencode(model.path), params)
        assert bool(loaded) is is_loaded, library.complaints()
        if loaded:
            lib.llama_model_free(loaded)


class Page(App[None]):
    """Widgets of Textual's own, as the chat uses them."""

    def compose(self) -> ComposeResult:
        yield Markdown(parser_factory=markdown_parser)
        with VerticalScroll():
            yield Static("line\n" * 99)
        yield TextArea()


@piloted
async def test_textual_has_blocks_of_markdown_that_become_others() -> None:
    async with Page().run_test() as pilot:
        with of_textual():
            page = pilot.app.query_one(Markdown)
            page.BLOCKS = page.BLOCKS | {"paragraph_open": IndentedParagraph}
            text, items = blocks(page, "one\n  two\n\n1. a\n2. b")
            assert items._token.type == "ordered_list_open"
            assert len(private_textual.blocks_of(items)) == 2
            assert private_textual.content_of(text).plain == "one\n  two"
            await page.mount(text)
            await private_textual.set_to(text, blocks(page, "three")[0])
            assert text.is_mounted
            assert private_textual.content_of(text).plain == "three"


@piloted
async def test_textual_tells_a_table_of_more_rows() -> None:
    async with Page().run_test() as pilot:
        with of_textual():
            page = pilot.app.query_one(Markdown)
            page.BLOCKS = page.BLOCKS | {"table_open": AlignedTable}
            table, more = (blocks(page, f"| a |\n|--:|\n| 1 |{row}")[0] for row in ("", "\n| 2 |"))
            await page.mount(table)
            await private_textual.set_to(table, more)
            cells = table.query_one(AlignedCells)
            assert [[cell.plain for cell in row] for row in cells.rows] == [["1"], ["2"]]
            assert [cell.styles.text_align for cell in cells.children] == ["right"] * 3


class Sized(Static):
    """Counts how often it is told of its size in a way that has it laid out again."""

    n_told = 0

    def watch_virtual_size(self, size: Size) -> None:
        """Counts."""
        self.n_told += 1


@piloted
async def test_textual_lays_nothing_out_for_the_size_of_what_grows() -> None:
    async with Page().run_test() as pilot:
        with of_textual():
            told = Sized("one"), private_textual.growing(type("GrowingSized", (Sized,), {}))("one")
            await pilot.app.query_one(VerticalScroll).mount_all(told)
            for each in told:
                each.update(Content("one\ntwo"))
            await pilot.pause()
            assert [each.size.height for each in told] == [2, 2]
            assert told[0].n_told > 0
            assert told[1].n_told == 0


@piloted
async def test_textual_says_what_is_anchored_bound_and_told() -> None:
    async with Page().run_test() as pilot:
        with of_textual():
            scroll, told = pilot.app.query_one(VerticalScroll), private_textual.notifications
            scroll.anchor()
            assert private_textual.stays_at_end(scroll)
            scroll.release_anchor()
            assert not private_textual.stays_at_end(scroll)
            (binding,) = private_textual.bound(pilot.app.query_one(TextArea), "backspace")
            assert binding.action == "delete_left"
            for text in ("one", "two"):
                pilot.app.notify(text)
                await pilot.pause()
            private_textual.forget(pilot.app, told(pilot.app)[0])
            assert [each.message for each in told(pilot.app)] == ["two"]


def test_the_hubs_client_locks_sends_the_token_and_asks_again(tmp_path: Path) -> None:
    heads = list[bytes]()

    def answer(head: bytes) -> bytes:
        heads.append(head)
        return http(b"busy", status=b"503 Busy") if len(heads) == 1 else http(b"content")

    with counted_on(private_hub.WRITTEN_FOR, HUB, PRIVATE["huggingface_hub"]), answering(answer) as address:
        headers = private_hub.build_hf_headers(token="secret")
        stream = private_hub.http_stream_backoff(
            "GET", address, headers=headers, timeout=5, retry_on_exceptions=(), base_wait_time=0
        )
        with stream as response:
            assert b"".join(response.iter_bytes()) == b"content"
        assert [b"Bearer secret" in head for head in heads] == [True, True]
        lock = tmp_path / "lock"
        with private_hub.WeakFileLock(lock), pytest.raises(TimeoutError), private_hub.WeakFileLock(lock, timeout=0.1):
            pass

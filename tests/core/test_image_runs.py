"""The ids of images: they tell images apart, where reading resumes, and how many positions tokens take."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.backends.seat import Reuse, Seat
from runtime.backends.seats import CellMap, JointBatch
from runtime.core.draft import Draft, PassInput, Tokens
from runtime.core.image_runs import (
    PIECE,
    SHORT,
    around,
    has_images,
    ids_of,
    past_images,
    position,
    resumable,
    same_kind_end,
    text_only,
)

WORDS = np.arange(1, 11, dtype=np.int32)
SPATIAL, PLAIN = ids_of(b"a", 20, 5), ids_of(b"a", 20)
LONG = ids_of(b"b", SHORT + 90, 30)


def prompt(*images: Tokens) -> Tokens:
    """Ten words, the images with ten words after each."""
    return np.concatenate([WORDS, *(part for image in images for part in (image, WORDS))])


def test_ids_are_those_of_a_key_and_below_0() -> None:
    assert np.array_equal(ids_of(b"a", 20), PLAIN)
    assert np.array_equal(ids_of(b"a", 30)[:20] >> 2, PLAIN >> 2)
    assert not set(PLAIN.tolist()) & set(ids_of(b"b", 20).tolist())
    assert PLAIN.max() < 0
    assert not (PLAIN % 2).any()
    assert has_images(prompt(PLAIN))
    assert text_only(prompt(PLAIN)).tolist() == [*WORDS, *WORDS]
    assert [same_kind_end(prompt(PLAIN), start, 40) for start in (0, 10, 15, 30)] == [10, 30, 30, 40]


@pytest.mark.parametrize(("image", "after"), [(PLAIN, 20), (SPATIAL, 5)])
def test_positions_follow_from_ids(image: Tokens, after: int) -> None:
    tokens = prompt(image, image)
    assert [position(tokens, n) for n in (0, 3, 10)] == [0, 3, 10]
    assert [position(tokens, n) for n in (30, 33, 40)] == [10 + after, 13 + after, 20 + after]
    assert position(tokens, len(tokens)) == 30 + 2 * after
    assert position(tokens, 11) == (11 if image is PLAIN else 10)


def test_an_image_whose_tokens_share_positions_is_cut_nowhere() -> None:
    tokens = prompt(SPATIAL)
    assert [around(tokens, n) for n in (0, 10, 11, 29, 30, 40)] == [
        (0, 0), (10, 10), (10, 30), (10, 30), (30, 30), (40, 40)
    ]  # fmt: skip
    assert around(prompt(PLAIN), 15) == (15, 15)
    assert around(tokens[:15], 15) == (15, 15)  # what has been read of it so far


def test_a_short_image_is_read_in_one_piece_and_a_long_one_in_several() -> None:
    assert past_images(prompt(SPATIAL), 15) == 30
    assert past_images(prompt(LONG), 100) == 100


def test_reading_resumes_where_no_image_is_cut() -> None:
    assert [resumable(prompt(PLAIN), n, is_exact=False) for n in (5, 10, 20, 30, 35)] == [5, 10, 10, 30, 35]
    assert [resumable(prompt(LONG), n, is_exact=False) for n in (50, 620)] == [50, 620]
    assert resumable(prompt(LONG), 300, is_exact=True) == 300 - 300 % PIECE


def test_what_is_shared_of_a_cached_conversation_ends_before_an_image_that_would_be_cut() -> None:
    tokens, n = prompt(LONG), 300
    held, other = tokens[:n], np.concatenate([tokens[:200], WORDS])
    reuse = Reuse(n, n)
    assert reuse.shared(held, tokens, 1) == n  # it goes on where it was left
    assert reuse.shared(held, other, 1) == len(WORDS)
    assert reuse.shared(tokens, other, 1) == len(WORDS)
    assert Reuse(400, 400).shared(ids_of(b"c", 400), np.append(ids_of(b"c", 400), np.int32(1)), 1) == 400


def test_cells_of_an_image_that_lie_apart_are_given_up_together() -> None:
    cells, first, second = CellMap(200), Seat(0, 100), Seat(1, 100)
    first.tokens[:40] = prompt(SPATIAL)
    cells.take(first, 0, 20)
    cells.take(second, 0, 10)
    cells.take(first, 20, 20)
    dead, free = cells.leave(first, 10, 40)
    assert (dead, free) == (10, 30)
    assert cells.top == 40  # the image's last cells are lost with its first ones
    cells.leave(second, 0, 10)
    assert cells.top == 40


def test_a_pass_of_several_conversations_has_the_position_of_each_row() -> None:
    seats = [Seat(0, 100), Seat(1, 100)]
    seats[0].tokens[:40], seats[0].n_held, seats[1].n_held = prompt(SPATIAL), 38, 3
    asked = [PassInput(prompt(SPATIAL), Draft((7, 8))), PassInput(WORDS[:5])]
    for is_spatial, first in ((True, 23), (False, 38)):
        batch = JointBatch(16, 2, is_spatial).fill(seats, asked)
        assert batch.n_tokens == 6
        assert [batch.pos[i] for i in range(6)] == [first, first + 1, first + 2, first + 3, 3, 4]

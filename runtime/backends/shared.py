"""A context that several conversations share, so that one pass decodes rows of all of them.

Knows seats and cells; the generation loop decides which replies share a pass. Every conversation keeps its cells in the
order of its tokens, so where kernels round all rows alike, each gets the same logits as on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import llama_cpp.llama_cpp as lib

from runtime.backends.llama import LlamaBackend
from runtime.backends.model import LlamaModel
from runtime.backends.seat import Seat
from runtime.backends.seated import SeatedConversations
from runtime.backends.seats import IDLE_SEARCHES, CellMap, JointBatch, Seats
from runtime.backends.stored.saved_states import NEGLIGIBLE
from runtime.core.draft import Adapters, Logits, PassInput, Tokens
from runtime.core.errors import StoppedError
from runtime.core.image_runs import around, images_end
from runtime.models.cache_layout import shared_cells

UNTIDY = 128  # idle cells that cause compaction: in a model of 135M parameters they add 3% to a pass


class SharedBackend(SeatedConversations, LlamaBackend):
    """One context with `n_seats` seats: implements Backend.

    A pass over several conversations has at most n_rows - 1 draft tokens in total.
    """

    takes_trees = False

    def __init__(self, model: LlamaModel, n_ctx: int, n_rows: int = 17, n_batch: int = 512, n_seats: int = 2) -> None:
        self.n_seats = n_seats
        super().__init__(model, n_ctx, n_rows, n_batch)
        self._map = CellMap(self.n_cells)
        self._seats = Seats([self.seat, *(Seat(number, self.n_ctx) for number in range(1, n_seats))])
        self._joint = JointBatch(self.n_batch, n_seats, model.is_spatial)

    @property
    def n_spare(self) -> int:
        """Id of an empty sequence, as in LlamaBackend; the one before it has the cells that cannot be reused."""
        return self.n_seats + 1

    def _params(self, n_ctx: int) -> lib.llama_context_params:
        params = super()._params(n_ctx)
        params.n_ctx = shared_cells(n_ctx, self.n_seats)
        params.n_seq_max = self.n_spare + bool(self.model.window)
        params.n_outputs_max = max(self.n_rows + self.n_seats, params.n_seq_max)  # else the library ends the process
        return params

    def fits(self, lengths: Iterable[int]) -> bool:
        """Return whether conversations of these lengths (tokens) can be decoded together."""
        known = list(lengths)
        return len(known) <= self.n_seats and sum(known) + self.n_rows <= self.n_cells

    def forward_all(self, asked: Sequence[PassInput]) -> list[Logits]:
        """Return the logits of `forward` for each of several conversations, which fit together, from one pass."""
        if len(asked) == 1:
            return [self.forward(*asked[0][:3])]
        if any(each.context[-1] < 0 for each in asked):  # a prompt read up to an image, whose rows are no tokens
            return [self.forward(*each[:3]).copy() for each in asked]
        # The longest draft is last, so that the cells of its rejected tokens can be reused
        order = sorted(range(len(asked)), key=lambda i: len(asked[i].draft.tokens))
        ordered = [asked[i] for i in order]
        seats = self._seats_of(ordered)
        self._decode_joint(seats, ordered)
        found, at = dict[int, Logits](), 0
        logits = self._logits(sum(1 + len(each.draft.tokens) for each in ordered))
        for i, each in zip(order, ordered, strict=True):
            found[i] = logits[at : (at := at + 1 + len(each.draft.tokens))]
        return [found[i] for i in range(len(asked))]

    def use(self, adapters: Adapters) -> None:
        """Use these adapters from now on; see TargetBackend."""
        super().use(adapters)
        self._seats.adapters = adapters

    def _seats_of(self, asked: Sequence[PassInput]) -> list[Seat]:
        """Return a seat for each context, truncated to the shared prefix; cells for the new rows are available then."""
        self._seats.busy, room = [], self.n_batch - self.n_rows - self.n_seats
        seats = dict[int, Seat]()
        try:
            for i in self._seat_each(asked):
                room -= self._lacking(asked[i], room)
                self._seats.busy.append(self.seat)
                seats[i] = self.seat
            whole = sum(len(each.context) + len(each.draft.tokens) for each in asked)
            self._find_cells(whole - sum(seat.n_held for seat in self._seats.busy))
            return [seats[i] for i in range(len(asked))]
        finally:
            self._seats.busy = []

    def _seat_each(self, asked: Sequence[PassInput]) -> Iterator[int]:
        """Yield the index of each context while its seat is the current one: first continued conversations, so that a
        new one takes none of their seats.
        """
        new = list[int]()
        for i, (context, _, exact, _) in enumerate(asked):
            if seat := self._seats.continued(context, self._grain(exact)):
                self._sit(seat)
                yield i
            else:
                new.append(i)
        for i in new:
            self.resume(asked[i].context, asked[i].exact)
            yield i

    def _lacking(self, asked: PassInput, room: int) -> int:
        """Return how many tokens before the last one to decode in the current seat. Decode those over `room` now, and
        images with what is before them.
        """
        context, _, exact, _ = asked
        start, whole = self._cut_back(context, exact), len(context) - 1
        if end := whole if whole - start > room else images_end(context, start):
            start = self._with_room(start, end)
            self.seat.tokens[start:end] = context[start:end]
            self._decode_chain(start, end, 0, self._most_read(exact))
            self.seat.reuse.extend(start, end, end, exact or self._is_piece(start, end))
        return whole - self.seat.n_held

    def _decode_joint(self, seats: Sequence[Seat], asked: Sequence[PassInput]) -> None:
        """Decode the context tokens that are missing in the seats, and the drafts."""
        try:
            self._decode(self._joint.fill(seats, asked))
        except StoppedError:
            for seat in seats:
                end = self._position(seat.n_held, seat.tokens)
                lib.llama_memory_seq_rm(self.memory, seat.sequence, end, -1)
            raise
        at = 0
        for seat, (context, draft, exact, _) in zip(seats, asked, strict=True):
            end = len(context) + len(draft.tokens)
            self.shown.pass_on(seat.tokens[:end], seat.n_held, at)
            at += end - seat.n_held
            self._map.take(seat, seat.n_held, end - seat.n_held)
            seat.reuse.extend(seat.n_held, len(context), end, exact)
            seat.n_held, seat.used_at = end, self._seats.n_looked

    def _run(self, batch: lib.llama_batch, start: int, n_held: int) -> None:
        super()._run(batch, start, n_held)
        self._map.take(self.seat, start, n_held - start)
        self.seat.used_at = self._seats.n_looked

    @property
    def n_before(self) -> int:
        """Number of cells of other conversations in front of this conversation's next cell."""
        return max(0, self._map.top - self.seat.n_held)

    def n_cached(self, context: Tokens, exact: bool = True) -> int:
        """Return the number of leading tokens of `context` that can be reused; the last token is always decoded."""
        shares = self._seats.shares(context, self._grain(exact))
        if seat := self._seats.continued(context, self._grain(exact)) or self._own_seat(context, shares, exact):
            return shares[seat]
        here, saved = max(shares.values()), self.saved.n_shared(context, exact)
        if here <= NEGLIGIBLE and all(seat.n_held for seat in self._seats.all):
            here = 0  # the seat that has them may have to be vacated
        return saved if saved > here + NEGLIGIBLE else here

    def resume(self, context: Tokens, exact: bool = True) -> None:
        """Make the seat that `context` continues current; no other conversation is lost while they fit; see Backend."""
        if self.slots == 1 and not self.saved.fetched:
            return
        if next_seat := self._seats.continued(context, self._grain(exact)):
            self._sit(next_seat)
            return
        shares = self._seats.shares(context, self._grain(exact))
        if own := self._own_seat(context, shares, exact):
            self._sit(own)
            return
        source = max(reversed(shares), key=shares.__getitem__)  # of equal ones the one used last: it stays longest
        better = self.saved.pop(context, shares[source] + NEGLIGIBLE, exact)
        self._sit(self._vacant(source if shares[source] > NEGLIGIBLE else None))
        if better is not None:
            self._take_back(better, context, exact)
        elif self.seat is not source:
            self._share(source, around(context, shares[source])[0])
        self.saved.keep(max(0, self._most_saved - 1))

    def _own_seat(self, context: Tokens, shares: Mapping[Seat, int], exact: bool) -> Seat | None:
        """Return the free seat whose conversation `context` continues; None where notably more is cached elsewhere."""
        own = max(
            filter(partial(self._continues, context, shares), self._seats.free), key=shares.__getitem__, default=None
        )
        known = max(*shares.values(), self.saved.n_shared(context, exact) - NEGLIGIBLE)
        return own if own is not None and shares[own] + NEGLIGIBLE >= known else None

    def _continues(self, context: Tokens, shares: Mapping[Seat, int], seat: Seat) -> bool:
        """Return whether `context` continues the seat's conversation, so that at most a rejected draft is lost."""
        if self.n_rows == 1:
            return seat.n_held > 0 and shares[seat] >= seat.n_held - NEGLIGIBLE
        last = seat.reuse.n_asked - 1  # not in `shares` if it is also the last token of `context`
        is_alike = seat.n_held > 0 and seat.reuse.adapters == self.saved.adapters
        return is_alike and shares[seat] >= last and bool(seat.tokens[last] == context[last])

    def _with_room(self, start: int, end: int) -> int:
        self._find_cells(end - start)
        return self.seat.n_held

    def _find_cells(self, n: int) -> None:
        """Make `n` cells available: compact idle cells, and evict conversations that are not part of the pass.

        Now and then conversations that are no longer generated are evicted as well, because every row of a pass reads
        all cells up to the last used one.
        """
        self._seats.n_looked += 1
        is_tidy = (
            self._seats.n_looked % IDLE_SEARCHES
            or self._map.top - sum(seat.n_held for seat in self._seats.recent) < UNTIDY
        )
        if self._map.n_left >= n and is_tidy:
            return
        current, recent = self.seat, self._seats.recent
        for seat in [seat for seat in self._seats.free if seat is not current]:
            if seat not in recent or sum(each.n_held for each in self._seats.all) + n > self.n_cells:
                self._vacate(seat)
        self._sit(current)
        self._compact()

    def _drop(self, start: int) -> int:
        """Remove tokens from `start` on, as above; cells with others behind them stay, but nothing attends to them."""
        seat, garbage, start = self.seat.sequence, self.n_seats, self._whole(start)
        dead, free = self._map.leave(self.seat, start, self.seat.n_held)
        if free > dead:
            lib.llama_memory_seq_cp(self.memory, seat, garbage, self._position(dead), self._position(free))
        lib.llama_memory_seq_rm(self.memory, seat, self._position(start), -1)
        self.seat.cut(start)
        if not start and not self._map.n_used:
            self._clear(wipes=False)
        return start

    def _clear(self, wipes: bool = True) -> None:
        super()._clear(wipes)
        self._map.clear()
        for seat in self._seats.all:
            seat.clear()

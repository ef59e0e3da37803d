"""The scheduler: which tokens of which sequences the next forward computes.

Pure Python: no torch, no HTTP, no clock of its own. There is no prefill or
decode phase: each sequence has tokens whose KV is computed and tokens to do,
and every step packs, up to a token budget, first one token of each decoding
sequence, then chunks of prompts under way, then newly admitted ones.

Service order is by *rank* = arrival + priority * aging_s: one level of priority
is worth ``aging_s`` seconds of waiting, so nobody starves and no rank changes.
"""

import heapq
import math
from collections.abc import Sequence as ReadOnlyList

from failsoft.engine.kv_block import BlockPool, root_key
from failsoft.engine.request import EventSink, GenerationRequest
from failsoft.engine.sequence import (
    PlannedRow,
    RowResult,
    Scored,
    Sequence,
    SequenceState,
    StepPlan,
)
from failsoft.errors import EngineError, RequestTooLongError

MAX_SCORED_TOKENS = 128
"""Prompt tokens scored in one forward at most: each takes a whole row of logits, a megabyte
where the vocabulary has 262,144 entries."""


class Scheduler:
    """Waiting and running sequences of one engine; owned by the engine's thread.

    Args:
        pool: KV blocks.
        max_running: Sequences in one forward at most.
        max_step_tokens: Tokens in one forward at most.
        max_model_len: Prompt plus output tokens of one request at most.
        aging_s: Seconds of waiting that one level of priority is worth.
        is_prefix_cache_on: Whether full blocks are shared by equal prefixes.
        version_digest: Enters block keys; KV of two versions never mixes.
    """

    def __init__(
        self,
        *,
        pool: BlockPool,
        max_running: int,
        max_step_tokens: int,
        max_model_len: int,
        aging_s: float,
        is_prefix_cache_on: bool,
        version_digest: str,
    ) -> None:
        self.pool = pool
        self.max_running = max_running
        self.max_step_tokens = max_step_tokens
        self.max_model_len = max_model_len
        self.aging_s = aging_s
        self.is_prefix_cache_on = is_prefix_cache_on
        self.version_digest = version_digest
        self.running: list[Sequence] = []
        self.num_steps = 0
        self.preemptions_total = 0
        self.prefix_queried_tokens_total = 0
        self.prefix_hit_tokens_total = 0
        self._waiting: list[tuple[tuple[float, int], Sequence]] = []
        self._by_id: dict[str, Sequence] = {}
        self._num_added = 0
        self._score_room = 0
        """Prompt tokens that the step under way may still score."""
        self._in_flight: dict[bytes, Sequence] = {}
        """Keys of prompt blocks a running sequence is about to compute, and who does."""

    @property
    def num_waiting(self) -> int:
        """Sequences that are queued, preempted ones included."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether a step could do anything."""
        return bool(self.running or self._waiting)

    @property
    def waiting_ids(self) -> list[str]:
        """Ids of the queued sequences in service order."""
        return [sequence.request_id for _, sequence in sorted(self._waiting)]

    def get(self, request_id: str) -> Sequence | None:
        """Return the live sequence of that id."""
        return self._by_id.get(request_id)

    def live(self) -> list[Sequence]:
        """Return every sequence that has not ended."""
        return list(self._by_id.values())

    def check_fits(self, request: GenerationRequest) -> None:
        """Refuse what could never run, whatever else runs.

        Raises:
            RequestTooLongError: Prompt plus output exceeds the model's limit or the whole pool.
        """
        num_prompt, num_output = len(request.prompt_ids), request.sampling.max_tokens
        # The last sampled token is never fed back, so its KV needs no room.
        in_pool = self.pool.num_blocks * self.pool.block_size + 1
        limit = min(self.max_model_len, in_pool)
        if num_prompt + 1 > limit:
            raise RequestTooLongError(
                num_tokens=num_prompt + 1, limit=limit, what="the prompt", param="prompt"
            )
        if num_prompt + num_output > limit:
            raise RequestTooLongError(
                num_tokens=num_prompt + num_output,
                limit=limit,
                what=f"a prompt of {num_prompt} with max_tokens {num_output}",
                param="max_tokens",
            )

    def add(
        self,
        request: GenerationRequest,
        on_event: EventSink,
        *,
        seed: int,
        end_token_ids: frozenset[int] = frozenset(),
    ) -> Sequence:
        """Queue *request*, which ``check_fits`` has let through."""
        self._num_added += 1
        sequence = Sequence(
            request=request,
            on_event=on_event,
            order=self._num_added,
            rank=request.arrival_s + request.priority * self.aging_s,
            seed=seed,
            root_key=root_key(version_digest=self.version_digest, salt=request.cache_salt),
            tokens=list(request.prompt_ids),
            end_token_ids=end_token_ids,
            grammar=None if request.grammar is None else request.grammar.start(),
        )
        self._by_id[request.request_id] = sequence
        heapq.heappush(self._waiting, (sequence.sort_key, sequence))
        return sequence

    def remove(self, sequence: Sequence) -> None:
        """End a live sequence wherever it is and free its blocks."""
        if sequence.state is SequenceState.RUNNING:
            self.running.remove(sequence)
            self._give_up_blocks(sequence)
        elif sequence.state is SequenceState.WAITING:
            self._waiting = [entry for entry in self._waiting if entry[1] is not sequence]
            heapq.heapify(self._waiting)
        sequence.state = SequenceState.FINISHED
        del self._by_id[sequence.request_id]

    def expired(self, now_s: float) -> list[Sequence]:
        """Return the live sequences whose deadline is past at *now_s*."""
        return [
            sequence
            for sequence in self._by_id.values()
            if sequence.request.deadline_s is not None and sequence.request.deadline_s <= now_s
        ]

    # -- planning ---------------------------------------------------------------------------

    def schedule(self, now_s: float) -> StepPlan:
        """Plan the next forward: blocks are taken, sequences admitted or preempted.

        The plan is empty only when there is no work. Each plan must be followed
        by ``settle`` before the next.
        """
        rows: dict[int, PlannedRow] = {}
        preempted_before = self.preemptions_total
        budget = self.max_step_tokens
        self._score_room = MAX_SCORED_TOKENS
        for sequence in self._in_packing_order():
            if sequence.state is SequenceState.RUNNING:
                budget += self._pack_running(sequence, budget, rows)
        num_preempted = self.preemptions_total - preempted_before
        if not num_preempted:
            self._admit(budget, rows, now_s)
        assert rows or not self.has_work, "work is there and nothing could be scheduled"
        for row in rows.values():
            row.sequence.last_step = self.num_steps
        plan = StepPlan(
            step=self.num_steps,
            rows=tuple(rows.values()),
            num_preempted=num_preempted,
            scrub=self.pool.take_to_scrub(),
        )
        self.num_steps += 1
        return plan

    def _in_packing_order(self) -> list[Sequence]:
        """Decodes first; whoever was passed over longest leads, so a small budget is shared."""
        return sorted(
            self.running,
            key=lambda sequence: (
                not sequence.is_decoding,
                sequence.last_step if sequence.is_decoding else 0,
                sequence.sort_key,
            ),
        )

    def _pack_running(self, sequence: Sequence, budget: int, rows: dict[int, PlannedRow]) -> int:
        """Pack what fits of a running sequence; return the change of the budget."""
        wanted = self._chunk_len(sequence, budget)
        if wanted < 1:
            return 0
        returned = 0
        while self._room(sequence) < wanted:
            room = self._room(sequence)
            victim = max(self.running, key=lambda other: other.sort_key)
            if victim is sequence:
                if not sequence.is_decoding and room == 0 and len(self.running) > 1:
                    return returned  # a prompt can wait where it is; others still move
                if room == 0:
                    self._preempt(sequence)
                    return returned
            if room > 0 and not sequence.is_decoding:
                wanted = room  # a shorter chunk costs less than a preemption
                break
            packed = rows.pop(victim.order, None)
            returned += packed.num_tokens if packed else 0
            self._preempt(victim)
        self._pack(sequence, wanted, rows)
        return returned - wanted

    def _chunk_len(self, sequence: Sequence, budget: int) -> int:
        """Return how many tokens of *sequence* may go into the step."""
        wanted = min(sequence.num_todo, budget)
        if sequence.is_scoring:
            # What a preemption takes back is computed again, and scored only once.
            num_again = max(0, sequence.num_prompt_scored - sequence.num_computed)
            wanted = min(wanted, num_again + self._score_room)
        return wanted

    def _room(self, sequence: Sequence) -> int:
        """Tokens that fit behind the computed ones, free blocks included."""
        blocks = len(sequence.blocks) + self.pool.num_free
        return blocks * self.pool.block_size - sequence.num_computed

    def _pack(self, sequence: Sequence, num_tokens: int, rows: dict[int, PlannedRow]) -> None:
        until = sequence.num_computed + num_tokens
        missing = self.pool.num_blocks_for(until) - len(sequence.blocks)
        if missing > 0:
            sequence.blocks.extend(self.pool.allocate(missing))
        is_sampling = until == len(sequence.tokens)
        num_scored = 0
        if sequence.is_scoring:
            first = max(sequence.num_computed, sequence.num_prompt_scored)
            num_scored = max(0, until - first - is_sampling)
            self._score_room -= num_scored
        rows[sequence.order] = PlannedRow(
            sequence=sequence,
            start=sequence.num_computed,
            num_tokens=num_tokens,
            is_sampling=is_sampling,
            num_scored=num_scored,
        )

    def _preempt(self, victim: Sequence) -> None:
        """Send *victim* back to wait: its KV goes, its tokens and noise stay."""
        self.running.remove(victim)
        self._give_up_blocks(victim)
        victim.state = SequenceState.WAITING
        victim.num_preemptions += 1
        self.preemptions_total += 1
        heapq.heappush(self._waiting, (victim.sort_key, victim))

    def _give_up_blocks(self, sequence: Sequence) -> None:
        if not sequence.is_decoding:
            # Cut off in the middle of a prompt: a chunk's NaN shows only at the first logits.
            self.pool.distrust(sequence.blocks)
        self.pool.release(sequence.blocks)
        sequence.blocks = []
        sequence.num_computed = 0
        sequence.num_registered = 0
        for key in sequence.block_keys:
            if self._in_flight.get(key) is sequence:
                del self._in_flight[key]

    # -- admission --------------------------------------------------------------------------

    def _admit(self, budget: int, rows: dict[int, PlannedRow], now_s: float) -> None:
        """Admit waiting sequences in order while budget, slots and blocks last."""
        held_back: list[Sequence] = []
        while budget > 0 and self._waiting and len(self.running) < self.max_running:
            sequence = self._waiting[0][1]
            hit, is_coming = self._match(sequence)
            if is_coming or (sequence.is_scoring and not self._score_room):
                # Another is computing the very next block: one step later it is a hit. Or
                # others fill the step's room for scores.
                self.pool.release(hit)
                heapq.heappop(self._waiting)
                held_back.append(sequence)
                continue
            if not self._has_blocks_for(sequence, len(hit)):
                self.pool.release(hit)
                break
            heapq.heappop(self._waiting)
            self._start(sequence, hit, now_s)
            num_tokens = self._chunk_len(sequence, budget)
            self._pack(sequence, num_tokens, rows)
            budget -= num_tokens
        for sequence in held_back:
            heapq.heappush(self._waiting, (sequence.sort_key, sequence))

    def _match(self, sequence: Sequence) -> tuple[list[int], bool]:
        """Return the held prefix hit, and whether its next block is being computed now."""
        if not self.is_prefix_cache_on:
            return [], False
        size = self.pool.block_size
        # The last token is always computed: its logits are needed.
        keys = sequence.extend_keys((len(sequence.tokens) - 1) // size, size)
        if sequence.is_scoring:
            # A hit has no logits: only what is scored already may be one.
            keys = keys[: sequence.num_prompt_scored // size]
        hit = self.pool.match(keys, sequence.tokens)
        return hit, len(hit) < len(keys) and keys[len(hit)] in self._in_flight

    def _has_blocks_for(self, sequence: Sequence, num_hit_blocks: int) -> bool:
        """Whether all its tokens fit, with a block to spare for each running sequence.

        Admitting on less would preempt within a few steps. With nothing running the
        spare is not asked for, or a request as big as the pool would wait forever.
        """
        needed = self.pool.num_blocks_for(len(sequence.tokens)) - num_hit_blocks
        return needed + len(self.running) <= self.pool.num_free

    def _start(self, sequence: Sequence, hit: list[int], now_s: float) -> None:
        num_hit_tokens = len(hit) * self.pool.block_size
        sequence.state = SequenceState.RUNNING
        sequence.blocks = hit
        sequence.num_computed = num_hit_tokens
        sequence.num_registered = len(hit)
        if sequence.first_scheduled_s is None:
            sequence.first_scheduled_s = now_s
        if sequence.num_cached_tokens is None:
            sequence.num_cached_tokens = num_hit_tokens
            if self.is_prefix_cache_on:
                self.prefix_queried_tokens_total += sequence.num_prompt
                self.prefix_hit_tokens_total += num_hit_tokens
        for key in sequence.block_keys[len(hit) :]:
            self._in_flight.setdefault(key, sequence)
        self.running.append(sequence)

    # -- settling ---------------------------------------------------------------------------

    def settle(
        self, plan: StepPlan, results: ReadOnlyList[RowResult], now_s: float
    ) -> list[tuple[Sequence, RowResult]]:
        """Book a forward's outcome and return the sequences that got something or failed.

        Full blocks are offered to the prefix cache only here, after the forward; a
        failed row's blocks never are. Failed and ended sequences are still live:
        the caller ends them with ``remove``.

        Args:
            plan: The plan that ran.
            results: One for each row of the plan, in its order.
            now_s: Stamp of the tokens.
        """
        told: list[tuple[Sequence, RowResult]] = []
        for row, result in zip(plan.rows, results, strict=True):
            sequence = row.sequence
            if isinstance(result, EngineError):
                self.pool.taint(sequence.blocks)
                told.append((sequence, result))
                continue
            sequence.num_computed = row.start + row.num_tokens
            if self.is_prefix_cache_on:
                self._register_full_blocks(sequence)
            if result is None:
                continue
            token_id = result.token_id if isinstance(result, Scored) else result
            if isinstance(result, Scored):
                sequence.num_prompt_scored += len(result.prompt)
            if token_id is not None and sequence.request.sampling.max_tokens:
                self._append(sequence, token_id, now_s)
            told.append((sequence, result))
        return told

    @staticmethod
    def _append(sequence: Sequence, token_id: int, now_s: float) -> None:
        sequence.tokens.append(token_id)
        sequence.last_token_s = now_s
        if sequence.first_token_s is None:
            sequence.first_token_s = now_s

    def _register_full_blocks(self, sequence: Sequence) -> None:
        size = self.pool.block_size
        num_full = sequence.num_computed // size
        keys = sequence.extend_keys(num_full, size)
        for index in range(sequence.num_registered, num_full):
            token_ids = sequence.tokens[index * size : (index + 1) * size]
            self.pool.register(sequence.blocks[index], key=keys[index], token_ids=token_ids)
            if self._in_flight.get(keys[index]) is sequence:
                del self._in_flight[keys[index]]
        sequence.num_registered = max(sequence.num_registered, num_full)

    def check(self) -> None:
        """Raise AssertionError unless the books balance (tests and idle time run this)."""
        self.pool.check()
        held = [number for sequence in self.running for number in sequence.blocks]
        assert len(set(held)) == self.pool.num_used, "blocks are held that no sequence names"
        assert len(self._by_id) == len(self.running) + len(self._waiting)
        assert len(self.running) <= self.max_running
        for sequence in self.running:
            capacity = len(sequence.blocks) * self.pool.block_size
            assert sequence.num_computed <= capacity, f"{sequence.request_id} outgrew its blocks"
        assert all(not math.isnan(key[0]) for key, _ in self._waiting)
        if not self.running:
            assert not self._in_flight, "a key is in flight and nobody computes it"

"""Token counts of one answer, as OpenAI reports them."""

from typing import Any

from failsoft.engine.http.generation import Ended, Generation, Update


class Usage:
    """Adds up an answer's choices while they run.

    ``completion_tokens`` counts what the engine sampled, so it may exceed what the
    text shows by an end token and by what lay behind a stop string. A prompt counts once,
    however many choices it has, and so does what the prefix cache held of it.
    """

    def __init__(self, generation: Generation) -> None:
        self._is_first = [request.sampling.choice_index == 0 for request in generation.requests]
        self._num_prompt = sum(
            len(request.prompt_ids)
            for request, is_first in zip(generation.requests, self._is_first, strict=True)
            if is_first
        )
        self._num_output: dict[int, int] = {}
        self._num_cached = 0
        self._num_unknown = sum(self._is_first)
        """Prompts of which nobody knows yet what the prefix cache held."""

    def count(self, update: Update) -> None:
        """Take in one update."""
        if isinstance(update, Ended):
            self._num_output[update.index] = update.record.num_output_tokens
            if self._is_first[update.index]:
                self._num_cached += update.record.num_cached_tokens
                self._num_unknown -= 1
        else:
            self._num_output[update.index] = update.num_tokens

    def as_dict(self) -> dict[str, Any]:
        """Return OpenAI's ``usage`` object for what was counted so far."""
        num_output = sum(self._num_output.values())
        counts: dict[str, Any] = {
            "prompt_tokens": self._num_prompt,
            "completion_tokens": num_output,
            "total_tokens": self._num_prompt + num_output,
        }
        if not self._num_unknown:
            counts["prompt_tokens_details"] = {"cached_tokens": self._num_cached}
        return counts

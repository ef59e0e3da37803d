"""POST /v1/completions: the model's raw input, as text or as token ids."""

import json
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from failsoft.engine.http import answers, unsupported
from failsoft.engine.http.choice import Echo, Part, TextOptions
from failsoft.engine.http.generation import Delta, Ended, Generation, Update
from failsoft.engine.http.grammars import grammar_of
from failsoft.engine.http.logprob_shapes import completion_logprobs, prompt_logprobs
from failsoft.engine.http.output_format import read_format
from failsoft.engine.http.params import (
    Arrival,
    LogprobWishes,
    build_requests,
    check_model,
    num_choices,
)
from failsoft.engine.http.schemas import CompletionBody, GenerationBody, parse
from failsoft.engine.http.served import ServerState
from failsoft.engine.request import GenerationRequest
from failsoft.engine.structured.grammar import Grammar
from failsoft.engine.text.codec import TextCodec

_KIND = "text_completion"


async def create(request: Request) -> Response | ASGIApp:
    """Continue one prompt or several; choices follow the prompts' order, n for each."""
    ask = await answers.admit(request, "cmpl", _prepare)
    served = request.app.state.server.served
    assert isinstance(ask.body, CompletionBody)
    shape = _TextShape(ask.body, served.codec)
    if ask.body.stream:
        return answers.stream(ask, served, _KIND, shape)
    return await answers.collect(request, ask, _KIND, shape.whole)


def _prepare(
    raw: dict[str, Any], state: ServerState, answer_id: str, arrival: Arrival
) -> tuple[GenerationBody, Generation]:
    body = parse(CompletionBody, raw)
    check_model(body.model, state.served)
    unsupported.refuse_unsupported(raw, unsupported.COMPLETION)
    num_choices(body, num_prompts=len(body.prompt))
    wanted = read_format(body)
    grammar = grammar_of(wanted.constraint() if wanted else None, state.served)
    requests: list[GenerationRequest] = []
    echoes: list[Echo] = []
    for index, prompt in enumerate(body.prompt):
        asked = _requests_for(prompt, body, state, f"{answer_id}-{index}", arrival, grammar)
        requests += asked
        if body.echo:
            echoes += [_echo_of(prompt, asked[0], body, state.served.codec)] * len(asked)
    text = TextOptions(
        stops=body.stop,
        is_stop_shown=body.include_stop_str_in_output or False,
        is_special_shown=body.skip_special_tokens is False,
        wants_prompt_logprobs=body.prompt_logprobs is not None,
        echoes=echoes,
    )
    return body, Generation(state, requests, text)


def _requests_for(
    prompt: str | list[int],
    body: CompletionBody,
    state: ServerState,
    request_id: str,
    arrival: Arrival,
    grammar: Grammar | None,
) -> list[GenerationRequest]:
    ids = prompt
    if isinstance(ids, str):
        has_special = body.add_special_tokens is not False
        ids = state.served.codec.encode_prompt(ids, has_special=has_special)
    return build_requests(
        body,
        state.served,
        request_id=request_id,
        prompt_ids=ids,
        prompt_param="prompt",
        arrival=arrival,
        wishes=_wishes(body),
        grammar=grammar,
        least_tokens=0 if body.echo else 1,
    )


def _wishes(body: CompletionBody) -> LogprobWishes:
    """An echoed prompt has log probabilities like the rest of the text."""
    of_prompt = body.prompt_logprobs
    if body.echo and body.logprobs is not None:
        of_prompt = max(body.logprobs, of_prompt or 0)
    return LogprobWishes(body.logprobs, of_prompt)


def _echo_of(
    prompt: str | list[int], asked: GenerationRequest, body: CompletionBody, codec: TextCodec
) -> Echo:
    """Return what to put before the text: the prompt as sent, or as its tokens read.

    Where a tokenizer does not give back what it was given, offsets are those of its own text.
    """
    is_whole = isinstance(prompt, str) and body.truncate_prompt_tokens is None
    if isinstance(prompt, str) and is_whole and body.logprobs is None:
        return Echo(prompt, [])
    detokenizer = codec.detokenizer(is_special_shown=body.skip_special_tokens is False)
    offsets: list[int] = []
    text = ""
    for token_id in asked.prompt_ids:
        offsets.append(len(text))
        text += detokenizer.push(token_id)
    text += detokenizer.flush()
    offsets = [] if body.logprobs is None else offsets
    return Echo(prompt if isinstance(prompt, str) and is_whole else text, offsets)


class _TextShape:
    def __init__(self, body: CompletionBody, codec: TextCodec) -> None:
        self._num_top = body.logprobs
        self._num_prompt_top = body.prompt_logprobs or 0
        self._texts = codec.token_texts

    def delta(self, delta: Delta) -> list[str]:
        part = delta.part
        logprobs = json.dumps(self._logprobs(part)) if part.tokens else "null"
        prompt = "".join(
            f',"{name}":{json.dumps(value)}' for name, value in self._prompt_fields(part)
        )
        return [
            f'{{"index":{delta.index},"text":{json.dumps(part.text)},'
            f'"logprobs":{logprobs},"finish_reason":null{prompt}}}'
        ]

    def end(self, ended: Ended) -> list[str]:
        return [
            f'{{"index":{ended.index},"text":"","logprobs":null,'
            f'"finish_reason":"{ended.finish_reason}"}}'
        ]

    def idle(self, index: int) -> str:
        return f'{{"index":{index},"text":"","logprobs":null,"finish_reason":null}}'

    def beside(self, _update: Update) -> str:
        return ""

    def whole(self, choices: list[answers.CollectedChoice]) -> dict[str, Any]:
        """Return the answer's own fields."""
        return {"choices": [self._choice(choice) for choice in choices]}

    def _choice(self, choice: answers.CollectedChoice) -> dict[str, Any]:
        return {
            "index": choice.index,
            "text": choice.part.text,
            "logprobs": self._logprobs(choice.part),
            "finish_reason": choice.finish_reason,
            **dict(self._prompt_fields(choice.part)),
        }

    def _logprobs(self, part: Part) -> dict[str, Any] | None:
        if self._num_top is None:
            return None
        return completion_logprobs(part.tokens, self._texts, num_top=self._num_top)

    def _prompt_fields(self, part: Part) -> Iterable[tuple[str, Any]]:
        if part.prompt is not None:
            written = prompt_logprobs(part.prompt, self._texts, num_top=self._num_prompt_top)
            yield "prompt_logprobs", written

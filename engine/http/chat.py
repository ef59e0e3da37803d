"""POST /v1/chat/completions."""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from failsoft.engine.http import answers, unsupported
from failsoft.engine.http.choice import Part, TextOptions
from failsoft.engine.http.generation import Delta, Ended, Generation, Update
from failsoft.engine.http.logprob_shapes import chat_logprobs, prompt_logprobs
from failsoft.engine.http.params import (
    Arrival,
    LogprobWishes,
    build_requests,
    check_model,
    num_choices,
)
from failsoft.engine.http.schemas import ChatBody, GenerationBody, TokenizeChatBody, parse
from failsoft.engine.http.served import ServerState
from failsoft.engine.request import MAX_LOGPROBS, check_integer
from failsoft.engine.text.codec import TemplateOptions, TextCodec
from failsoft.errors import InvalidRequestError


async def create(request: Request) -> Response | ASGIApp:
    """Answer a chat."""
    ask = await answers.admit(request, "chatcmpl", _prepare)
    served = request.app.state.server.served
    assert isinstance(ask.body, ChatBody)
    shape = _ChatShape(ask.body, served.codec)
    if ask.body.stream:
        return answers.stream(ask, served, "chat.completion.chunk", shape)
    return await answers.collect(request, ask, "chat.completion", shape.whole)


def _prepare(
    raw: dict[str, Any], state: ServerState, answer_id: str, arrival: Arrival
) -> tuple[GenerationBody, Generation]:
    served = state.served
    body = parse(ChatBody, raw)
    check_model(body.model, served)
    unsupported.refuse_unsupported(raw, unsupported.CHAT)
    num_choices(body, num_prompts=1)
    messages = [turn.to_message(index) for index, turn in enumerate(body.messages)]
    requests = build_requests(
        body,
        served,
        request_id=answer_id,
        prompt_ids=served.codec.encode_chat(messages, template_options(body)),
        prompt_param="messages",
        arrival=arrival,
        wishes=_wishes(body),
    )
    text = TextOptions(
        stops=[*body.stop, *served.stop_strings],
        is_stop_shown=body.include_stop_str_in_output or False,
        is_special_shown=body.skip_special_tokens is False,
        wants_prompt_logprobs=body.prompt_logprobs is not None,
    )
    return body, Generation(state, requests, text)


def template_options(body: ChatBody | TokenizeChatBody) -> TemplateOptions:
    """Return them; a last message to be continued has no turn opened behind it by itself."""
    is_continued = body.continue_final_message or False
    asked = body.add_generation_prompt
    return TemplateOptions(
        is_turn_opened=not is_continued if asked is None else asked,
        is_last_continued=is_continued,
        variables=body.chat_template_kwargs or {},
    )


def _wishes(body: ChatBody) -> LogprobWishes:
    if body.top_logprobs is not None:
        check_integer(body.top_logprobs, "top_logprobs", 0, MAX_LOGPROBS)
        if body.top_logprobs and not body.logprobs:
            raise InvalidRequestError(
                f"top_logprobs = {body.top_logprobs} needs logprobs = true", param="top_logprobs"
            )
    return LogprobWishes(body.top_logprobs or 0 if body.logprobs else None, body.prompt_logprobs)


class _ChatShape:
    """Sends the role with the first text, so that a client's first chunk is its first text."""

    def __init__(self, body: ChatBody, codec: TextCodec) -> None:
        self._num_top = body.top_logprobs or 0
        self._wants_logprobs = body.logprobs or False
        self._num_prompt_top = body.prompt_logprobs or 0
        self._texts = codec.token_texts
        self._begun: set[int] = set()
        """Choices whose role is sent."""

    def delta(self, delta: Delta) -> str:
        logprobs = json.dumps(self._logprobs(delta.part)) if delta.part.tokens else "null"
        content = f'"content":{json.dumps(delta.part.text)}'
        return self._choice(delta.index, content, logprobs, "null")

    def end(self, ended: Ended) -> str:
        # An answer without any text still has a content.
        content = "" if ended.index in self._begun else '"content":""'
        return self._choice(ended.index, content, "null", f'"{ended.finish_reason}"')

    def _choice(self, index: int, content: str, logprobs: str, finish_reason: str) -> str:
        role = "" if index in self._begun else '"role":"assistant",'
        self._begun.add(index)
        return (
            f'{{"index":{index},"delta":{{{role}{content}}},'
            f'"logprobs":{logprobs},"finish_reason":{finish_reason}}}'
        )

    def beside(self, update: Update) -> str:
        """VLLM has the prompt's log probabilities at the top of a chat's answer."""
        if not isinstance(update, Delta) or update.index or update.part.prompt is None:
            return ""
        return f',"prompt_logprobs":{json.dumps(self._prompt(update.part))}'

    def whole(self, choices: list[answers.CollectedChoice]) -> dict[str, Any]:
        """Return the answer's own fields."""
        fields: dict[str, Any] = {"choices": [self._message(choice) for choice in choices]}
        if choices[0].part.prompt is not None:
            fields["prompt_logprobs"] = self._prompt(choices[0].part)
        return fields

    def _message(self, choice: answers.CollectedChoice) -> dict[str, Any]:
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.part.text, "refusal": None},
            "logprobs": self._logprobs(choice.part),
            "finish_reason": choice.finish_reason,
        }

    def _logprobs(self, part: Part) -> dict[str, Any] | None:
        if not self._wants_logprobs:
            return None
        return chat_logprobs(part.tokens, self._texts, num_top=self._num_top)

    def _prompt(self, part: Part) -> list[dict[str, Any] | None]:
        assert part.prompt is not None
        return prompt_logprobs(part.prompt, self._texts, num_top=self._num_prompt_top)

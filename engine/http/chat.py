"""POST /v1/chat/completions."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from failsoft.engine.http import answers, unsupported
from failsoft.engine.http.chat_shape import ChatShape
from failsoft.engine.http.choice import TextOptions
from failsoft.engine.http.generation import Generation
from failsoft.engine.http.grammars import grammar_of
from failsoft.engine.http.output_format import read_format
from failsoft.engine.http.params import (
    Arrival,
    LogprobWishes,
    build_requests,
    check_model,
    num_choices,
)
from failsoft.engine.http.schemas import ChatBody, GenerationBody, parse
from failsoft.engine.http.served import ServerState
from failsoft.engine.http.token_schemas import TokenizeChatBody
from failsoft.engine.http.tools import CallPlan, plan_calls, reader_of
from failsoft.engine.request import MAX_LOGPROBS, check_integer
from failsoft.engine.text.codec import TemplateOptions
from failsoft.errors import InvalidRequestError


async def create(request: Request) -> Response | ASGIApp:
    """Answer a chat."""
    ask = await answers.admit(request, "chatcmpl", _prepare)
    served = request.app.state.server.served
    assert isinstance(ask.body, ChatBody)
    shape = ChatShape(ask.body, served.codec, reader_of(ask.body))
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
    plan = plan_calls(body, read_format(body))
    requests = build_requests(
        body,
        served,
        request_id=answer_id,
        prompt_ids=served.codec.encode_chat(messages, template_options(body, plan)),
        prompt_param="messages",
        arrival=arrival,
        wishes=_wishes(body),
        grammar=grammar_of(plan.constraint, served),
    )
    needs_tags = bool(plan.template_tools) and served.codec.hides_calls
    text = TextOptions(
        stops=[*body.stop, *served.stop_strings],
        is_stop_shown=body.include_stop_str_in_output or False,
        is_special_shown=body.skip_special_tokens is False or needs_tags,
        wants_prompt_logprobs=body.prompt_logprobs is not None,
    )
    return body, Generation(state, requests, text)


def template_options(body: ChatBody | TokenizeChatBody, plan: CallPlan) -> TemplateOptions:
    """Return them; a last message to be continued has no turn opened behind it by itself."""
    is_continued = body.continue_final_message or False
    asked = body.add_generation_prompt
    return TemplateOptions(
        is_turn_opened=not is_continued if asked is None else asked,
        is_last_continued=is_continued,
        variables=body.chat_template_kwargs or {},
        tools=plan.template_tools,
    )


def _wishes(body: ChatBody) -> LogprobWishes:
    if body.top_logprobs is not None:
        check_integer(body.top_logprobs, "top_logprobs", 0, MAX_LOGPROBS)
        if body.top_logprobs and not body.logprobs:
            raise InvalidRequestError(
                f"top_logprobs = {body.top_logprobs} needs logprobs = true", param="top_logprobs"
            )
    return LogprobWishes(body.top_logprobs or 0 if body.logprobs else None, body.prompt_logprobs)

"""POST /v1/chat/completions."""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from failsoft.engine.http import answers, unsupported
from failsoft.engine.http.generation import Generation
from failsoft.engine.http.params import Arrival, build_request, check_model
from failsoft.engine.http.schemas import ChatBody, GenerationBody, parse
from failsoft.engine.http.served import ServerState


async def create(request: Request) -> Response | ASGIApp:
    """Answer a chat."""
    ask = await answers.admit(request, "chatcmpl", _prepare)
    if ask.body.stream:
        served = request.app.state.server.served
        return answers.stream(ask, served, "chat.completion.chunk", _ChatShape())
    return await answers.collect(request, ask, "chat.completion", _write_choice)


def _prepare(
    raw: dict[str, Any], state: ServerState, answer_id: str, arrival: Arrival
) -> tuple[GenerationBody, Generation]:
    served = state.served
    body = parse(ChatBody, raw)
    check_model(body.model, served)
    unsupported.refuse_unsupported(raw, unsupported.CHAT)
    messages = [turn.to_message(index) for index, turn in enumerate(body.messages)]
    request = build_request(
        body,
        served,
        request_id=answer_id,
        prompt_ids=served.codec.encode_chat(messages),
        prompt_param="messages",
        arrival=arrival,
    )
    return body, Generation(state, [request], stops=[*body.stop, *served.stop_strings])


def _write_choice(choice: answers.CollectedChoice) -> dict[str, Any]:
    return {
        "index": choice.index,
        "message": {"role": "assistant", "content": choice.text, "refusal": None},
        "logprobs": None,
        "finish_reason": choice.finish_reason,
    }


class _ChatShape:
    """Sends the role with the first text, so that a client's first chunk is its first text."""

    def __init__(self) -> None:
        self._is_role_sent = False

    def delta(self, index: int, text: str) -> str:
        return self._choice(index, f'"content":{json.dumps(text)}', "null")

    def end(self, index: int, finish_reason: str) -> str:
        content = "" if self._is_role_sent else '"content":""'  # an answer without any text
        return self._choice(index, content, f'"{finish_reason}"')

    def _choice(self, index: int, content: str, finish_reason: str) -> str:
        role = "" if self._is_role_sent else '"role":"assistant",'
        self._is_role_sent = True
        return (
            f'{{"index":{index},"delta":{{{role}{content}}},'
            f'"logprobs":null,"finish_reason":{finish_reason}}}'
        )

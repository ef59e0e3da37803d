"""POST /v1/completions: the model's raw input, as text or as token ids."""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from failsoft.engine.http import answers, unsupported
from failsoft.engine.http.generation import Generation
from failsoft.engine.http.params import Arrival, build_request, check_model
from failsoft.engine.http.schemas import CompletionBody, GenerationBody, parse
from failsoft.engine.http.served import ServerState
from failsoft.engine.request import GenerationRequest

_KIND = "text_completion"


async def create(request: Request) -> Response | ASGIApp:
    """Continue one prompt or several; choices follow the prompts' order."""
    ask = await answers.admit(request, "cmpl", _prepare)
    if ask.body.stream:
        return answers.stream(ask, request.app.state.server.served, _KIND, _TextShape())
    return await answers.collect(request, ask, _KIND, _write_choice)


def _prepare(
    raw: dict[str, Any], state: ServerState, answer_id: str, arrival: Arrival
) -> tuple[GenerationBody, Generation]:
    served = state.served
    body = parse(CompletionBody, raw)
    check_model(body.model, served)
    unsupported.refuse_unsupported(raw, unsupported.COMPLETION)

    def build(index: int, prompt: str | list[int]) -> GenerationRequest:
        ids = served.codec.encode_prompt(prompt) if isinstance(prompt, str) else prompt
        return build_request(
            body,
            served,
            request_id=f"{answer_id}-{index}",
            prompt_ids=ids,
            prompt_param="prompt",
            arrival=arrival,
        )

    requests = [build(index, prompt) for index, prompt in enumerate(body.prompt)]
    return body, Generation(state, requests, stops=body.stop)


def _write_choice(choice: answers.CollectedChoice) -> dict[str, Any]:
    return {
        "index": choice.index,
        "text": choice.text,
        "logprobs": None,
        "finish_reason": choice.finish_reason,
    }


class _TextShape:
    def delta(self, index: int, text: str) -> str:
        return f'{{"index":{index},"text":{json.dumps(text)},"logprobs":null,"finish_reason":null}}'

    def end(self, index: int, finish_reason: str) -> str:
        return f'{{"index":{index},"text":"","logprobs":null,"finish_reason":"{finish_reason}"}}'

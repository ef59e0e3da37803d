"""POST /tokenize and /detokenize, GET /tokenizer_info: text to tokens and back, as in vLLM.

Nothing here reaches the engine. A long text goes to a thread, as for an answer.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from failsoft.engine.http import unsupported
from failsoft.engine.http.body import read_json
from failsoft.engine.http.chat import template_options
from failsoft.engine.http.params import check_model
from failsoft.engine.http.schemas import parse
from failsoft.engine.http.served import ServedModel, ServerState
from failsoft.engine.http.token_schemas import (
    DetokenizeBody,
    TokenizeChatBody,
    TokenizePromptBody,
)
from failsoft.engine.http.tools import plan_calls
from failsoft.engine.request import check_ids
from failsoft.errors import EngineError

_MAX_INLINE_BYTES = 4000
"""Bodies up to this long are worked off on the loop."""

Answer = dict[str, Any]


async def tokenize(request: Request) -> JSONResponse:
    """Return the token ids of a prompt or a chat."""
    return await _answer(request, _tokenize)


async def detokenize(request: Request) -> JSONResponse:
    """Return the text of token ids."""
    return await _answer(request, _detokenize)


async def describe(request: Request) -> JSONResponse:
    """Return what a client needs to tokenise by itself."""
    served: ServedModel = request.app.state.server.served
    return JSONResponse({**served.codec.describe(), "model_max_length": served.max_model_len})


async def _answer(
    request: Request, work: Callable[[dict[str, Any], ServedModel], Answer]
) -> JSONResponse:
    """Read the body, work on it, and count it if it is refused.

    Raises:
        EngineError: The body is refused.
    """
    state: ServerState = request.app.state.server
    try:
        raw = await read_json(request, config=state.config)
        num_bytes = int(request.headers.get("content-length", _MAX_INLINE_BYTES + 1))
        if num_bytes > _MAX_INLINE_BYTES:
            return JSONResponse(await asyncio.to_thread(work, raw, state.served))
        return JSONResponse(work(raw, state.served))
    except EngineError as exc:
        state.metrics.count_rejected(exc)
        raise


def _tokenize(raw: dict[str, Any], served: ServedModel) -> Answer:
    body: TokenizeChatBody | TokenizePromptBody
    if raw.get("messages") is None:
        body = parse(TokenizePromptBody, raw)
        has_special = body.add_special_tokens is not False
        ids = served.codec.encode_prompt(body.prompt, has_special=has_special)
    else:
        body = parse(TokenizeChatBody, raw)
        unsupported.refuse_unsupported(raw, unsupported.TOKENIZE_CHAT)
        messages = [turn.to_message(index) for index, turn in enumerate(body.messages)]
        ids = served.codec.encode_chat(messages, template_options(body, plan_calls(body, None)))
    check_model(body.model, served)
    return {
        "count": len(ids),
        "max_model_len": served.max_model_len,
        "tokens": ids,
        "token_strs": served.codec.spell(ids) if body.return_token_strs else None,
    }


def _detokenize(raw: dict[str, Any], served: ServedModel) -> Answer:
    body = parse(DetokenizeBody, raw)
    check_model(body.model, served)
    check_ids(body.tokens, "tokens", served.vocab_size)
    return {"prompt": served.codec.decode(body.tokens)}

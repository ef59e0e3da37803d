"""Every route of the engine's server, once: the application and its document are made of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from starlette.routing import Route

from failsoft.engine.http import (
    about,
    answer_schemas,
    chat,
    completions,
    health,
    models,
    schemas,
    token_schemas,
    tokens,
    unsupported,
)
from failsoft.engine.http.base_app import Handler

_JSON = "application/json"
_GENERATION = (404, 408, 500, 503, 504)
_TEXT = (404, 408)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path: what it takes, what it answers, and how it may fail.

    Statuses that the guard gives, and 500 for a bug, hold for all and are not listed.
    """

    method: str
    path: str
    """As OpenAPI writes it; a braced part may hold slashes."""
    handler: Handler
    group: str
    summary: str
    bodies: Mapping[type[BaseModel], Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    """What the request's body may be, one of these, each with the fields that it takes with
    these values only, and null."""
    answers: Mapping[int, type[BaseModel]] = field(default_factory=dict)
    """JSON answers that are no faults, by status."""
    text_types: tuple[str, ...] = ()
    """Media types of an answer with status 200 that is not JSON."""
    chunk: type[BaseModel] | None = None
    """The data of a streamed answer's events, before ``[DONE]``."""
    faults: tuple[int, ...] = ()
    is_open: bool = False
    """Whether it answers without the key."""

    @property
    def route(self) -> Route:
        """Return it as Starlette routes it."""
        return Route(self.path.replace("}", ":path}"), self.handler, methods=[self.method])


def _get(path: str, handler: Handler, group: str, summary: str, **more: Any) -> Operation:
    return Operation(method="GET", path=path, handler=handler, group=group, summary=summary, **more)


def _post(path: str, handler: Handler, group: str, summary: str, **more: Any) -> Operation:
    return Operation(
        method="POST", path=path, handler=handler, group=group, summary=summary, **more
    )


def _probe(path: str, summary: str) -> Operation:
    answers = {200: answer_schemas.Live}
    return _get(path, health.live, "Health", summary, answers=answers, is_open=True)


def _tokenize(path: str) -> Operation:
    return _post(
        path,
        tokens.tokenize,
        "Tokens",
        "Token ids of a prompt or of a chat, as the model would get them.",
        bodies={
            token_schemas.TokenizePromptBody: {},
            token_schemas.TokenizeChatBody: unsupported.TOKENIZE_CHAT,
        },
        answers={200: answer_schemas.Tokenized},
        faults=_TEXT,
    )


def _detokenize(path: str) -> Operation:
    return _post(
        path,
        tokens.detokenize,
        "Tokens",
        "The text of token ids, control tokens included.",
        bodies={token_schemas.DetokenizeBody: {}},
        answers={200: answer_schemas.Detokenized},
        faults=_TEXT,
    )


OPERATIONS: tuple[Operation, ...] = (
    _post(
        "/v1/chat/completions",
        chat.create,
        "Answers",
        "Answer a chat, whole or as a stream of events.",
        bodies={schemas.ChatBody: unsupported.CHAT},
        answers={200: answer_schemas.ChatAnswer},
        chunk=answer_schemas.ChatChunk,
        faults=_GENERATION,
    ),
    _post(
        "/v1/completions",
        completions.create,
        "Answers",
        "Continue one prompt or several, given as text or as token ids.",
        bodies={schemas.CompletionBody: unsupported.COMPLETION},
        answers={200: answer_schemas.CompletionAnswer},
        chunk=answer_schemas.CompletionChunk,
        faults=_GENERATION,
    ),
    _get(
        "/v1/models",
        models.list_all,
        "Models",
        "The version that is served here, as a list of one.",
        answers={200: answer_schemas.ModelList},
    ),
    _get(
        "/v1/models/{model_id}",
        models.retrieve,
        "Models",
        "The version that is served here; another name is 404.",
        answers={200: answer_schemas.Model},
        faults=(404,),
    ),
    _tokenize("/tokenize"),
    _tokenize("/v1/tokenize"),
    _detokenize("/detokenize"),
    _detokenize("/v1/detokenize"),
    _get(
        "/tokenizer_info",
        tokens.describe,
        "Tokens",
        "The tokenizer's class, special tokens and chat template.",
        answers={200: answer_schemas.TokenizerInfo},
    ),
    _probe("/health", "200 while the process answers."),
    _probe("/health/live", "200 while the process answers."),
    _get(
        "/health/ready",
        health.ready,
        "Health",
        "200 while tokens progress; else 503 with the reason.",
        answers={200: answer_schemas.Ready, 503: answer_schemas.NotReady},
        is_open=True,
    ),
    _get(
        "/metrics",
        health.metrics,
        "Health",
        "Prometheus' text exposition.",
        text_types=("text/plain",),
    ),
    _get(
        "/version",
        about.version,
        "About",
        "The version of failsoft itself.",
        answers={200: answer_schemas.SoftwareVersion},
    ),
    _get("/openapi.json", about.document, "About", "This document.", answers={200: BaseModel}),
    _get("/docs", about.page, "About", "This document as a page.", text_types=("text/html",)),
)
"""In the order in which a reader wants them."""

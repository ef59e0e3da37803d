"""``failsoft chat``: ask an OpenAI-compatible endpoint one question, streamed to stdout."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from failsoft.cli.serving import read_api_key
from failsoft.errors import ConfigError, EngineError

if TYPE_CHECKING:
    import httpx2

_READ_S = 600.0
"""A cold engine on a busy machine may take minutes to its first token."""
_CONNECT_S = 5.0


def chat(
    message: Annotated[str, typer.Argument(help="What to say.")],
    url: Annotated[
        str, typer.Option(help="The endpoint, /v1 included.")
    ] = "http://127.0.0.1:8000/v1",
    model: Annotated[
        str | None, typer.Option(help="Model to ask.", show_default="the one that is served")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens to answer with at most.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="0 always takes the likeliest token.")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable with the endpoint's key.")
    ] = None,
) -> None:
    """Ask one question and print the answer as it comes."""
    fields = {"model": model, "max_tokens": max_tokens, "temperature": temperature}
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": message}],
        "stream": True,
        **{name: value for name, value in fields.items() if value is not None},
    }
    print_answer(stream_answer(url, body, api_key=read_api_key(api_key_env)))


class Piece(NamedTuple):
    """What one chunk of an answer adds."""

    text: str
    finish_reason: str | None


def print_answer(pieces: Iterator[Piece]) -> None:
    """Print an answer as it comes, and say on stderr if it was cut at its length."""
    is_begun, finish_reason = False, None
    try:
        for piece in pieces:
            typer.echo(piece.text, nl=False)
            is_begun = is_begun or bool(piece.text)
            finish_reason = piece.finish_reason or finish_reason
    finally:
        if is_begun:  # also when it breaks off: the shell's prompt belongs on its own line
            typer.echo()
    if finish_reason == "length":
        typer.echo("the answer was cut at its length; raise --max-tokens", err=True)


def stream_answer(url: str, body: dict[str, Any], *, api_key: str | None) -> Iterator[Piece]:
    """Yield a streamed chat piece by piece.

    Raises:
        ConfigError: *url* is no HTTP URL, or *body* cannot be written as JSON.
        EngineError: Nobody answers there, or the answer is a fault or breaks off.
    """
    import httpx2

    headers = {"content-type": "application/json"}
    if api_key is not None:
        headers["authorization"] = f"Bearer {api_key}"
    content = _encode(body)
    route = f"{url.rstrip('/')}/chat/completions"
    try:
        with (
            httpx2.Client(timeout=httpx2.Timeout(_READ_S, connect=_CONNECT_S)) as client,
            client.stream("POST", route, content=content, headers=headers) as response,
        ):
            if not response.is_success:
                raise EngineError(f"{url} answers {_fault_of(response)}{_hint(response)}")
            yield from _pieces(response, url)
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as exc:
        raise ConfigError(key="--url", value=url, allowed="an http:// or https:// URL") from exc
    except httpx2.ConnectError as exc:
        raise EngineError(f"nobody answers at {url}; start an engine with `failsoft up`") from exc
    except httpx2.TransportError as exc:
        raise EngineError(f"the connection to {url} broke: {exc}; ask again") from exc


def _pieces(response: "httpx2.Response", url: str) -> Iterator[Piece]:
    for event in _events(response):
        if event == "[DONE]":
            return
        yield _piece_of(event, url)
    raise EngineError(f"{url} ended its answer in the middle; ask again")


def _piece_of(event: str, url: str) -> Piece:
    """Return what one chunk adds."""
    try:
        chunk = json.loads(event)
        fault = chunk.get("error")
        message = fault and fault.get("message")
        choices = chunk.get("choices", [])
        texts = [choice["delta"].get("content") or "" for choice in choices]
        reasons = [choice.get("finish_reason") for choice in choices]
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise EngineError(
            f"{url} sends no OpenAI chat chunks ({event[:40]!r}); check --url"
        ) from exc
    if fault:
        raise EngineError(f"{url} broke off: {message}")
    return Piece("".join(texts), next(filter(None, reasons), None))


def _encode(body: dict[str, Any]) -> bytes:
    """Return *body* as JSON in UTF-8.

    Raises:
        ConfigError: The message is not UTF-8, or a number is none in JSON.
    """
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as exc:
        raise ConfigError(key="MESSAGE", value=exc.object[:40], allowed="text in UTF-8") from exc
    except ValueError as exc:
        raise ConfigError(
            key="--temperature", value=body.get("temperature"), allowed="a finite number"
        ) from exc


def _events(response: "httpx2.Response") -> Iterator[str]:
    """Yield the data of each server-sent event; only line feeds end a line."""
    rest = ""
    for text in response.iter_text():
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            if line.startswith("data:"):
                yield line.removeprefix("data:").strip()


def _hint(response: "httpx2.Response") -> str:
    """Return the next step for the refusals that the command line itself can mend."""
    if response.status_code == 401:
        return "; name the key's variable with --api-key-env"
    if response.status_code == 404 and not response.url.path.startswith("/v1/"):
        return "; does --url lack its /v1?"
    return ""


def _fault_of(response: "httpx2.Response") -> str:
    """Return the status and, if it is in OpenAI's shape, the message of a refusal."""
    response.read()
    try:
        message = response.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code} {response.reason_phrase}"
    return f"{response.status_code}: {message}"

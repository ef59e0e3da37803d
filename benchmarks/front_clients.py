"""The official client against a real front, unchanged, and two tenants who must not meet."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
from openai import AsyncOpenAI, OpenAI

from benchmarks.front_callers import Seen, ask
from benchmarks.front_recovery import COUNTRIES
from benchmarks.proof import Line, exactly
from benchmarks.up_session import UpSession, running_up
from failsoft.config.schema import BUILT_IN_FILE

_QUESTION = "What is the capital of Japan?"
_ANSWER = "Tokyo"
"""Of what a model this small knows, the reply with the widest lead over any other: bfloat16
may round a closer one either way."""
_KEYS = {"alpha": "KEY_OF_ALPHA", "beta": "KEY_OF_BETA"}
_LONG = "Here is a list of facts to remember, one by one. " * 12 + "Which was the first?"
_NO_REPLY_CACHE = {"x-failsoft-cache": "off"}


def measure_openai(up: UpSession) -> Iterator[Line]:
    """Yield what the client's sync, async and streaming calls return."""
    client = OpenAI(base_url=up.api_url, api_key="unused")
    plain = client.chat.completions.with_raw_response.create(
        model="chat", messages=[{"role": "user", "content": _QUESTION}], temperature=0
    )
    text = plain.parse().choices[0].message.content or ""
    stream = client.chat.completions.create(
        model="chat",
        messages=[{"role": "user", "content": _QUESTION}],
        temperature=0,
        stream=True,
    )
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    later = asyncio.run(_ask_async(up.api_url))
    done = client.completions.create(
        model="chat", prompt="The capital of Japan is", max_tokens=4, temperature=0
    )
    texts = {
        "sync": text,
        "stream": streamed,
        "async": later,
        "completion": done.choices[0].text,
    }
    for name, answer in texts.items():
        yield Line(
            must_hold=f"the official client, {name}: an answer that names {_ANSWER}",
            figure=repr(answer),
            has_passed=_ANSWER in answer,
        )
    said = {k: v for k, v in plain.headers.items() if k.startswith("x-failsoft")}
    wanted = {"x-failsoft-rung", "x-failsoft-version", "x-failsoft-attempts"}
    yield Line(
        must_hold="a reply says its rung, version and attempts",
        figure=", ".join(f"{name} {value[:12]}" for name, value in sorted(said.items())),
        has_passed=wanted <= said.keys(),
    )
    models = [model.id for model in client.models.list()]
    yield Line(
        must_hold="the ladders are the models", figure=str(models), has_passed="chat" in models
    )


async def _ask_async(url: str) -> str:
    async with AsyncOpenAI(base_url=url, api_key="unused") as client:
        stream = await client.chat.completions.create(
            model="chat",
            messages=[{"role": "user", "content": _QUESTION}],
            temperature=0,
            stream=True,
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


@contextmanager
def running_up_with_keys() -> Iterator[tuple[UpSession, Path]]:
    """Yield a ``failsoft up`` with two tenants, and its settings file."""
    names = "".join(f'{name} = "{variable}"\n' for name, variable in _KEYS.items())
    environ = {variable: f"secret-{name}" for name, variable in _KEYS.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "failsoft.toml"
        path.write_text(f"{BUILT_IN_FILE.read_text()}\n[keys]\n{names}")
        arguments = ("--config", str(path))
        with running_up(*arguments, environ=environ, slots=("primary", "small")) as up:
            yield up, path


def measure_tenants(up: UpSession) -> Iterator[Line]:
    """Yield whether one tenant's text shows in another's replies, caches or token counts."""
    with httpx2.Client(timeout=120, trust_env=False) as client:
        yield from _judge_prefix(up, client)
        yield from _judge_replies(up, client)


def key_of(name: str) -> dict[str, str]:
    """Return the header that makes a caller the tenant *name*."""
    return {"authorization": f"Bearer secret-{name}"}


def _judge_prefix(up: UpSession, client: httpx2.Client) -> Iterator[Line]:
    def cached(name: str, **headers: str) -> int:
        seen = ask(
            client,
            up.api_url,
            _LONG,
            max_tokens=2,
            headers={**key_of(name), **_NO_REPLY_CACHE, **headers},
        )
        assert seen.is_whole, seen
        details = (seen.usage or {}).get("prompt_tokens_details") or {}
        return int(details.get("cached_tokens") or 0)

    cached("alpha")
    again, other = cached("alpha"), cached("beta")
    posing = cached("beta", **{"x-failsoft-tenant": "alpha"})
    yield Line(
        must_hold="prefix cache: a tenant hits its own blocks, cached_tokens 0 across tenants",
        figure=f"{again} for the same tenant, {other} for another",
        has_passed=again > 0 and other == 0,
    )
    yield Line(
        must_hold="a key's tenant cannot be overruled by x-failsoft-tenant",
        figure="beta posing as alpha hits its own blocks only"
        if posing == again
        else f"{posing} cached tokens",
        has_passed=posing == again,
    )


def _judge_replies(up: UpSession, client: httpx2.Client) -> Iterator[Line]:
    def say(name: str | None, country: str) -> Seen:
        headers = key_of(name) if name else None
        words = f"What is the capital of {country}?"
        return ask(client, up.api_url, words, max_tokens=64, headers=headers)

    # Only a reply that ended by itself is kept; how a model this small ends is a close call.
    first, country = next(
        (seen, country) for country in COUNTRIES if (seen := say("alpha", country)).has_stopped
    )
    time.sleep(0.5)  # the kept reply reaches the store
    for slot in ("primary", "small"):
        up.kill(slot)
    own, other, nobody = (say(name, country) for name in ("alpha", "beta", None))
    yield Line(
        must_hold="reply cache, engines dead: a tenant's own reply for it, none for another",
        figure=f"alpha: {own.rung}, the same text: {own.text == first.text}; beta: status "
        f"{other.status}; without a key: {nobody.status}",
        has_passed=own.rung == "cache"
        and own.text == first.text
        and other.status == 503
        and nobody.status == 401,
    )
    yield exactly("replies of one tenant shown to another", int(first.text in other.text), 0)

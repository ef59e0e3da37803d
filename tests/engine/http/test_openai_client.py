"""The real openai client against the real server."""

import asyncio
from collections.abc import Iterator

import openai
import pytest

from tests.engine.http.conftest import GREETING
from tests.engine.http.real_rig import RealRig
from tests.engine.http.rig import DIGEST, MODEL, Rig, answer, ids_of


@pytest.fixture(scope="module")
def client(rig: Rig) -> Iterator[openai.OpenAI]:
    """A client that does not hide a fault behind a retry."""
    with openai.OpenAI(base_url=f"{rig.url}/v1", api_key="unused", max_retries=0) as made:
        yield made


def test_chat_answers_with_text_and_exact_usage(client: openai.OpenAI) -> None:
    """Completion tokens count the end token too; the fingerprint is the version's digest."""
    reply = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hi"}]
    )

    assert reply.choices[0].message.content == GREETING
    assert reply.choices[0].finish_reason == "stop"
    assert reply.system_fingerprint == DIGEST[:16]
    usage = reply.usage
    assert usage is not None
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert usage.prompt_tokens == len(ids_of(prompt))
    assert usage.completion_tokens == len(answer(GREETING))
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1


def test_chat_streams_the_same_text(client: openai.OpenAI) -> None:
    """The role comes with the first text, the reason with the last chunk only."""
    chunks = list(
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
        )
    )

    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == GREETING
    assert [chunk.choices[0].delta.role for chunk in chunks][:2] == ["assistant", None]
    assert chunks[0].choices[0].delta.content
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_carries_usage_only_when_asked(client: openai.OpenAI) -> None:
    """Then as the last chunk, without choices."""
    *texts, last = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hi"}],
        stream=True,
        stream_options={"include_usage": True},
    )

    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == len(answer(GREETING))
    assert all(chunk.choices and chunk.usage is None for chunk in texts)


def test_the_async_client_runs_many_at_once(rig: Rig) -> None:
    """Twenty streams beside twenty whole answers, all the same text."""

    async def main() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{rig.url}/v1", api_key="unused") as client:

            async def streamed() -> str:
                stream = await client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
                )
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            async def whole() -> str:
                reply = await client.chat.completions.create(
                    model=MODEL, messages=[{"role": "user", "content": "hi"}]
                )
                return reply.choices[0].message.content or ""

            return await asyncio.gather(*(make() for make in [streamed, whole] for _ in range(20)))

    assert asyncio.run(main()) == [GREETING] * 40


def test_completions_answer_each_prompt_in_order(client: openai.OpenAI) -> None:
    """Two prompts are two choices; the usage adds them up."""
    reply = client.completions.create(model=MODEL, prompt=["a", "bb"], max_tokens=3)

    assert [choice.index for choice in reply.choices] == [0, 1]
    assert {choice.finish_reason for choice in reply.choices} == {"length"}
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (3, 6)


def test_completions_stream_each_prompt(client: openai.OpenAI) -> None:
    """Chunks of two prompts come mixed, told apart by their index."""
    texts = {0: "", 1: ""}
    for chunk in client.completions.create(model=MODEL, prompt=["a", "b"], stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text

    assert texts == {0: GREETING, 1: GREETING}


@pytest.mark.parametrize("prompt", [[1, 2, 3], [[1, 2, 3]]])
def test_completions_take_token_ids(rig: Rig, client: openai.OpenAI, prompt: list[int]) -> None:
    """They reach the engine as they are."""
    client.completions.create(model=MODEL, prompt=prompt)

    assert rig.engine.submitted[-1].prompt_ids == (1, 2, 3)


def test_models_are_listed_and_retrieved(client: openai.OpenAI) -> None:
    """The version's digest and length limit come along."""
    listed = client.models.list().data[0]
    retrieved = client.models.retrieve(MODEL)

    assert listed == retrieved
    assert listed.id == MODEL
    assert listed.model_dump()["version_digest"] == DIGEST
    assert listed.model_dump()["max_model_len"] == 512


def test_another_model_is_not_found(client: openai.OpenAI) -> None:
    """The client raises NotFoundError with the code that says what is missing."""
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-5")

    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert MODEL in caught.value.message


def test_the_callers_request_id_comes_back(client: openai.OpenAI) -> None:
    """As the client reads it, on answers and on errors."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model=MODEL, messages=[], extra_headers={"x-request-id": "trace-7"}
        )

    assert caught.value.request_id == "trace-7"


def test_the_client_reads_choices_and_log_probabilities(real: RealRig) -> None:
    """Typed, of chats and of completions, whole and streamed."""
    client = openai.OpenAI(base_url=f"{real.url}/v1", api_key="unused", max_retries=0)
    with client:
        chat = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "hi"}],
            n=2,
            seed=1,
            logprobs=True,
            top_logprobs=2,
            max_completion_tokens=5,
            extra_body={"ignore_eos": True},
        )
        text = client.completions.create(
            model=MODEL, prompt=["a", "the fox"], echo=True, logprobs=1, max_tokens=1
        )
        with client.completions.create(
            model=MODEL,
            prompt="the fox",
            logprobs=1,
            max_tokens=4,
            stream=True,
            extra_body={"ignore_eos": True},
        ) as stream:
            parts = [chunk.choices[0].logprobs for chunk in stream]

    for choice in chat.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert [len(token.top_logprobs) for token in choice.logprobs.content] == [2] * 5
    assert [choice.index for choice in text.choices] == [0, 1]
    scored = text.choices[1].logprobs
    assert scored is not None
    assert scored.tokens is not None
    assert "".join(scored.tokens[:-1]) == "the fox"
    assert sum(len(part.tokens or []) for part in parts if part is not None) == 4

"""The OpenAPI document and its page say what the server does."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from failsoft import __version__
from failsoft.engine.http import answer_schemas
from failsoft.engine.http.field_limits import up_to
from failsoft.engine.http.operations import OPERATIONS
from tests.engine.fake_engine import FakeEngine
from tests.engine.http.rig import MODEL, Rig, answer, events_of, running

USER = {"role": "user", "content": "hi"}
ALL: dict[str, Any] = {"logprobs": True, "top_logprobs": 2, "prompt_logprobs": 1, "n": 2}
ALL_RAW: dict[str, Any] = {"logprobs": 2, "prompt_logprobs": 1, "echo": True}
"""What adds fields to an answer."""
CALL: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "look"}}]}
METHODS = ("get", "post", "put", "patch", "delete", "options", "trace")


@pytest.fixture(scope="module")
def document(rig: Rig) -> dict[str, Any]:
    """The document of the shared server, which asks for no key."""
    found: dict[str, Any] = rig.get("/openapi.json").json()
    return found


@pytest.fixture(scope="module")
def caller() -> Iterator[Rig]:
    """A server whose model calls a tool."""
    said = 'I look.<tool_call>{"name": "look", "arguments": {"a": 1}}</tool_call>'
    with running(FakeEngine(lambda request: answer(said))) as started:
        assert started.chat(**CALL).json()["choices"][0]["finish_reason"] == "tool_calls"
        yield started


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a JSON value."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            yield from walk(each)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    """And every schema is reached from a route."""
    refs = {each["$ref"] for each in walk(document) if "$ref" in each}

    names = {ref.removeprefix("#/components/schemas/") for ref in refs}
    assert names == set(document["components"]["schemas"])


def test_what_is_not_in_the_document_is_not_there(rig: Rig, document: dict[str, Any]) -> None:
    """Any other method of a path is 405, and says which are allowed."""
    assert document["openapi"].startswith("3.2")
    for path, described in document["paths"].items():
        for method in METHODS:
            if method in described:
                continue
            reply = rig.client.request(method, path.replace("{model_id}", MODEL))
            assert reply.status_code == 405, (method, path)
            allowed = {each.strip().lower() for each in reply.headers["allow"].split(",")}
            assert allowed - {"head"} == set(described)


def test_the_document_knows_the_server(document: dict[str, Any]) -> None:
    """Name, vocabulary and length of the model that is served, and the server's limits."""
    chat = document["components"]["schemas"]["ChatBody"]["properties"]

    assert {"enum": [MODEL], "type": "string"} in chat["model"]["anyOf"]
    assert {"type": "integer", "minimum": 1, "maximum": 511} in chat["max_tokens"]["anyOf"]
    assert chat["messages"]["maxItems"] == 2048
    assert document["info"]["version"] == __version__


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        (answer_schemas.ChatAnswer, "/v1/chat/completions", {"messages": [USER]}),
        (answer_schemas.ChatAnswer, "/v1/chat/completions", {"messages": [USER], **ALL}),
        (answer_schemas.ChatAnswer, "/v1/chat/completions", {"messages": [USER], **CALL}),
        (answer_schemas.CompletionAnswer, "/v1/completions", {"prompt": ["a", "b"]}),
        (answer_schemas.CompletionAnswer, "/v1/completions", {"prompt": "ab", **ALL_RAW}),
        (answer_schemas.Tokenized, "/tokenize", {"prompt": "a", "return_token_strs": True}),
        (answer_schemas.Detokenized, "/detokenize", {"tokens": [1]}),
        (answer_schemas.ModelList, "/v1/models", None),
        (answer_schemas.Model, f"/v1/models/{MODEL}", None),
        (answer_schemas.TokenizerInfo, "/tokenizer_info", None),
        (answer_schemas.Live, "/health", None),
        (answer_schemas.Ready, "/health/ready", None),
        (answer_schemas.SoftwareVersion, "/version", None),
        (answer_schemas.FaultAnswer, "/nowhere", None),
    ],
)
def test_answers_are_as_described(
    rig: Rig, caller: Rig, kind: type[BaseModel], path: str, body: dict[str, Any] | None
) -> None:
    """No field is missing, none is too many."""
    rig = caller if body and "tools" in body else rig
    reply = rig.get(path) if body is None else rig.post(path, json=body)

    kind.model_validate_json(reply.content)


@pytest.mark.parametrize("options", [None, {"include_usage": True}])
@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        (
            answer_schemas.ChatChunk,
            "/v1/chat/completions",
            {"messages": [USER]},
        ),
        (answer_schemas.ChatChunk, "/v1/chat/completions", {"messages": [USER], **ALL}),
        (answer_schemas.ChatChunk, "/v1/chat/completions", {"messages": [USER], **CALL}),
        (answer_schemas.CompletionChunk, "/v1/completions", {"prompt": "a"}),
        (answer_schemas.CompletionChunk, "/v1/completions", {"prompt": "ab", **ALL_RAW}),
    ],
)
def test_events_are_as_described(
    rig: Rig,
    caller: Rig,
    kind: type[BaseModel],
    path: str,
    body: dict[str, Any],
    options: dict[str, bool] | None,
) -> None:
    """Each chunk of a stream, usage or not."""
    rig = caller if "tools" in body else rig
    reply = rig.post(path, json={**body, "stream": True, "stream_options": options})

    *chunks, done = events_of(reply.text)
    assert done == "[DONE]"
    for chunk in chunks:
        kind.model_validate_json(chunk)


def test_a_server_with_a_key_says_which_routes_are_open() -> None:
    """The document and the page need the key too; without one the document asks for none."""
    with running(FakeEngine(lambda r: answer("ok")), api_key="s3cret") as rig:
        assert [rig.get(path).status_code for path in ("/openapi.json", "/docs")] == [401, 401]
        headers = {"authorization": "Bearer s3cret"}
        document = rig.get("/openapi.json", headers=headers).json()
        page = rig.get("/docs", headers=headers).text

    assert document["security"] == [{"key": []}]
    open_paths = {
        path
        for path, methods in document["paths"].items()
        for operation in methods.values()
        if operation.get("security") == []
    }
    assert open_paths == {"/health", "/health/live", "/health/ready"}
    assert "401" in document["paths"]["/v1/models"]["get"]["responses"]
    assert page.count(" Open.</span>") == 3


def test_the_page_shows_every_route_and_schema(rig: Rig, document: dict[str, Any]) -> None:
    """Each with an anchor that links lead to."""
    page = rig.get("/docs").text

    anchors = set(re.findall(r'id="([^"]+)"', page))
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert links <= anchors
    assert set(document["components"]["schemas"]) <= anchors
    assert {operation.path for operation in OPERATIONS} <= set(
        re.findall(r'<code class="path">([^<]+)', page)
    )


def test_the_page_loads_nothing(rig: Rig) -> None:
    """No script, no address of another host, and a policy that would refuse both."""
    reply = rig.get("/docs")

    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert "<script" not in reply.text
    assert not re.search(r"(src|href)=[\"']?(https?:)?//|url\(|@import", reply.text)


def test_the_page_is_right_in_a_browser(rig: Rig, tmp_path: Path) -> None:
    """Its own style passes its own policy: the console is silent."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        if os.environ.get("FAILSOFT_REQUIRE_BROWSER") == "1":
            pytest.fail("FAILSOFT_REQUIRE_BROWSER=1, but no chromium is installed")
        pytest.skip("no chromium: apt-get install -y --no-install-recommends chromium")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    flags += ["--disable-background-networking", "--disable-component-update"]
    flags += [f"--user-data-dir={tmp_path}", "--dump-dom"]

    seen = subprocess.run(
        [program, *flags, f"{rig.url}/docs"], capture_output=True, text=True, timeout=60, check=True
    )

    assert f"<title>failsoft engine: {MODEL}</title>" in seen.stdout
    assert "Content Security Policy" not in seen.stderr
    assert "CONSOLE" not in seen.stderr


def test_the_document_is_plain_json(rig: Rig) -> None:
    """It survives a round trip through the strictest of parsers."""
    reply = rig.get("/openapi.json")

    assert reply.headers["content-type"] == "application/json"
    json.dumps(json.loads(reply.content), allow_nan=False)


@pytest.mark.parametrize("limit", [0, 7, 9, 10, 96, 100, 319, 1000, 49151])
def test_token_ids_as_keys_are_matched_exactly(limit: int) -> None:
    """``logit_bias`` has them as strings: every id of the vocabulary, and none past it."""
    pattern = re.compile(up_to(limit))

    near = {*range(min(limit, 2000) + 1), *range(max(0, limit - 500), limit + 500), 10 * limit + 10}
    assert all(bool(pattern.fullmatch(str(each))) == (each <= limit) for each in near)

"""Settings read again while calls run."""

import asyncio
from pathlib import Path

import pytest

from failsoft.errors import ConfigError
from failsoft.fallback.async_client import AsyncClient
from failsoft.fallback.breaker import BreakerState
from failsoft.fallback.client import Client
from tests.fallback.fault_server import FaultServer
from tests.fallback.rig import ASK

FILE = """
[endpoints.one]
url = "{url}"
model = "{model}"
[endpoints.two]
url = "{other}"
model = "m"
[ladders.chat]
rungs = ["one", "two"]
{extra}
"""

SECRET = """
[endpoints.three]
url = "http://127.0.0.1:1/v1"
model = "m"
api_key_env = "NO_SUCH_VARIABLE"
[ladders.other]
rungs = ["three"]
"""


def write(file: Path, url: str, *, other: str, model: str = "m", extra: str = "") -> Path:
    """Write the settings file anew."""
    file.write_text(FILE.format(url=url, other=other, model=model, extra=extra))
    return file


def test_a_good_file_under_load_costs_no_call_and_those_under_way_keep_their_version(
    server_a: FaultServer, server_b: FaultServer, tmp_path: Path
) -> None:
    """Streams that run go on where they are; the next call goes by the new file."""
    server_a.plan(default={"do": "ok", "tokens": 20, "gap_s": 0.02})
    file = write(tmp_path / "failsoft.toml", server_a.url, other=server_b.url)

    async def run() -> tuple[list[str], str]:
        async with AsyncClient(file, environ={}) as client:

            async def read() -> str:
                return "".join([delta async for delta in client.stream(ASK)])

            running = [asyncio.create_task(read()) for _ in range(10)]
            await asyncio.to_thread(server_a.wait_hits, 10)
            write(file, server_b.url, other=server_a.url)
            client.reload(file)
            new = (await client.chat(ASK)).text
            return list(await asyncio.gather(*running)), new

    texts, new = asyncio.run(run())

    assert set(texts) == {"".join(f"A{i} " for i in range(20))}
    assert new == "B0 B1 B2 "


@pytest.mark.parametrize(
    ("extra", "key"),
    [
        ("deadline_s = -1", "ladders.chat.deadline_s"),
        ("[store]\nkeep_text = 'all'", "store"),
        (SECRET, "three"),
        ("[", "failsoft.toml"),
    ],
    ids=["value", "store", "secret", "syntax"],
)
def test_a_bad_file_leaves_the_old_settings_live(
    server_a: FaultServer, server_b: FaultServer, tmp_path: Path, extra: str, key: str
) -> None:
    """The error is the caller's to report; nothing has changed."""
    file = write(tmp_path / "failsoft.toml", server_a.url, other=server_b.url)

    with Client(file, environ={}) as client:
        write(file, server_b.url, other=server_a.url, extra=extra)
        with pytest.raises(ConfigError) as caught:
            client.reload(file)
        reply = client.chat(ASK)

    assert key in caught.value.key
    assert reply.rung == "one"
    assert reply.text.startswith("A")


def test_an_endpoint_that_stays_keeps_its_breaker(
    server_a: FaultServer, server_b: FaultServer, tmp_path: Path
) -> None:
    """Reading a file is no reason to ask a dead endpoint again; another model is."""
    server_a.plan(default={"do": "reset"})
    file = write(tmp_path / "failsoft.toml", server_a.url, other=server_b.url)

    def state(client: Client) -> BreakerState:
        return client.ladders["chat"].models[0].endpoint.breaker.state

    with Client(file, environ={}) as client:
        for _ in range(20):
            client.chat(ASK)
        before = state(client)
        client.reload(write(file, server_a.url, other=server_b.url, extra="deadline_s = 5"))
        kept = state(client)
        client.reload(write(file, server_a.url, other=server_b.url, model="other"))
        anew = state(client)

    assert (before, kept, anew) == (BreakerState.OPEN, BreakerState.OPEN, BreakerState.CLOSED)

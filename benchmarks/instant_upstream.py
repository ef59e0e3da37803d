"""An OpenAI-compatible upstream that costs next to nothing, in a process of its own.

    python -m benchmarks.instant_upstream

Raw asyncio; prints its port. ``max_tokens`` words come, at once and in one write, or one
each ``gap_ms`` milliseconds (a field of ours that any gateway passes on).
"""

import asyncio
import json
import sys

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_START = '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":['
_END = "data: " + _START + '{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}\n\n'
_USAGE = '{"prompt_tokens":7,"completion_tokens":1,"total_tokens":8}'


def _piece(data: str) -> bytes:
    raw = data.encode()
    return b"%x\r\n%b\r\n" % (len(raw), raw)


def _word(number: int) -> str:
    role = '"role":"assistant",' if number == 0 else ""
    return (
        f'data: {_START}{{"index":0,"delta":{{{role}"content":"word{number} "}},'
        f'"logprobs":null,"finish_reason":null}}]}}\n\n'
    )


_TAIL = _piece(_END + f'data: {_START}],"usage":{_USAGE}}}\n\ndata: [DONE]\n\n') + b"0\r\n\r\n"
_BODY = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "word0 "},
                "finish_reason": "stop",
            }
        ],
        "usage": json.loads(_USAGE),
    }
).encode()
_WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_BODY),
    _BODY,
)
_MODELS = b'{"data":[{"id":"m","max_model_len":4096}]}'


class Upstream(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio's interface."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._data = b""

    def data_received(self, data: bytes) -> None:
        """Part of asyncio's interface."""
        self._data += data
        head, found, rest = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if len(rest) < length:
            return
        self._data = rest[length:]
        if head.startswith(b"GET"):
            length_line = b"content-length: %d" % len(_MODELS)
            self._transport.write(b"HTTP/1.1 200 OK\r\n" + length_line + b"\r\n\r\n" + _MODELS)
            return
        self._answer(json.loads(rest[:length]))

    def _answer(self, body: dict[str, int]) -> None:
        if not body.get("stream"):
            self._transport.write(_WHOLE)
            return
        tokens, gap_ms = body.get("max_tokens", 1), body.get("gap_ms", 0)
        if gap_ms:
            self._transport.write(_HEAD)
            self._next_s = asyncio.get_running_loop().time()
            self._say(0, tokens, gap_ms / 1000)
        else:
            words = "".join(map(_word, range(tokens)))
            self._transport.write(_HEAD + _piece(words) + _TAIL)

    def _say(self, number: int, tokens: int, gap_s: float) -> None:
        if self._transport.is_closing():
            return
        if number == tokens:
            self._transport.write(_TAIL)
            return
        self._transport.write(_piece(_word(number)))
        self._next_s += gap_s
        loop = asyncio.get_running_loop()
        loop.call_at(self._next_s, self._say, number + 1, tokens, gap_s)


async def main() -> None:
    """Listen until stdin ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())

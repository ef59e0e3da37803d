"""An OpenAI-compatible endpoint that is not ours, on a real socket; it can do what a test says."""

import contextlib
import json
import random
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Refuses = Callable[[str, dict[str, Any]], int | None]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """Connections that wait; with the usual 5 some of a dozen at once are dropped for seconds."""


class Foreign:
    """Answers every question with a sentence of its own model.

    Args:
        refuses: Returns the HTTP status that a request is refused with; None answers it.
        noise: Standard deviation of what is added to each log probability.
        has_logprobs: Whether chats carry them when they are asked for.
        num_alternatives: Of ``top_logprobs``, itself included.
        ignores_limits: Whether it says 20 tokens whatever was asked.
    """

    def __init__(
        self,
        *,
        refuses: Refuses = lambda _path, _body: None,
        noise: float = 0.0,
        has_logprobs: bool = True,
        num_alternatives: int = 2,
        ignores_limits: bool = False,
    ) -> None:
        self.refuses = refuses
        self.noise = noise
        self.has_logprobs = has_logprobs
        self.num_alternatives = num_alternatives
        self.ignores_limits = ignores_limits
        self.padding = ""
        """In a field of its own of each reply."""
        self.weights = "one"
        """Another text is another model."""
        self.headers: dict[str, str] = {}
        self.bodies: list[dict[str, Any]] = []
        self._rng = random.Random(1)
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        head = {"model": "hosted-2026-01", "system_fingerprint": f"fp_{self.weights}"}
        head |= {"padding": self.padding} if self.padding else {}
        if path == "/v1/completions":
            return {**head, **self._completion(body["prompt"])}
        max_tokens = None if self.ignores_limits else body["max_tokens"]
        tokens = self._tokens(body["messages"][0]["content"])[:max_tokens]
        choice: dict[str, Any] = {"message": {"role": "assistant", "content": "".join(tokens)}}
        if self.has_logprobs and body.get("logprobs"):
            choice["logprobs"] = {"content": [self._said(token) for token in tokens]}
        return {**head, "choices": [choice]}

    def _completion(self, prompt: str) -> dict[str, Any]:
        tokens = [prompt[start : start + 4] for start in range(0, len(prompt), 4)]
        numbers = [None, *(self._logprob(token) for token in tokens[1:])]
        # What every other server does: at least one token is sampled behind the echo.
        logprobs = {"tokens": [*tokens, " so"], "token_logprobs": [*numbers, -0.1]}
        usage = {"prompt_tokens": len(tokens), "completion_tokens": 1}
        return {"choices": [{"text": prompt, "logprobs": logprobs}], "usage": usage}

    def _tokens(self, question: str) -> list[str]:
        rng = random.Random(f"{self.weights} {question}")
        return [f" w{rng.randrange(100)}" for _ in range(20)]

    def _logprob(self, token: str) -> float:
        own = random.Random(f"{self.weights} {token}").uniform(-4, -0.1)
        return own + self._rng.gauss(0, self.noise)

    def _said(self, token: str) -> dict[str, Any]:
        number = self._logprob(token)
        top = [{"token": token, "logprob": number}, {"token": "x", "logprob": number - 2}]
        return {"token": token, "logprob": number, "top_logprobs": top[: self.num_alternatives]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        foreign = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                foreign.bodies.append(body)
                status = foreign.refuses(self.path, body)
                answer = foreign._answer(self.path, body) if status is None else {"error": {}}
                data = json.dumps(answer).encode()
                self.send_response(status or 200)
                for name, value in foreign.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                with contextlib.suppress(ConnectionError):  # who asked may have given up
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *_arguments: object) -> None:
                """Say nothing."""

        return Handler


def only_chats(path: str, _body: dict[str, Any]) -> int | None:
    """Refuse what is no chat, as most hosted APIs do."""
    return 404 if path == "/v1/completions" else None

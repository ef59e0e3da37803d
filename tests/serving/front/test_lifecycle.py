"""How a front begins, reads its settings again, and ends: real processes and signals."""

import json
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any

from failsoft.config.schema import load_settings
from failsoft.engine.http.server import bind
from failsoft.run_state import read_front
from failsoft.store import Store
from tests.engine.http.rig import wait_until
from tests.fallback.fault_server import Fault, FaultServer
from tests.serving.front.rig import FrontProcess, events_of, front, text_of, toml

A_SECOND: Fault = {"do": "ok", "tokens": 30, "gap_s": 0.05}
ENDLESS: Fault = {"do": "ok", "tokens": 2000, "gap_s": 0.05}
PATIENT = "deadline_s = 60\n"
BAD_FILES = [
    ("[ladders", "TOML"),
    ("", "ladders"),
    ("[ladders.chat]\nrungs = ['nobody']\n", "nobody"),
    ("{good}\n[keys]\nalice = 'NO_SUCH_KEY'\n", "NO_SUCH_KEY"),
    ("{good}\n[store]\nurl = 'sqlite:///other.db'\n", "store"),
]


class Streams:
    """Streams that are read on threads; each has begun once this is made."""

    def __init__(self, process: FrontProcess, count: int) -> None:
        self.texts: list[str] = []
        self._process = process
        self._begun = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._read) for _ in range(count)]
        for thread in self._threads:
            thread.start()
        # A call that the front counts as open has not begun its stream yet: until its first
        # event it is still answered by a plain error.
        assert all(self._begun.acquire(timeout=30) for _ in self._threads)

    def _read(self) -> None:
        with self._process.open_stream(model=None) as reply:
            text = ""
            for piece in reply.iter_text():
                if not text:
                    self._begun.release()
                text += piece
        self.texts.append(text)

    def wait(self) -> list[list[str]]:
        """Return the events of each."""
        for thread in self._threads:
            thread.join(30)
        return [events_of(text) for text in self.texts]


def test_a_front_says_where_it_is_while_it_runs(tmp_path: Path) -> None:
    """Its file is private, names URL and token, and goes with it; nothing else on stderr."""
    with FaultServer("A") as server, front(tmp_path, toml(server)) as process:
        state = process.state
        file = process.home / "run/processes/front.json"

        assert state.url == process.url
        assert state.pid == process.popen.pid
        assert file.stat().st_mode & 0o077 == 0
        assert process.stop() == 0
        assert not file.exists()
        assert read_front(process.home) is None
        assert process.stderr().startswith("stopping: 0 open calls")


def test_sigterm_lets_streams_finish(tmp_path: Path) -> None:
    """Not ready and 503 at once; twenty streams end whole; every call is in the store; exit 0."""
    with FaultServer("A") as server, front(tmp_path, toml(server)) as process:
        server.plan(default=A_SECOND)
        streams = Streams(process, 20)

        process.popen.send_signal(signal.SIGTERM)

        assert wait_until(lambda: process.get("/health/ready").status_code == 503)
        assert process.get("/health/ready").json()["reasons"] == ["draining"]
        assert process.get("/health/live").status_code == 200
        refused = process.post()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["code"] == "front_stopped"
        assert process.popen.wait(15) == 0
        assert process.stderr().count("\n") == 1

    assert all(events[-1] == "[DONE]" for events in streams.wait())
    assert {text_of(events) for events in streams.wait()} == {"".join(f"A{i} " for i in range(30))}
    with Store(load_settings(tmp_path / "failsoft.toml").store) as store:
        assert [call.outcome for call in store.reader.calls()] == ["ok"] * 20


def test_what_outlives_the_drain_ends_in_a_typed_event(tmp_path: Path) -> None:
    """And a call without a first token in a 503; the endpoint is let go; exit 0."""
    with FaultServer("A") as server:
        text = toml(server, cache=False).replace("deadline_s = 5\n", PATIENT)
        text = text.replace("first_token_s = 1", "first_token_s = 20")
        with front(tmp_path, text, "--drain-s", "0.3") as process:
            server.plan(default=ENDLESS)
            streams = Streams(process, 2)
            server.plan(default="stall")
            replies: list[Any] = []
            waiting = threading.Thread(target=lambda: replies.append(process.post()))
            waiting.start()
            assert wait_until(lambda: server.hits == 1)
            start_s = time.monotonic()

            process.popen.send_signal(signal.SIGTERM)

            assert process.popen.wait(15) == 0
            assert time.monotonic() - start_s < 5
            waiting.join(5)
            assert process.stderr().count("\n") == 1
        assert server.wait_closed(1) is not None

    lasts = [json.loads(events[-1])["error"]["code"] for events in streams.wait()]
    assert lasts == ["front_stopped"] * 2
    assert (replies[0].status_code, replies[0].json()["error"]["code"]) == (503, "front_stopped")


def test_a_second_signal_means_now(tmp_path: Path) -> None:
    """With a minute of drain to go."""
    with FaultServer("A") as server:
        text = toml(server, cache=False).replace("deadline_s = 5\n", PATIENT)
        with front(tmp_path, text, "--drain-s", "60") as process:
            server.plan(default=ENDLESS)
            streams = Streams(process, 1)
            process.popen.send_signal(signal.SIGTERM)
            assert wait_until(lambda: process.get("/health/ready").status_code == 503)
            start_s = time.monotonic()

            process.popen.send_signal(signal.SIGTERM)

            assert process.popen.wait(15) == 0
            assert time.monotonic() - start_s < 10

    assert json.loads(streams.wait()[0][-1])["error"]["code"] == "front_stopped"


def test_it_drains_though_nobody_reads_its_words_any_more(tmp_path: Path) -> None:
    """As after `kill -9` of the supervisor: its stderr is a pipe that nobody holds open."""
    with FaultServer("A") as server, front(tmp_path, toml(server)) as process:
        server.plan(default=A_SECOND)
        streams = Streams(process, 2)
        assert process.popen.stderr is not None
        process.popen.stderr.close()

        process.popen.send_signal(signal.SIGTERM)

        # 120 is Python's own word for what it could not write to stderr at the very end.
        assert process.popen.wait(15) in (0, 120)
    assert all(events[-1] == "[DONE]" for events in streams.wait())
    with Store(load_settings(tmp_path / "failsoft.toml").store) as store:
        assert [call.outcome for call in store.reader.calls()] == ["ok"] * 2


def test_ctrl_c_drains_and_exits_130(tmp_path: Path) -> None:
    """As every command does."""
    with FaultServer("A") as server, front(tmp_path, toml(server)) as process:
        process.popen.send_signal(signal.SIGINT)

        assert process.popen.wait(15) == 130


def test_an_inherited_socket_outlives_its_front(tmp_path: Path) -> None:
    """A caller who connects while no front is there is answered by the next one."""
    with FaultServer("A") as server, bind("127.0.0.1", 0) as sock:
        sock.listen()
        port = sock.getsockname()[1]
        with front(tmp_path, toml(server), fd=sock.fileno()) as process:
            assert process.url == f"http://127.0.0.1:{port}/v1"
            assert process.post().status_code == 200
            process.popen.kill()
            process.popen.wait(5)

        waiting = socket.create_connection(("127.0.0.1", port), timeout=10)
        waiting.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        with front(tmp_path, toml(server), fd=sock.fileno()):
            assert waiting.recv(1000).startswith(b"HTTP/1.1 200")
        waiting.close()


class TestReload:
    """SIGHUP reads the same file again, all of it or nothing."""

    def test_a_good_file_takes_over_for_new_calls_only(self, tmp_path: Path) -> None:
        """An open stream ends by the settings it began with; ladders and keys are the new ones."""
        with (
            FaultServer("A") as one,
            FaultServer("B") as two,
            front(tmp_path, toml(one), environ={"ALICE_KEY": "sk-alice"}) as process,
        ):
            one.plan(default={"do": "ok", "tokens": 20, "gap_s": 0.05})
            streams = Streams(process, 1)
            read_at_ms = process.status()["settings_read_at_ms"]
            process.file.write_text(toml(two, name="other", more='[keys]\nalice = "ALICE_KEY"\n'))

            process.hang_up()

            assert wait_until(lambda: process.status()["settings_read_at_ms"] > read_at_ms)
            assert process.post(model="other").status_code == 401
            bearer = {"authorization": "Bearer sk-alice"}
            reply = process.post(model="other", headers=bearer)
            assert reply.json()["choices"][0]["message"]["content"] == "B0 B1 B2 "
            assert process.post(model="chat", headers=bearer).status_code == 404
            assert streams.wait()[0][-1] == "[DONE]"
            assert process.status()["last_reload"]["error"] is None

    def test_a_bad_file_changes_nothing_and_says_why(self, tmp_path: Path) -> None:
        """One line on stderr for each, kept for the status; calls go on."""
        with FaultServer("A") as server, front(tmp_path, toml(server)) as process:
            before = process.status()["settings_read_at_ms"]
            good = process.file.read_text()
            for text, word in BAD_FILES:
                process.file.write_text(text.replace("{good}", good))
                last = process.status()["last_reload"]

                process.hang_up()

                assert wait_until(
                    lambda last=last: process.status()["last_reload"] != last  # type: ignore[misc]
                )
                assert word in process.status()["last_reload"]["error"]
                assert process.post().status_code == 200
            assert process.status()["settings_read_at_ms"] == before
            process.stop()
            said = process.stderr().splitlines()

        assert len(said) == len(BAD_FILES) + 1
        assert all(word in line for (_, word), line in zip(BAD_FILES, said, strict=False))

    def test_reloads_under_load_fail_no_call(self, tmp_path: Path) -> None:
        """Good and bad files in turn, 200 calls meanwhile: none fails."""
        with FaultServer("A") as server, front(tmp_path, toml(server)) as process:
            good = process.file.read_text()
            statuses: list[int] = []

            def call() -> None:
                statuses.extend(process.post().status_code for _ in range(50))

            threads = [threading.Thread(target=call) for _ in range(4)]
            for thread in threads:
                thread.start()
            for number in range(10):
                process.file.write_text(good if number % 2 else "[broken")
                process.hang_up()
                time.sleep(0.02)
            for thread in threads:
                thread.join(20)

            assert statuses == [200] * 200

"""Whom the pages are shown to, and what a browser may do with them."""

from collections.abc import Iterator

import pytest
from flask import Flask
from flask.testing import FlaskClient

from failsoft.dashboard.guard import guard


@pytest.fixture
def client() -> Iterator[FlaskClient]:
    """Return a client of one guarded page."""
    app = Flask("guarded")
    guard(app, hosts=("ops.example",))
    app.add_url_rule("/", view_func=lambda: "a page")
    with app.test_client() as client:
        yield client


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]", "[::1]:8001", "ops.example:443"]
)
def test_known_hosts_are_served(client: FlaskClient, host: str) -> None:
    """With any port: a tunnel may change it."""
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "[::1", "[::1]x", "10.0.0.1:8001", "a b"]
)
def test_other_hosts_are_refused(client: FlaskClient, host: str) -> None:
    """DNS rebinding points a page's own name at this machine."""
    assert client.get("/", headers={"host": host}).status_code == 400


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "http://[", "x"]
)
def test_pages_of_other_origins_are_refused(client: FlaskClient, origin: str) -> None:
    """Another port is another origin; sandboxed frames and files send null."""
    assert client.get("/", headers={"origin": origin}).status_code == 403


def test_our_own_page_may_ask(client: FlaskClient) -> None:
    """A browser may send the page's own origin."""
    headers = {"host": "localhost:8001", "origin": "http://localhost:8001"}

    assert client.get("/", headers=headers).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_refused(client: FlaskClient, method: str) -> None:
    """Nothing here can be changed."""
    assert client.open("/", method=method).status_code == 405


@pytest.mark.parametrize("path", ["/", "/nowhere"])
def test_every_answer_carries_the_headers(client: FlaskClient, path: str) -> None:
    """Also one that is no page; no source but our own, no frame around it."""
    headers = client.get(path).headers

    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"


def test_a_refusal_carries_them_too(client: FlaskClient) -> None:
    """An error page is a page."""
    headers = client.get("/", headers={"host": "evil.example"}).headers

    assert headers["X-Content-Type-Options"] == "nosniff"

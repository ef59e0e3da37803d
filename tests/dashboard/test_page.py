"""The Now page: what it shows in each state, and that no text of others becomes HTML."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from flask.testing import FlaskClient

from failsoft.dashboard.app import build_app
from failsoft.dashboard.document import to_document
from failsoft.fallback.pins.pinned import pinned_version
from failsoft.fingerprint_status import FingerprintStanding, write_fingerprints
from failsoft.store import Store
from tests.dashboard.conftest import Running
from tests.dashboard.home import NOW_MS, Home, call, child, event, failed_attempt
from tests.dashboard.stand_in import HANG, status, tell, three
from tests.fallback.pins.moves import ask_for, carry_out

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)> & [bold]"


class Page(HTMLParser):
    """What a reader sees: all text, the elements there are, and their attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._texts: list[str] = []
        self.feed(html)

    @property
    def text(self) -> str:
        """All text, whitespace drawn together."""
        return " ".join(" ".join(self._texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self._texts.append(data)


def client_of(running: Running) -> FlaskClient:
    """Return who asks for pages."""
    return build_app(running.observer.look).test_client()


def page_of(running: Running) -> Page:
    """Return the page as it is now."""
    reply = client_of(running).get("/")
    assert reply.status_code == 200
    return Page(reply.text)


def test_a_healthy_page_says_who_answers_in_which_version_since_when(running: Running) -> None:
    """The first lines answer what is asked at night."""
    text = page_of(running).text

    expected = "Answering from primary (primary-v1 abababababab) since 2027-01-15 08:00:00 UTC"
    assert expected in text
    assert "Nothing is recorded." in text
    assert "0 running, 0 waiting" in text


def test_a_degraded_page_says_why_and_what_broke(running: Running) -> None:
    """With ages, repeats drawn together, the probes left out."""
    running.home.record(
        event("engine.died", "primary", age_s=300, detail='{"why": "killed by SIGKILL"}'),
        *(event("breaker.open", "primary", age_s=age_s) for age_s in (299, 200, 100)),
        event("breaker.half_open", "primary", age_s=150),
    )
    down = {"can_serve": False, "why_not": "its engine died", "breaker": "open", "retry_in_s": 8.9}
    tell(running.front, status(*three(primary=down)))

    text = page_of(running).text

    assert "Degraded answers from small" in text
    assert "5 min ago primary: its engine died" in text
    assert "1 min ago breaker open x3, first 4 min ago primary" in text
    assert "5 min ago engine died primary killed by SIGKILL" in text
    assert "half open" not in text
    assert "cannot serve: its engine died open, probe in 8 s" in text


def test_each_move_is_one_incident_that_says_who_what_for_and_why_it_failed(
    running: Running,
) -> None:
    """Its steps on the way pushed what broke off the page, and no line told a reason."""
    ann = {"move": "01ab", "who": "ann", "how": "set", "left": "v1", "to": "v2", "why": "try it"}
    failed = ann | {"was_in": "smoking", "unproven": "true", "reason": "smoking: no text"}
    running.home.record(
        event("pin.asked", "primary", age_s=90, detail=json.dumps(ann)),
        event("pin.failed", "primary", age_s=80, detail=json.dumps(failed)),
        event("pin.asked", "primary", age_s=70, detail=json.dumps(ann)),
        event("pin.switched", "primary", age_s=50, detail=json.dumps(ann)),
        event("pin.confirmed", "primary", age_s=40, detail=json.dumps(ann)),
        event("pin.confirmed", "primary", age_s=20, detail=json.dumps(ann | {"who": "bob"})),
    )

    text = page_of(running).text

    assert "20 s ago pin confirmed primary set by bob, v1 -> v2: try it 40 s ago" in text
    assert "40 s ago pin confirmed primary set by ann, v1 -> v2: try it 1 min ago" in text
    assert (
        "1 min ago pin failed primary set by ann, v1 -> v2: try it; taken unproven; "
        "smoking: no text" in text
    )
    assert "pin asked" not in text
    assert "pin switched" not in text
    assert "01ab" not in text


def test_pins_are_shown_with_who_decided_them_and_how_far_a_move_is(running: Running) -> None:
    """The page told of a move only while it was under way, and of no pin at all."""
    target = pinned_version("gemma-3-270m", {}, digest="2" * 64)
    assert target is not None
    with Store(running.home.settings.store, clock=lambda: NOW_MS / 1000 - 90) as store:
        carry_out(store, ask_for(target))
        store.pins.ask(ask_for(target, slot="small"))

    text = page_of(running).text

    heads = "Pins slot version since by settings file move under way"
    assert f"{heads} primary gemma-3-270m 222222222222" in text
    assert "1 min ago set by ann: try it says smollm2-135m-instruct -" in text


def moved_away(running: Running, *, why: str = "try it") -> None:
    """Have ann move the primary to what the file does not say."""
    target = pinned_version("gemma-3-270m", {}, digest="2" * 64)
    assert target is not None
    with Store(running.home.settings.store, clock=lambda: NOW_MS / 1000 - 90) as store:
        carry_out(store, ask_for(target, why=why))


def test_a_pin_that_is_not_what_the_file_says_is_told_loudly(running: Running) -> None:
    """A warning that names both ways out, a line with the pins, and the same in JSON."""
    moved_away(running)

    text = page_of(running).text
    pin = client_of(running).get("/api/now").get_json()["pins"][0]

    line = (
        "pin primary: gemma-3-270m is pinned, the settings file says smollm2-135m-instruct (since "
        "2027-01-15 08:08:30 UTC, by ann: try it); to keep it: `failsoft pin write`, to go by the "
        "file: `failsoft pin set primary smollm2-135m-instruct --why TEXT`"
    )
    assert text.index(line) < text.index("What broke")
    assert pin["differs_from_file"] == {"says": "smollm2-135m-instruct", "words": line}
    at_ms = NOW_MS - 90_000
    assert pin["by"] == {"kind": "set", "who": "ann", "why": "try it", "at_ms": at_ms}


def test_who_moved_a_pin_and_why_is_text_only(running: Running) -> None:
    """A reason is whatever somebody typed."""
    moved_away(running, why=EVIL)

    page = page_of(running)

    assert page.text.count(EVIL) == 2
    assert "img" not in page.tags
    assert page.tags.count("script") == 1


def test_a_pin_that_is_what_the_file_says_again_is_told_of_no_more(running: Running) -> None:
    """The file is looked at, and not the copy that processes read, which has the moved pins."""
    moved_away(running)
    file, text = running.home.settings_path, running.home.settings_path.read_text()
    page_of(running)

    file.write_text(text.replace("smollm2-135m-instruct", "gemma-3-270m"))
    agrees = client_of(running).get("/api/now").get_json()["pins"][0]
    file.write_text("[pins")
    broken = page_of(running).text
    unknown = client_of(running).get("/api/now").get_json()["pins"][0]

    assert agrees["differs_from_file"] is None
    assert f"set by ann: try it unknown: {file}" in broken
    assert "failsoft pin write" not in broken
    assert "failsoft.toml" in unknown["differs_from_file"]["unknown"]


def test_a_slot_that_was_given_back_says_who_did(running: Running) -> None:
    """It is the settings file's again."""
    moved_away(running)
    with Store(running.home.settings.store, clock=lambda: NOW_MS / 1000) as store:
        seen = store.pins.pins()["primary"]
        store.pins.follow_file("primary", seen.version, who="bob", why="git again", seen=seen)

    text = page_of(running).text

    assert "1 min ago follows the settings file again by bob: git again - -" in text
    assert "failsoft pin write" not in text


def test_ten_incidents_are_shown(running: Running) -> None:
    """The newest; an eleventh is history."""
    running.home.record(*(event("engine.died", f"slot{i:02}", age_s=i) for i in range(12)))

    text = page_of(running).text

    assert "slot09" in text
    assert "slot10" not in text


def test_an_absent_source_is_unknown_with_its_reason(running: Running) -> None:
    """And never a zero."""
    running.front.answers["/internal/status"] = (500, "")
    running.primary.answers["/metrics"] = (500, "")
    running.home.settings_path.with_name("failsoft.db").unlink()

    text = page_of(running).text

    assert "Unknown the front is silent: its status page answers HTTP 500" in text
    assert "primary unknown unknown unknown: its metrics answer HTTP 500" in text
    assert "What broke unknown: there is no store at" in text
    assert "0 %" not in text


def test_windows_without_calls_show_no_percentage(running: Running) -> None:
    """n=0 and a dash; with calls a true zero is a zero."""
    running.home.record(call(1, age_s=600))

    text = page_of(running).text

    assert "5 min n=0 1 h n=1 24 h n=1" in text
    assert "primary - 100 % 100 %" in text
    assert "small - 0 % 0 %" in text


def test_hostile_text_stays_text(running: Running) -> None:
    """An endpoint's error, an event, an exit and a reload's error may hold anything."""
    running.home.record(
        failed_attempt("primary", age_s=1, message=EVIL),
        event("engine.died", EVIL, age_s=1, detail=json.dumps({EVIL: EVIL})),
    )
    running.home.publish_supervisor(child("front", last_exit=EVIL), api_url=EVIL, settings=EVIL)
    tell(running.front, status(*three(primary={"can_serve": False, "why_not": EVIL})))

    page = page_of(running)

    assert page.tags.count("script") == 1  # our own file
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count("<script>alert(1)</script>") >= 5


def test_the_page_needs_no_inline_script_or_style(running: Running) -> None:
    """The policy forbids both; without JavaScript the browser itself asks again."""
    page = page_of(running)

    assert ("http-equiv", "refresh") in page.attributes
    assert ("src", "/static/now.js") in page.attributes
    assert not [name for name, _ in page.attributes if name == "style"]
    assert "style" not in page.tags


def test_the_settings_file_is_named_and_where_it_lies_is_its_title(running: Running) -> None:
    """A long path says little; a picture of the page shows nobody's folders."""
    running.home.publish_supervisor(child("front"), settings="/srv/app/failsoft.toml")

    page = page_of(running)

    assert "settings failsoft.toml ·" in page.text
    assert "/srv/app" not in page.text
    assert ("title", "/srv/app/failsoft.toml") in page.attributes


def test_the_json_is_the_same_picture(running: Running) -> None:
    """Unknown parts carry their reason, shares are null without calls."""
    running.home.record(call(1, age_s=600))
    running.primary.answers["/metrics"] = HANG

    document = client_of(running).get("/api/now").get_json()

    assert document["schema"] == 1
    assert document["at_ms"] == NOW_MS
    assert document["verdict"]["answers"] == "degraded"
    assert document["engines"][0]["queue"] == {"unknown": "it did not answer within 1 s"}
    short, hour, _day = document["ladders"][0]["traffic"]["windows"]
    assert (short["num_calls"], short["shares"]["primary"]) == (0, None)
    assert hour["shares"] == {"primary": 1.0, "small": 0.0, "cache": 0.0}
    assert document["supervisor"]["children"][0]["name"] == "primary"


@pytest.mark.parametrize("path", ["/now.css", "/now.js", "/yes.svg", "/degraded.svg", "/no.svg"])
def test_what_the_page_loads_is_there(running: Running, path: str) -> None:
    """From our own origin, with its type."""
    with client_of(running).get(f"/static{path}") as reply:
        assert reply.status_code == 200
        assert reply.mimetype in ("text/css", "text/javascript", "image/svg+xml")


def test_health_asks_nobody(home: Home) -> None:
    """The process lives, whatever it could show."""

    def look() -> None:
        raise AssertionError("nobody is asked")

    client = build_app(look).test_client()  # type: ignore[arg-type]

    assert client.get("/health").get_json() == {"status": "live"}


def test_the_page_tells_whose_weights_are_not_what_they_were(running: Running) -> None:
    """And that nobody can tell, which is no good news; before a first look it says nothing."""
    before = page_of(running)
    same = FingerprintStanding(
        endpoint="primary",
        subject="a" * 64,
        verdict="same",
        why="0.002 nats away",
        verdict_at_ms=NOW_MS,
        since_ms=NOW_MS - 60_000,
        trouble=None,
        checked_at_ms=NOW_MS,
    )
    others = [
        replace(same, endpoint="hosted", verdict="changed", why=f"2 nats away {EVIL}"),
        replace(same, endpoint="vague", verdict="unclear", why="its answers carry nothing"),
        replace(same, endpoint="down", verdict=None, why=None, since_ms=None, trouble="HTTP 503"),
    ]
    write_fingerprints(running.home.folder, {one.endpoint: one for one in (same, *others)})

    page = page_of(running)
    document = to_document(running.observer.look())

    assert "Fingerprints" not in before.text
    for words in (
        "hosted answers as other weights would, for 1 min: 2 nats away <script>",
        "nobody can tell whether vague has the weights it had, for 1 min: its answers",
        "primary as they were 1 min ago 0 s ago 0.002 nats away",
        "down unknown - 0 s ago HTTP 503",
    ):
        assert words in page.text, page.text
    assert "img" not in page.tags
    assert [one["verdict"] for one in document["fingerprints"]] == [
        "same",
        "changed",
        "unclear",
        None,
    ]

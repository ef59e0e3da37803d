"""failsoft.toml as a whole: what is read, what is refused, with which words."""

import codecs
import tomllib
from pathlib import Path
from typing import Any

import pytest

from failsoft.config.price import TokenPrice
from failsoft.config.schema import check_settings, load_settings, read_settings
from failsoft.config.show import as_tables, as_toml
from failsoft.config.warnings import warnings_of
from failsoft.errors import ConfigError

WHOLE = """
[store]
url = "sqlite:///records/failsoft.db"

[versions.smollm2-v1]
source = "pypi:smol==0.1:smol/S.gguf"
sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
dtype = "bfloat16"
template = "plain"
system_prompt = "Say \\"yes\\".\\nTwice: é"
price = { input_per_mtok = 0.02, output_per_mtok = 0.08 }
[versions.smollm2-v1.engine]
max_running = 4

[pins]
primary = "smollm2-v1"

[endpoints.primary]
pin = "primary"
[endpoints.remote]
url = "http://127.0.0.1:9001/v1"
model = "some-model"
api_key_env = "REMOTE_KEY"

[ladders.chat]
rungs = ["primary", "remote", "cache"]
deadline_s = 30
[ladders.chat.retry]
attempts = 4
base_s = 0.2
cap_s = 5
budget_ratio = 0.1
[ladders.chat.timeouts]
connect_s = 2
first_token_s = 10
gap_s = 5
[ladders.chat.breaker]
failure_ratio = 0.5
min_calls = 10
window_s = 30
open_s = 10
[ladders.chat.cache]
ttl_s = 300
stale_if_error_s = 86400
match = "messages"

[keys]
acme = "ACME_KEY"
"""


def problems_of(toml: str) -> list[str]:
    """Return every problem of a file, as shown to its user."""
    return [str(problem) for problem in read_settings(tomllib.loads(toml)).problems]


def change(toml: str, old: str, new: str) -> str:
    """Return *toml* with *old*, which must be there, replaced."""
    assert toml.count(old) == 1
    return toml.replace(old, new)


def test_every_name_of_the_contract_is_read() -> None:
    """The names are what users' files are written against."""
    settings, problems = read_settings(tomllib.loads(WHOLE))

    assert problems == []
    assert settings is not None
    chat = settings.ladders["chat"]
    assert chat.rungs == ("primary", "remote", "cache")
    assert (chat.retry.attempts, chat.cache.match, chat.breaker.min_calls) == (4, "messages", 10)
    assert chat.timeouts.first_token_s == 10
    assert settings.pins == {"primary": "smollm2-v1"}
    assert settings.versions["smollm2-v1"].price == TokenPrice(
        input_per_mtok=0.02, output_per_mtok=0.08
    )
    assert settings.endpoints["remote"].api_key_env == "REMOTE_KEY"
    assert settings.keys == {"acme": "ACME_KEY"}


def test_fingerprints_can_be_turned_off() -> None:
    """0 is no interval but never; the default is five minutes."""
    off = read_settings({"fingerprint": {"every_s": 0}}).settings
    default = read_settings({}).settings

    assert off is not None
    assert default is not None
    assert (off.fingerprint.every_s, default.fingerprint.every_s) == (0, 300)


def test_an_empty_file_is_all_defaults() -> None:
    """Nothing is required before something refers to it."""
    settings, problems = read_settings({})

    assert problems == []
    assert settings is not None
    assert settings.store.keep_text == "cache-only"


@pytest.mark.parametrize(
    ("old", "new", "problem", "allowed"),
    [
        (
            "[store]",
            "[fingerprint]\nevery_s = 5\n[store]",
            "fingerprint.every_s = 5",
            "0, or seconds in 10..86400",
        ),
        (
            "[store]",
            "[fingerprint]\nevery = 300\n[store]",
            "fingerprint.every = 300",
            'unknown key; did you mean "every_s"',
        ),
        ("[store]", "[stroe]", "stroe = '[…]'", 'unknown section; did you mean "store"'),
        (
            "deadline_s",
            "deadlines",
            "ladders.chat.deadlines = 30",
            'unknown key; did you mean "deadline_s"',
        ),
        (
            "attempts = 4",
            'attempts = "4"',
            "ladders.chat.retry.attempts = '4'",
            "an integer in 1..10",
        ),
        (
            "attempts = 4",
            "attempts = true",
            "ladders.chat.retry.attempts = True",
            "an integer in 1..10",
        ),
        (
            "attempts = 4",
            "attempts = 4.5",
            "ladders.chat.retry.attempts = 4.5",
            "an integer in 1..10",
        ),
        (
            "attempts = 4",
            "attempts = 99",
            "ladders.chat.retry.attempts = 99",
            "an integer in 1..10",
        ),
        (
            "gap_s = 5",
            "gap_s = inf",
            "ladders.chat.timeouts.gap_s = inf",
            "seconds in 0.001..86400",
        ),
        (
            "gap_s = 5",
            "gap_s = true",
            "ladders.chat.timeouts.gap_s = True",
            "seconds in 0.001..86400",
        ),
        ("cap_s = 5", "cap_s = 0.1", "ladders.chat.retry.cap_s = 0.1", "at least base_s, 0.2"),
        (
            '"messages"',
            '"fuzzy"',
            "ladders.chat.cache.match = 'fuzzy'",
            'one of "exact", "messages"',
        ),
        (
            '"remote", ',
            '"remoat", ',
            "ladders.chat.rungs = 'remoat'",
            'no such endpoint; did you mean "remote"',
        ),
        ('"remote", ', '"primary", ', "ladders.chat.rungs = ['primary', 'primary', 'cache']", ""),
        ('["primary", "remote", "cache"]', "[]", "ladders.chat.rungs = []", "at least one rung"),
        (
            '["primary", "remote", "cache"]',
            '"primary"',
            "ladders.chat.rungs = 'primary'",
            "a list of text",
        ),
        (
            'primary = "smollm2-v1"',
            'primary = "smollm2-v2"',
            "pins.primary = 'smollm2-v2'",
            'no such version or catalogue model; did you mean "smollm2-v1"',
        ),
        (
            'pin = "primary"',
            'pin = "primry"',
            "endpoints.primary.pin = 'primry'",
            "no such slot in [pins]",
        ),
        ("[endpoints.remote]", "[endpoints.cache]", "endpoints.cache = 'cache'", "another name"),
        ('model = "some-model"', "", "endpoints.remote.model = None", "set with url"),
        (
            '"some-model"',
            '"llama:latest"',
            "endpoints.remote.model = 'llama:latest'",
            "a model name that does not move",
        ),
        (
            "output_per_mtok = 0.08",
            "output_per_mtok = -1",
            "versions.smollm2-v1.price.output_per_mtok = -1",
            "a number in 0..1000000",
        ),
        (
            ", output_per_mtok = 0.08",
            "",
            "versions.smollm2-v1.price.output_per_mtok = None",
            "it is required",
        ),
        ('sha256 = "b179', 'sha256 = "B179', "versions.smollm2-v1.sha256 = ", ""),
        (
            'dtype = "bfloat16"',
            "dtpe = 1",
            "versions.smollm2-v1.dtpe = 1",
            'unknown key; did you mean "dtype"',
        ),
        (
            "pypi:smol==0.1:smol/S.gguf",
            "hf:org/name@main",
            "versions.smollm2-v1.source = 'hf:org/name@main'",
            "hf:ORG/NAME@<40-hex commit>",
        ),
        (
            "pypi:smol==0.1:smol/S.gguf",
            "hf:org/name@abc1234",
            "versions.smollm2-v1.source = 'hf:org/name@abc1234'",
            "",
        ),
        ("pypi:smol==0.1:", "pypi:smol:", "versions.smollm2-v1.source = ", ""),
        ("[store]", "store = 3\n[strange]", "store = 3", "a table: [store]"),
    ],
)
def test_a_mistake_is_named_with_its_key_value_and_what_is_allowed(
    old: str, new: str, problem: str, allowed: str
) -> None:
    """One line each, dotted as the user wrote it."""
    lines = problems_of(change(WHOLE, old, new))

    assert any(line.startswith(problem) and allowed in line for line in lines), lines


def test_all_problems_are_listed_at_once() -> None:
    """Three mistakes in three tables take one look, not three."""
    broken = change(WHOLE, "gap_s = 5", "gap_s = 0")
    broken = change(broken, "min_calls = 10", "min_calls = 0")
    broken = change(broken, 'primary = "smollm2-v1"', 'primary = "nope"')

    problems = problems_of(broken)

    assert [problem.split(" = ")[0] for problem in problems] == [
        "pins.primary",
        "ladders.chat.timeouts.gap_s",
        "ladders.chat.breaker.min_calls",
    ]


@pytest.mark.parametrize(
    "line",
    ['api_key = "sk-secret"', 'token = "sk-secret"', 'api_key_env = "sk-secret!"'],
)
def test_a_secret_in_the_file_is_refused_without_showing_it(line: str) -> None:
    """Unknown keys that are named like a secret are masked too."""
    problems = problems_of(change(WHOLE, 'api_key_env = "REMOTE_KEY"', line))

    assert len(problems) == 1
    assert "sk-secret" not in problems[0]


def test_a_secret_in_the_keys_table_is_refused_without_showing_it() -> None:
    """``[keys]`` holds variable names, and a pasted key is not one."""
    problems = problems_of(change(WHOLE, '"ACME_KEY"', '"sk-secret!"'))

    assert problems == ["keys.acme = '***' is not allowed: the name of an environment variable"]


def test_a_relative_database_lies_beside_its_settings_file(tmp_path: Path) -> None:
    """A command run from another folder must not open another database."""
    file = tmp_path / "failsoft.toml"
    file.write_text(WHOLE, encoding="utf-8")

    settings = load_settings(file)

    assert settings.store.url == f"sqlite:///{tmp_path}/records/failsoft.db"


@pytest.mark.parametrize("content", [None, b"store = [", b"\xff\xfe"])
def test_an_unreadable_file_is_one_problem(tmp_path: Path, content: bytes | None) -> None:
    """Missing, not TOML, not UTF-8."""
    file = tmp_path / "failsoft.toml"
    if content is not None:
        file.write_bytes(content)

    settings, problems = check_settings(file)

    assert settings is None
    assert [problem.key for problem in problems] == [str(file)]


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    """Editors on Windows write one; it was an invalid statement at line 1, column 1."""
    file = tmp_path / "failsoft.toml"
    file.write_bytes(codecs.BOM_UTF8 + WHOLE.replace("\n", "\r\n").encode())
    plain = tmp_path / "plain.toml"
    plain.write_text(WHOLE, encoding="utf-8")

    settings, problems = check_settings(file)

    assert problems == []
    assert settings == load_settings(plain)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_told_to_be_saved_anew(tmp_path: Path, encoding: str) -> None:
    """Another thing that editors on Windows write; the codec's words helped nobody."""
    file = tmp_path / "failsoft.toml"
    file.write_bytes(("\ufeff" + WHOLE).encode(encoding))

    (problem,) = check_settings(file).problems

    assert "it is in UTF-16: save it as UTF-8" in str(problem)


def test_loading_raises_the_first_problem_and_counts_the_others(tmp_path: Path) -> None:
    """The note sends the user to the command that lists them all."""
    file = tmp_path / "failsoft.toml"
    file.write_text("[store]\nfoo = 1\nbar = 2\n", encoding="utf-8")

    with pytest.raises(ConfigError) as caught:
        load_settings(file)

    assert caught.value.key == "store.foo"
    assert caught.value.__notes__ == [f"1 more: run `failsoft config check {file}`"]


def test_what_show_prints_reads_back_as_the_same_settings() -> None:
    """Quotes, newlines, accents and nested engine options survive."""
    settings = read_settings(tomllib.loads(WHOLE)).settings
    assert settings is not None

    again, problems = read_settings(tomllib.loads(as_toml(as_tables(settings))))

    assert problems == []
    assert again == settings


def warned(toml: str, environ: dict[str, str]) -> list[str]:
    """Return the warnings of a valid file."""
    settings = read_settings(tomllib.loads(toml)).settings
    assert settings is not None
    return warnings_of(settings, environ)


ALL_SET: dict[str, Any] = {"REMOTE_KEY": "x", "ACME_KEY": "y"}


def test_surprises_of_a_valid_file_are_warnings() -> None:
    """A remote without a price: its cost is unknown, never 0; unset secrets are named."""
    assert warned(WHOLE, ALL_SET) == [
        "endpoints.remote.price: no price, so costs are unknown, not 0"
    ]
    assert [line.split(":")[0] for line in warned(WHOLE, {})[:2]] == [
        "endpoints.remote.api_key_env",
        "keys.acme",
    ]


def test_keeping_no_text_warns_that_the_cached_rung_is_off() -> None:
    """The rung stays in the list and can never answer."""
    lines = warned(change(WHOLE, "[store]", '[store]\nkeep_text = "none"'), ALL_SET)

    assert 'ladders.chat.rungs: the cached rung is off, because store.keep_text = "none"' in lines


def test_a_stale_window_longer_than_replies_live_is_a_warning() -> None:
    """Retention would delete what the ladder still wants."""
    lines = warned(change(WHOLE, "[store]", "[store]\nreply_days = 1"), ALL_SET)

    assert any(line.startswith("ladders.chat.cache: replies may answer for") for line in lines)

"""The Grafana board asks for metrics that exist, with labels they have."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from failsoft.engine.http.metrics import ServerMetrics
from failsoft.records import FinishReason
from tests.engine.builders import Collector, make_request
from tests.engine.test_engine import make_engine

BOARD = Path(__file__).parents[3] / "docs" / "grafana" / "failsoft-engine.json"
_METRIC = re.compile(r"failsoft_[a-z0-9_]+")
_SELECTOR = re.compile(r"(failsoft_[a-z0-9_]+)\{([^}]*)\}")
_BY = re.compile(r"sum by \(([^)]*)\)")


@pytest.fixture(scope="module")
def board() -> dict[str, Any]:
    """The file as Grafana reads it."""
    found: dict[str, Any] = json.loads(BOARD.read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def samples() -> dict[str, set[str]]:
    """Every sample that the metrics of a busy engine show, and the labels it has."""
    events = Collector()
    with make_engine(step_s=0.01) as engine:
        metrics = ServerMetrics(engine, "tiny", version_digest="ab12" * 16)
        metrics.count_refused("host_not_allowed")
        for reason in FinishReason:
            request_id = reason.value
            engine.submit(make_request(request_id, max_tokens=100), events)
            events.wait_tokens(request_id, 2)
            text = metrics.render().decode()
            engine.abort(request_id, reason)
            events.wait_finished(request_id)
            metrics.observe(events.finished[request_id])
        text += metrics.render().decode()
    found: dict[str, set[str]] = {}
    for part in text.split("# HELP failsoft_engine_alive")[1:]:
        for family in text_string_to_metric_families(f"# HELP failsoft_engine_alive{part}"):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels that show something."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def test_every_metric_on_the_board_exists(
    board: dict[str, Any], samples: dict[str, set[str]]
) -> None:
    """Under exactly that name, and grouped by labels that it has."""
    for panel in panels(board):
        for target in panel["targets"]:
            names = set(_METRIC.findall(target["expr"]))
            assert names, panel["title"]
            for name in names:
                assert name in samples, (panel["title"], name)
                wanted = {label for by in _BY.findall(target["expr"]) for label in by.split(", ")}
                legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                assert wanted | legend <= samples[name], (panel["title"], name)


def test_every_selector_can_be_narrowed_to_a_model(board: dict[str, Any]) -> None:
    """One board for many engines."""
    for panel in panels(board):
        for target in panel["targets"]:
            assert all(
                'model_name=~"$model"' in labels for _, labels in _SELECTOR.findall(target["expr"])
            )
            assert len(_SELECTOR.findall(target["expr"])) == len(_METRIC.findall(target["expr"]))


def test_the_board_has_what_grafana_needs(board: dict[str, Any]) -> None:
    """Ids and places of their own, a data source that is asked for, titles and words."""
    assert board["uid"] == "failsoft-engine"
    assert board["schemaVersion"] >= 36
    assert {"panels", "templating", "time", "title"} <= board.keys()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    source, model = board["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    assert model["definition"] == "label_values(failsoft_engine_alive, model_name)"
    for panel in panels(board):
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["title"]
        assert panel["description"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_no_two_panels_lie_on_one_another(board: dict[str, Any]) -> None:
    """Within the 24 columns."""
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (place["x"] + dx, place["y"] + dy)
            for dx in range(place["w"])
            for dy in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells

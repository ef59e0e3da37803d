"""Events reach the store; a store that fails holds nobody up."""

import json
from pathlib import Path

from failsoft.config.settings import StoreConfig
from failsoft.serving.supervisor.events import EventLog
from failsoft.store.store import Store
from tests.engine.http.rig import wait_until


def test_an_event_is_recorded(tmp_path: Path) -> None:
    """With its subject, and its detail as JSON."""
    config = StoreConfig(url=f"sqlite:///{tmp_path / 'a.db'}")
    log = EventLog(config, environ={}, on_trouble=lambda text: None)

    log.record("engine.died", "primary", why="exit -9", restart_in_s=1.0)
    log.close()

    with Store(config) as store:
        (event,) = store.reader.events()
    assert (event.kind, event.subject) == ("engine.died", "primary")
    assert json.loads(event.detail_json) == {"why": "exit -9", "restart_in_s": 1.0}


def test_a_store_that_cannot_be_opened_is_told_of_and_tried_again(tmp_path: Path) -> None:
    """What happened meanwhile is not lost."""
    folder = tmp_path / "later"
    config = StoreConfig(url=f"sqlite:///{folder / 'a.db'}")
    folder.write_text("no folder")
    said: list[str] = []
    log = EventLog(config, environ={}, on_trouble=said.append, retry_s=0.02)
    log.record("engine.died", "primary")
    assert wait_until(lambda: bool(said))

    folder.unlink()
    folder.mkdir()

    def is_recorded() -> bool:
        if not (folder / "a.db").exists():
            return False
        with Store(config) as store:
            return [event.kind for event in store.reader.events()] == ["engine.died"]

    assert wait_until(is_recorded)
    log.close()
    assert "not recorded" in said[0]

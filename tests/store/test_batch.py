"""What a batch does when the database refuses: is it about a row, or about all of them?

And how it is sent: in statements that let other threads compute in between.
"""

import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import sqlalchemy as sa

from failsoft.call_records import AttemptRecord, CallRecord
from failsoft.config.settings import StoreConfig
from failsoft.store import Store
from failsoft.store.batch import BatchWriter, Prepared
from failsoft.store.breath import Breath
from failsoft.store.numbered import IS_NUMBERED
from failsoft.store.rows import INSERTS
from tests.store.waiting import wait_until

OpenStore = Callable[..., Store]
MakeCall = Callable[..., CallRecord]
MakeAttempt = Callable[..., AttemptRecord]


def run(store: Store, statement: str) -> None:
    """Run one statement in the store's database."""
    with store._database.write() as connection:
        connection.exec_driver_sql(statement)


def test_records_wait_for_a_table_that_is_away(open_store: OpenStore, make_call: MakeCall) -> None:
    """No row is unfit: PostgreSQL calls it a programming error, and every record was dropped."""
    store = open_store()
    run(store, "ALTER TABLE calls RENAME TO away")

    store.recorder.record_call(make_call(call_id="c"))
    wait_until(lambda: store.stats().last_error, timeout_s=10)
    run(store, "ALTER TABLE away RENAME TO calls")

    assert store.flush(10)
    assert store.stats().dropped_total == {}
    assert store.reader.call("c") is not None


def test_others_are_let_in_between_the_statements_of_a_transaction(
    open_store: OpenStore, make_call: MakeCall, make_attempt: MakeAttempt
) -> None:
    """SQLite lets go of the lock for less than a thread takes to wake: callers waited 3 ms."""
    database = open_store()._database
    seen: list[str] = []
    batch: list[Prepared] = []
    for _ in range(100):
        call = make_call()
        attempt = make_attempt(call.call_id)
        batch.append(("call", INSERTS["call"].to_row(call), None))
        batch.append(("attempt", INSERTS["attempt"].to_row(attempt), None))
    ticks = (tick * sys.getswitchinterval() / 2 for tick in count())
    breath = Breath(clock=lambda: next(ticks), sleep=lambda _s: seen.append("breath"))

    @sa.event.listens_for(database._writing, "before_cursor_execute")
    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        seen.append(statement.split()[0])

    BatchWriter(database).insert(batch, breath)

    inserting = seen[seen.index("INSERT") :]
    assert len(inserting) > 5
    assert inserting == ["INSERT", "breath"] * (len(inserting) // 2)


def test_a_numbered_statement_is_sent_as_it_is(postgres_config: StoreConfig) -> None:
    """Reading 640 parameters of each statement took psycopg 1.5 ms; this it could not read."""
    with Store(postgres_config) as store, store._database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE notes (text TEXT)")
        connection.exec_driver_sql(
            "INSERT INTO notes VALUES ('100%' || $1), ('%s')",
            (" sure",),
            execution_options={IS_NUMBERED: True},
        )
        rows = connection.exec_driver_sql("SELECT text FROM notes WHERE text <> %s", ("",))
        found = [row.text for row in rows]

    assert found == ["100% sure", "%s"]

"""What a batch does when the database refuses: is it about a row, or about all of them?"""

from collections.abc import Callable

from failsoft.call_records import CallRecord
from failsoft.store import Store
from tests.store.waiting import wait_until

OpenStore = Callable[..., Store]
MakeCall = Callable[..., CallRecord]


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

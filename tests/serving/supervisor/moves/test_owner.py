"""Whose move it is."""

from pathlib import Path

import pytest

from failsoft.serving.supervisor.moves.owner import is_same_owner, owner_name


@pytest.mark.parametrize(
    ("owner", "is_local", "is_same"),
    [
        ("own", False, True),
        ("other:/srv/app", True, True),
        ("other:/srv/app", False, False),
        ("other:/srv/other", True, False),
    ],
)
def test_the_same_folder_of_another_machine_is_another_owner_on_a_shared_store(
    owner: str, is_local: bool, is_same: bool
) -> None:
    """Beside a file it is this one, whose host name a container changed."""
    own = owner_name(Path("/srv/app"))

    assert is_same_owner(own if owner == "own" else owner, own, is_local=is_local) is is_same

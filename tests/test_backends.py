"""Each API is found by its names and its path."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from loadgen.backends import BACKENDS, DIALECTS, ENDPOINTS, DialectName, dialect_at
from loadgen.target import Target


def test_a_name_is_that_of_one_api() -> None:
    """Each API has one at least, and no two share one."""
    assert set(DIALECTS) == set(get_args(DialectName))
    names = Counter(name for spoken in DIALECTS.values() for name in spoken.names)
    assert set(names.values()) == {1}
    assert set(BACKENDS.values()) == set(DIALECTS)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_path_tells_the_api(name: DialectName) -> None:
    """So do its names, which a scenario takes."""
    assert dialect_at(ENDPOINTS[name]) == name
    for backend in DIALECTS[name].names:
        assert Target(base_url="http://server", backend=backend).dialect == name

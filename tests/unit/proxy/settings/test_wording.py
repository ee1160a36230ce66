from __future__ import annotations

import pytest

from proxy.settings.wording import counted


@pytest.mark.parametrize(("number", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (2_000, "2,000 rows")])
def test_a_number_agrees_with_its_word(number: int, text: str) -> None:
    assert counted(number, "row") == text

"""Rows dealt out: an array for each site, without as many arrays."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.data.shards import Dealt

PARTS = [np.array([4, 1]), np.array([], np.int64), np.array([0, 2, 3])]


def test_sites_are_what_they_were_made_from() -> None:
    found = Dealt.of(PARTS)
    assert len(found) == 3 and found.counts.tolist() == [2, 0, 3]
    assert [part.tolist() for part in found] == [part.tolist() for part in PARTS]
    assert found[-1].tolist() == [0, 2, 3] and Dealt.of(found) is found
    with pytest.raises(IndexError):
        found[3]


@pytest.mark.parametrize("chosen", [slice(None), slice(1, 2), slice(1, None), slice(2, 9)])
def test_some_of_the_sites_are_sites_again(chosen: slice) -> None:
    found = Dealt.of(PARTS)[chosen]
    assert isinstance(found, Dealt)
    assert [part.tolist() for part in found] == [part.tolist() for part in PARTS[chosen]]


def test_sites_are_not_taken_with_gaps() -> None:
    with pytest.raises(ValueError, match="without gaps"):
        Dealt.of(PARTS)[::2]

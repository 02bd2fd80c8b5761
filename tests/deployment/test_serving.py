"""A server's end without a network: whom it waits for, when it pauses, what it refuses."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import studies
from parties import SITES, enrol, free_port

from understudy.deployment.keys import load_keys
from understudy.deployment.reception import Reception, Report
from understudy.deployment.serving import Serving, serve
from understudy.deployment.status import SiteStatus, Status
from understudy.errors import KeysError, StudyError, UnderstudyError, WireError
from understudy.runtime import greeting
from understudy.runtime.greeting import Farewell, Terms
from understudy.runtime.wire import Agreement, encode_refusal
from understudy.study import Study

OURS = Terms(Agreement("s", "c", "p", "1.0"), {"rounds": 3}, "roster", "os", 1000.0)


class Present:
    """A transport of sites that come and go as a test says."""

    def __init__(self, *there: str) -> None:
        self.there, self.back, self.greeted = set(there), set[str](), list[str]()
        self.terms = dict.fromkeys(SITES, OURS)
        self.watch: Callable[[Sequence[str]], None]

    def sites(self) -> Sequence[str]:
        return [name for name in SITES if name in self.there]

    def awaited(self) -> Sequence[str]:
        return [name for name in SITES if name in self.back]

    def exchange(
        self, messages: Mapping[str, bytes], deadline: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        self.greeted += messages
        replies = {name: self.terms[name].encode("welcome", "ab", name) for name in messages}
        return replies, {}


def reception(folder: Path, transport: Any, wait: float = 0.0) -> Reception:
    status = Status("three", 5, tuple(SiteStatus(name) for name in SITES))
    return Reception(transport, OURS, "ab", Report(status, folder), wait, "understudy … --resume")


def states(found: Reception) -> list[str]:
    return [site.state for site in found.report.status.sites]


def test_every_site_must_be_there_before_round_one(tmp_path: Path) -> None:
    found = reception(tmp_path, Present("north", "south"))
    with pytest.raises(WireError, match=r"no word from east.*--resume"):
        found.open()
    assert Status.read(tmp_path).phase == "paused"
    assert Status.read(tmp_path).next == "understudy … --resume"
    found = reception(tmp_path, Present(*SITES))
    found.open()
    assert states(found) == ["joined"] * 3


def test_a_site_that_means_something_else_is_named_before_anything_is_spent(
    tmp_path: Path,
) -> None:
    transport = Present(*SITES)
    transport.terms["south"] = replace(OURS, study={"rounds": 4})
    found = reception(tmp_path, transport)
    with pytest.raises(WireError, match=r"south.*rounds is 3 here and 4 there"):
        found.open()
    assert "refused" in states(found)


def test_a_site_whose_clock_is_wrong_is_named_before_anything_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, now = Present(*SITES), time.time()
    monkeypatch.setattr(greeting, "time", SimpleNamespace(time=lambda: now + 900))
    found = reception(tmp_path, transport)
    with pytest.raises(WireError, match=r"(900|899) s ahead there.*timedatectl"):
        found.open()
    assert "refused" in states(found)


def test_a_run_that_is_resumed_waits_for_all_and_goes_on_with_enough(tmp_path: Path) -> None:
    found = reception(tmp_path, Present("north", "south"))
    found.open(2)
    assert states(found) == ["joined", "joined", "absent"]
    assert "going on without east" in found.report.status.log[-1]
    found = reception(tmp_path, Present("north"))
    with pytest.raises(WireError, match="no word from south, east"):
        found.open(2)


def test_a_site_that_comes_back_is_greeted_again(tmp_path: Path) -> None:
    transport = Present(*SITES)
    found = reception(tmp_path, transport)
    found.open()
    transport.there.discard("east")
    found.enough(2)
    assert states(found) == ["joined", "joined", "lost"]
    transport.there.add("east")
    found.enough(2)
    assert states(found) == ["joined"] * 3 and transport.greeted.count("east") == 2


def test_a_loss_in_the_middle_of_a_round_is_told_at_once_and_so_is_the_return(
    tmp_path: Path,
) -> None:
    transport = Present(*SITES)
    found = reception(tmp_path, transport)
    found.open()
    transport.watch(["north", "south"])  # as the transport does while it waits for answers
    assert states(found) == ["joined", "joined", "lost"]
    transport.watch(SITES)
    assert states(found) == ["joined"] * 3
    found.enough(2)  # and it is greeted, as it may be another process
    assert states(found) == ["joined"] * 3 and transport.greeted.count("east") == 2


def test_a_site_that_comes_back_with_another_study_is_left_out(tmp_path: Path) -> None:
    transport = Present(*SITES)
    found = reception(tmp_path, transport)
    found.open()
    transport.there.discard("east")
    found.enough(2)
    transport.there.add("east")
    transport.terms["east"] = replace(OURS, study={"rounds": 4})
    found.enough(2)
    found.enough(2)
    assert states(found)[2] == "refused" and transport.greeted.count("east") == 2


def test_a_round_that_too_few_would_answer_is_not_begun(tmp_path: Path) -> None:
    transport = Present(*SITES)
    found = reception(tmp_path, transport)
    found.open()
    transport.there = {"north"}
    with pytest.raises(WireError, match="1 of 3 sites, 2 are needed"):
        found.enough(2)
    assert found.report.status.phase == "paused"


def test_sites_that_may_come_back_are_waited_for(tmp_path: Path) -> None:
    transport = Present(*SITES)
    found = reception(tmp_path, transport)
    found.open()
    transport.there.discard("east")
    transport.back = {"east"}
    begun = time.monotonic()

    def awaited() -> Sequence[str]:
        return ["east"] if time.monotonic() - begun < 0.3 else []

    transport.awaited = awaited  # type: ignore[method-assign]
    found.enough(2)
    assert time.monotonic() - begun >= 0.3


def test_signatures_are_collected_and_refusals_noted(tmp_path: Path) -> None:
    farewell = Farewell("ab", "head", "model", b"{}")

    class Last(Present):
        def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Any:
            refused = encode_refusal("no", OURS.agreement, "south")
            return {"north": farewell.signed("north", b"x"), "south": refused}, {"east": "lost"}

    found = reception(tmp_path, Last(*SITES))
    assert found.close(farewell, 1.0) == {"north": b"x"}
    assert states(found) == ["done", "refused", "lost"]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return enrol(tmp_path_factory.mktemp("keys"))


def refused(folder: Path, own: Path, text: str = studies.VOTES, **options: Any) -> UnderstudyError:
    study = Study.load(studies.write(folder, text))
    how = Serving(folder / "out", load_keys(own / "hub"), port=free_port(), wait=0.0)
    with pytest.raises(UnderstudyError) as found:
        serve(study, replace(how, **options))
    assert not list(folder.glob("out*"))  # nothing was spent, nothing is left behind
    return found.value


def test_a_port_in_use_is_named(tmp_path: Path, keys: Path) -> None:
    with socket.create_server(("localhost", 0)) as taken:
        found = refused(tmp_path, keys, port=taken.getsockname()[1])
    assert isinstance(found, WireError) and "--port" in found.do


def test_the_keys_of_a_site_do_not_serve(tmp_path: Path, keys: Path) -> None:
    assert isinstance(refused(tmp_path, keys, keys=load_keys(keys / "north")), KeysError)


def test_sums_under_masks_need_keys(tmp_path: Path, keys: Path) -> None:
    found = refused(tmp_path, keys, studies.SHARED, keys=None)
    assert isinstance(found, KeysError) and "--insecure" in found.found


def test_a_site_without_approved_keys_is_named(tmp_path: Path, keys: Path) -> None:
    found = refused(tmp_path, keys, studies.VOTES + '\n[[site]]\nname = "west"\n')
    assert isinstance(found, KeysError) and "west" in found.found


def test_a_simulation_is_not_served(tmp_path: Path, keys: Path) -> None:
    path = studies.write(tmp_path, studies.VOTES)
    text = path.read_text().split("[[site]]")[0] + '[simulation]\ndata = "north.csv"\nsites = 3\n'
    path.write_text(text)
    with pytest.raises(StudyError, match=r"entries, and no \[simulation\]"):
        serve(Study.load(path), Serving(tmp_path / "out", load_keys(keys / "hub")))

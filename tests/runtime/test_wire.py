from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy.errors import WireError
from understudy.federation.recipe import Task
from understudy.privacy.clip import Bounded, Receipt, Sealed
from understudy.runtime import wire
from understudy.runtime.wire import (
    VERSION,
    Agreement,
    Envelope,
    Refused,
    decode_call,
    decode_sealed,
    encode_arrays,
    encode_call,
    encode_refusal,
    encode_sealed,
)

AGREED = Agreement("study", "schema", "plan", "1.0")
HERE = Envelope(AGREED, "run", "site-1", 3)
RECEIPT = Receipt(3, "a", "client", "gaussian", "site", 1.0, 2.0, "os")
SEALED = Sealed("noised", 3, {"a": torch.arange(6.0).reshape(1, 2, 3)}, (RECEIPT,))
TASK = Task({"w": torch.ones(2)}, {"round": 3, "rate": 0.5, "mode": "x", "on": True})

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.uint8]
DTYPES += [torch.bool]


def read_task(data: bytes, envelope: Envelope) -> tuple[Task, Envelope]:
    """What the site of an envelope makes of a message."""
    task, told, found = decode_call(data, envelope.agreement, envelope.site)
    assert told == b""
    return task, found


def bits(value: torch.Tensor) -> bytes:
    return (
        value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    )


@st.composite
def tensors(draw, lead: int | None = None) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    shape = shape if lead is None else [lead, *shape]
    seed = draw(st.integers(0, 2**31))
    raw = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 100
    return raw.to(draw(st.sampled_from(DTYPES)))


NAMES = st.text(min_size=1, max_size=8).filter(lambda n: n != "__metadata__")
VALUES = st.one_of(
    st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return list(sorted(a)) == list(sorted(b)) and all(
        a[n].dtype == b[n].dtype and a[n].shape == b[n].shape and bits(a[n]) == bits(b[n])
        for n in a
    )


@given(st.dictionaries(NAMES, tensors(), max_size=3), st.dictionaries(NAMES, VALUES, max_size=4))
def test_a_task_comes_back_exactly(arrays: dict, values: dict) -> None:
    found, envelope = read_task(encode_call(HERE, Task(arrays, values)), HERE)
    assert envelope == HERE
    assert same(found.arrays, arrays)
    assert found.values == values
    assert {k: type(v) for k, v in found.values.items()} == {k: type(v) for k, v in values.items()}


@given(st.dictionaries(NAMES, tensors(lead=1), min_size=1, max_size=3), st.integers(0, 3))
def test_a_sealed_update_comes_back_exactly(parts: dict, receipts: int) -> None:
    sealed = Sealed("entrusted", 3, parts, (RECEIPT,) * receipts)
    found = decode_sealed(encode_sealed(sealed, HERE), HERE)
    assert same(found.parts, parts)
    assert (found.kind, found.round, found.receipts) == ("entrusted", 3, (RECEIPT,) * receipts)


def test_values_that_are_not_finite_travel_and_are_judged_by_the_server() -> None:
    parts = {"a": torch.tensor([[torch.nan, torch.inf, -0.0]])}
    found = decode_sealed(encode_sealed(Sealed("noised", 3, parts, ()), HERE), HERE)
    assert bits(found.parts["a"]) == bits(parts["a"])


def test_views_and_shared_tensors_travel() -> None:
    base = torch.arange(6.0)
    arrays = {"a": base, "b": base, "c": base[2:], "t": base.view(2, 3).T}
    assert same(read_task(encode_call(HERE, Task(arrays)), HERE)[0].arrays, arrays)


@pytest.mark.parametrize(
    "value",
    [torch.ones(1, 2), {"a": torch.ones(1, 2)}, Bounded(torch.ones(1, 2), 1.0, "site"), None, b"x"],
    ids=["tensor", "dict", "bounded", "none", "bytes"],
)
def test_nothing_unsealed_has_an_encoding(value: object) -> None:
    with pytest.raises(WireError, match="Sealed"):
        encode_sealed(value, HERE)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None, [1], {"a": 1}, torch.ones(1)])
def test_a_task_holds_plain_values_only(bad: object) -> None:
    with pytest.raises(WireError):
        encode_call(HERE, Task({}, {"v": bad}))  # type: ignore[dict-item]


MESSAGES = [
    pytest.param(encode_call(HERE, TASK), read_task, id="task"),
    pytest.param(encode_sealed(SEALED, HERE), decode_sealed, id="sealed"),
]


@pytest.mark.parametrize("data, decode", MESSAGES)
def test_every_truncation_is_refused(data: bytes, decode) -> None:
    for length in range(len(data)):
        with pytest.raises(WireError):
            decode(data[:length], HERE)
    with pytest.raises(WireError):
        decode(data + b"\0", HERE)


@pytest.mark.parametrize("data, decode", MESSAGES)
def test_no_flipped_byte_crashes_the_reader(data: bytes, decode) -> None:
    for place in range(len(data)):
        spoiled = bytearray(data)
        spoiled[place] ^= 0xFF
        try:
            decode(bytes(spoiled), HERE)
        except WireError:
            pass


OTHERS = {
    "study": replace(HERE, agreement=replace(AGREED, study="other")),
    "schema": replace(HERE, agreement=replace(AGREED, schema="other")),
    "plan": replace(HERE, agreement=replace(AGREED, plan="other")),
    "version": replace(HERE, agreement=replace(AGREED, version="1.1")),
    "site": replace(HERE, site="site-2"),
}


@pytest.mark.parametrize("data, decode", MESSAGES)
@pytest.mark.parametrize("name", OTHERS)
def test_a_message_of_another_study_plan_version_or_site_is_refused(
    data: bytes, decode: Callable[..., Any], name: str
) -> None:
    with pytest.raises(WireError, match=f"a message of this {name}"):
        decode(data, OTHERS[name])


@pytest.mark.parametrize("name, other", [("run", "another"), ("round", 2), ("round", 4)])
def test_a_reply_of_another_run_or_round_is_refused(name: str, other: object) -> None:
    with pytest.raises(WireError, match=f"a message of this {name}"):
        decode_sealed(encode_sealed(SEALED, HERE), replace(HERE, **{name: other}))


def test_a_retry_takes_the_bytes_of_an_earlier_attempt_and_no_later_one() -> None:
    first = encode_sealed(SEALED, HERE)
    assert decode_sealed(first, replace(HERE, attempt=2)).receipts == (RECEIPT,)
    with pytest.raises(WireError, match="an attempt that was made"):
        decode_sealed(encode_sealed(SEALED, replace(HERE, attempt=1)), HERE)


@pytest.mark.parametrize("change", [
    {"round": -1}, {"round": True}, {"round": 1.5}, {"round": "3"}, {"attempt": -1},
    {"attempt": None}, {"run": 3}, {"run": None}, {"values": []}, {"values": {"a": [1]}},
    {"leg": "keys"}, {"message": "leg"},
])  # fmt: skip
def test_a_task_with_an_odd_envelope_is_refused(change: dict[str, object]) -> None:
    header = {"message": "task", **HERE.header(), "values": {}, **change}
    with pytest.raises(WireError, match=r"a task with a run|whole numbers|a leg only"):
        read_task(rebuilt(header), HERE)


def test_one_body_serves_all_sites_that_are_sent_the_same() -> None:
    body = encode_arrays(TASK.arrays)
    assert encode_call(HERE, TASK, body=body) == encode_call(HERE, TASK)


def test_a_refusal_is_read_as_one_and_says_why() -> None:
    with pytest.raises(Refused, match="no budget left"):
        decode_sealed(encode_refusal("no budget left", AGREED, "site-1"), HERE)
    with pytest.raises(WireError, match="of this site") as other:
        decode_sealed(encode_refusal("no", AGREED, "site-2"), HERE)
    assert not isinstance(other.value, Refused), "one site could speak for another"


def test_a_refusal_of_another_plan_is_still_read() -> None:
    """A site that disagrees about the plan must be able to say so."""
    with pytest.raises(Refused, match="another plan"):
        decode_sealed(encode_refusal("another plan", replace(AGREED, plan="x"), "site-1"), HERE)


def test_a_task_is_no_reply_and_a_reply_is_no_task() -> None:
    with pytest.raises(WireError, match="sealed or refusal message"):
        decode_sealed(encode_call(HERE, TASK), HERE)
    with pytest.raises(WireError, match="task or leg message"):
        read_task(encode_sealed(SEALED, HERE), HERE)


def test_another_magic_or_version_is_refused() -> None:
    data = encode_call(HERE, TASK)
    with pytest.raises(WireError, match="UNDY"):
        read_task(b"EVIL" + data[4:], HERE)
    with pytest.raises(WireError, match=f"wire version {VERSION}; found {VERSION + 1}"):
        read_task(data[:4] + struct.pack("<H", VERSION + 1) + data[6:], HERE)


def rebuilt(header: object, body: bytes | None = None, length: int | None = None) -> bytes:
    """A message with this header."""
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    whole = encode_sealed(SEALED, HERE)
    start = 10 + struct.unpack_from("<I", whole, 6)[0]
    size = len(head) if length is None else length
    return (
        struct.pack("<4sHI", b"UNDY", VERSION, size)
        + head
        + (whole[start:] if body is None else body)
    )


GOOD = {"message": "sealed", **HERE.header(), "kind": "noised", "receipts": [asdict(RECEIPT)]}


def test_the_message_that_the_next_tests_spoil_is_good() -> None:
    assert decode_sealed(rebuilt(GOOD), HERE).receipts == (RECEIPT,)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 200_000,
        [],
        None,
        {},
        {**GOOD, "kind": "private"},
        {**GOOD, "kind": None},
        {**GOOD, "receipts": 3},
        {**GOOD, "receipts": ["x"]},
        {**GOOD, "receipts": [{}]},
        {**GOOD, "receipts": [{**asdict(RECEIPT), "extra": 1}]},
        {k: v for k, v in GOOD.items() if k != "receipts"},
    ],
    ids=range(14),
)
def test_a_malformed_header_is_refused(header: object) -> None:
    with pytest.raises(WireError):
        decode_sealed(rebuilt(header), HERE)


def test_lengths_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    for length in (0, 5, 2**20 + 1, 2**32 - 1):
        with pytest.raises(WireError):
            decode_sealed(rebuilt(GOOD, length=length), HERE)
    with pytest.raises(WireError):
        decode_sealed(rebuilt(GOOD, body=struct.pack("<Q", 2**62) + b"{}"), HERE)
    huge = {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
    head = json.dumps(huge).encode()
    with pytest.raises(WireError):
        decode_sealed(rebuilt(GOOD, body=struct.pack("<Q", len(head)) + head), HERE)


def test_messages_beyond_the_limits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_sealed(SEALED, HERE)
    monkeypatch.setattr(wire, "MAX_BODY", 64)
    with pytest.raises(WireError, match="larger"):
        encode_sealed(SEALED, HERE)
    monkeypatch.setattr(wire, "MAX_HEADER", 16)
    with pytest.raises(WireError):
        decode_sealed(data, HERE)
    with pytest.raises(WireError):
        encode_call(HERE, Task({}, {"v": "x" * 100}))


@pytest.mark.parametrize(
    "parts",
    [{"a": torch.ones(2, 3)}, {"a": torch.tensor(1.0)}, {"a": torch.ones(0, 3)}, {}],
    ids=["two sites", "scalar", "nobody", "nothing"],
)
def test_a_reply_speaks_for_one_site(parts: dict) -> None:
    """A stack over the wire would let one site count as many."""
    with pytest.raises(WireError):
        decode_sealed(encode_sealed(Sealed("noised", 3, parts, ()), HERE), HERE)


def test_a_message_holds_no_pickle_and_no_names_of_code() -> None:
    data = encode_sealed(SEALED, HERE) + encode_call(HERE, TASK)
    assert b"torch" not in data and b"understudy" not in data and b"\x80\x04" not in data[:10]

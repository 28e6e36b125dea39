"""The client against a transport made of arrays: what it looks up, sends, asks again, and records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from preprocessing.errors import ServingError
from serving.client import Client
from serving.client_async import AsyncClient
from serving.client_calls import Answer, Asked, ModelVersion, Selected, SignatureInfo
from serving.client_errors import status_error
from serving.client_record import Exchange
from serving.client_rest_messages import path_of, read_body
from serving.rows import InputColumn
from serving.server.status import Code, StatusError

USER, PRICE, TAGS = (
    InputColumn("user", "DT_STRING", (-1,)),
    InputColumn("price", "DT_FLOAT", (-1,)),
    InputColumn("tags", "DT_STRING", (-1, 2)),
)
NAMED = SignatureInfo((PRICE, TAGS, USER), {"click": "DT_FLOAT"})
RANK = SignatureInfo(
    (InputColumn("price", "DT_FLOAT", (-1, -1)), InputColumn("tags", "DT_STRING", (-1, -1, 2)), USER),
    {"click": "DT_FLOAT", "top_indices": "DT_INT32", "top_scores": "DT_FLOAT"},
)
PACKED = SignatureInfo(
    (InputColumn("floats", "DT_FLOAT", (-1, 1)), InputColumn("strings", "DT_STRING", (-1, 3))), {"click": "DT_FLOAT"}
)


class Fake:
    """Answers price / 2; refuses what `refuse` says; `signatures` may be changed as a new version does."""

    def __init__(self) -> None:
        self.signatures = {"serving_default": NAMED, "rank": RANK, "packed": PACKED}
        self.looked_up: list[str] = []
        self.asked: list[Asked] = []
        self.refuse: Callable[[Asked], StatusError | None] = lambda asked: None

    def signature(self, selected: Selected, name: str, *, timeout_s: float | None = None) -> SignatureInfo:
        self.looked_up.append(name)
        return self.signatures[name]

    def predict(self, asked: Asked, info: SignatureInfo, *, timeout_s: float | None = None) -> Answer:
        self.asked.append(asked)
        error = self.refuse(asked)
        if error is not None:
            raise error
        outputs: dict[str, Any] = {"click": asked.inputs["floats" if asked.signature == "packed" else "price"] / 2}
        if asked.signature == "rank":
            order = np.argsort(-outputs["click"][0])[:2]
            padded = np.append(order, [-1] * (3 - len(order))).astype(np.int32)
            outputs |= {
                "top_indices": padded[None],
                "top_scores": np.append(outputs["click"][0][order], [-np.inf])[None],
            }
        return Answer(outputs, 7)

    def versions(self, model_name: str, *, timeout_s: float | None = None) -> list[ModelVersion]:
        return [ModelVersion(7, "AVAILABLE", "")]

    def close(self) -> None:
        self.asked.clear()


class Kept:
    """Records all."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def wants(self, request_id: str) -> bool:
        return request_id != "no"

    def record(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)


class AsyncFake:
    """The same, awaited."""

    def __init__(self, fake: Fake) -> None:
        self._fake = fake

    async def signature(self, selected: Selected, name: str, *, timeout_s: float | None = None) -> SignatureInfo:
        return self._fake.signature(selected, name)

    async def predict(self, asked: Asked, info: SignatureInfo, *, timeout_s: float | None = None) -> Answer:
        return self._fake.predict(asked, info)

    async def versions(self, model_name: str, *, timeout_s: float | None = None) -> list[ModelVersion]:
        return self._fake.versions(model_name)

    async def close(self) -> None:
        self._fake.close()


class Both:
    """Calls a client of either kind and waits for the answer."""

    def __init__(self, kind: str, fake: Fake, recorder: Kept | None = None) -> None:
        self._is_async = kind == "asyncio"
        self._client: Any = (
            AsyncClient(AsyncFake(fake), recorder=recorder) if self._is_async else Client(fake, recorder=recorder)
        )

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*positional: Any, **named: Any) -> Any:
            made = getattr(self._client, name)(*positional, **named)
            return asyncio.run(made) if self._is_async else made

        return call


@pytest.fixture(params=["waiting", "asyncio"])
def made(request: pytest.FixtureRequest) -> tuple[Both, Fake, Kept]:
    fake, kept = Fake(), Kept()
    return Both(request.param, fake, kept), fake, kept


Made = tuple[Both, Fake, Kept]


def test_rows_become_arrays_and_the_signature_is_asked_for_once(made: Made) -> None:
    client, fake, _ = made
    rows = [{"price": 2.0, "user": "a", "tags": ["x"]}, {"price": 5.0}]
    for _ in range(2):
        assert client.predict("shop", rows)["click"].tolist() == [1.0, 2.5]
    assert fake.looked_up == ["serving_default"]
    inputs = fake.asked[0].inputs
    assert inputs["user"].tolist() == [b"a", b"\0"]
    assert inputs["tags"].tolist() == [[b"x", b"\0"], [b"\0", b"\0"]]


def test_version_label_and_outputs_reach_the_server(made: Made) -> None:
    client, fake, _ = made
    client.predict("shop", [{}], version=3)
    client.predict("shop", [{}], label="canary", outputs=["click"])
    assert [asked.selected for asked in fake.asked] == [Selected("shop", 3), Selected("shop", None, "canary")]
    assert fake.asked[1].outputs == ("click",)


def test_a_version_and_a_label_are_not_given_together(made: Made) -> None:
    with pytest.raises(ServingError, match="version 3 and label 'x' are both given"):
        made[0].predict("shop", [{}], version=3, label="x")


def test_a_refusal_is_asked_again_only_if_the_signature_has_changed(made: Made) -> None:
    client, fake, _ = made
    client.predict("shop", [{}])
    fake.refuse = lambda asked: status_error(Code.INVALID_ARGUMENT, "no")
    with pytest.raises(StatusError):
        client.predict("shop", [{}])
    assert len(fake.asked) == 2
    newer = SignatureInfo((PRICE, USER), {"click": "DT_FLOAT"})
    fake.signatures["serving_default"] = newer
    fake.refuse = lambda asked: status_error(Code.INVALID_ARGUMENT, "extra") if "tags" in asked.inputs else None
    assert client.predict("shop", [{"price": 4.0}])["click"].tolist() == [2.0]
    assert len(fake.asked) == 4


def test_a_column_of_a_newer_version_is_known_after_a_look(made: Made) -> None:
    client, fake, _ = made
    client.predict("shop", [{}])
    age = InputColumn("age", "DT_INT64", (-1,))
    fake.signatures["serving_default"] = SignatureInfo((age, PRICE), {"click": "DT_FLOAT"})
    client.predict("shop", [{"age": 3, "price": 1.0}])
    assert fake.asked[-1].inputs["age"].tolist() == [3]
    with pytest.raises(ServingError, match="no column 'agee'"):
        client.predict("shop", [{"agee": 3}])


def test_other_errors_are_raised_without_another_look(made: Made) -> None:
    client, fake, _ = made
    client.predict("shop", [{}])
    fake.refuse = lambda asked: status_error(Code.DEADLINE_EXCEEDED, "late")
    with pytest.raises(StatusError):
        client.predict("shop", [{}])
    assert fake.looked_up == ["serving_default"]
    assert len(fake.asked) == 2


def test_packed_rows_are_matrices_of_the_columns_by_name(made: Made) -> None:
    client, fake, kept = made
    found = client.predict("shop", [{"price": 3.0, "user": "u", "tags": ["a", "b"]}], signature="packed")
    assert found["click"].tolist() == [[1.5]]
    assert fake.asked[0].inputs["strings"].tolist() == [[b"a", b"b", b"u"]]
    assert fake.asked[0].inputs["floats"].tolist() == [[3.0]]
    assert kept.exchanges[0].info == NAMED


def test_ranking_sends_the_user_once_and_candidates_side_by_side(made: Made) -> None:
    client, fake, kept = made
    ranking = client.rank("shop", {"user": "u"}, [{"price": 2.0}, {"price": 8.0, "tags": ["x"]}, {"price": 4.0}])
    sent = fake.asked[0].inputs
    assert sent["user"].tolist() == [b"u"]
    assert sent["price"].tolist() == [[2.0, 8.0, 4.0]]
    assert sent["tags"].shape == (1, 3, 2)
    assert ranking.scores["click"].tolist() == [1.0, 4.0, 2.0]
    assert ranking.top_indices.tolist() == [1, 2]
    assert ranking.top_scores.tolist() == [4.0, 2.0]
    assert ranking.version == 7
    assert [row["user"] for row in kept.exchanges[0].rows] == ["u", "u", "u"]


@pytest.mark.parametrize(
    ("context", "candidates", "message"),
    [
        ({}, [], "no candidates"),
        ({"price": 1.0}, [{}], "no column 'price'"),
        ({}, [{"user": "u"}], "no column 'user'"),
    ],
)
def test_columns_of_the_wrong_side_are_refused(made: Made, context: Any, candidates: Any, message: str) -> None:
    with pytest.raises(ServingError, match=message):
        made[0].rank("shop", context, candidates)


def test_what_is_recorded_is_what_was_sent_and_answered(made: Made) -> None:
    client, _, kept = made
    row = {"price": 2.0}
    client.predict("shop", [row], request_id="r1")
    client.predict("shop", [row], request_id="no")
    row["price"] = 99.0
    (one,) = kept.exchanges
    assert one.rows == [{"price": 2.0}]
    assert one.request_id == "r1"
    assert one.answer.version == 7
    assert one.latency_ms >= 0


def test_a_failed_request_is_not_recorded(made: Made) -> None:
    client, fake, kept = made
    fake.refuse = lambda asked: status_error(Code.INTERNAL, "x")
    with pytest.raises(StatusError):
        client.predict("shop", [{}])
    assert not kept.exchanges


@pytest.mark.parametrize(
    ("selected", "path"),
    [
        (Selected("shop"), "/v1/models/shop"),
        (Selected("a/b"), "/v1/models/a%2Fb"),
        (Selected("shop", 3), "/v1/models/shop/versions/3"),
        (Selected("shop", None, "a:b"), "/v1/models/shop/labels/a%3Ab"),
    ],
)
def test_paths_quote_what_would_change_them(selected: Selected, path: str) -> None:
    assert path_of(selected) == path


@pytest.mark.parametrize(
    ("status", "content", "code", "text"),
    [
        (404, b'{"error": "gone"}', Code.NOT_FOUND, "gone"),
        (503, b"<html>", Code.UNAVAILABLE, "no JSON"),
        (200, b"<html>", Code.UNKNOWN, "no JSON"),
        (500, b"[1]", Code.UNKNOWN, r"\[1\]"),
    ],
)
def test_answers_that_are_errors_are_raised_with_their_code(status: int, content: bytes, code: Code, text: str) -> None:
    with pytest.raises(StatusError, match=text) as caught:
        read_body(status, content, server="http://x")
    assert caught.value.code is code

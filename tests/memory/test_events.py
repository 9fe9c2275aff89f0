"""The log of the most recent events."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from traffic import IMAGE_SHAPE, drifting_clusters, numbered_images

from climb.memory import CentroidMemory
from climb.memory.ledger import EVENTS, Event, EventLog


@pytest.mark.parametrize(("kept", "events"), [(1, 4), (5, 3), (5, 5), (5, 23), (700, 650), (700, 1500), (4096, 3000)])
def test_the_last_events_in_their_order(kept: int, events: int) -> None:
    log, plain = EventLog(kept), deque[Event](maxlen=kept)
    for number in range(events):
        event = (number, EVENTS[number % 5], number // 3)
        log.append(*event)
        plain.append(event)
    assert log.listed() == list(plain)
    other = EventLog(kept)
    other.from_tensor(log.to_tensor())
    for each in (log, other):
        each.append(events, "merged", -1)
    plain.append((events, "merged", -1))
    assert log.listed() == other.listed() == list(plain)


def test_a_tensor_of_a_full_log_is_a_copy() -> None:
    log = EventLog(kept=2)
    for number in (3, 5):
        log.append(number, "created", number // 5)
    taken = log.to_tensor()
    log.append(9, "promoted", 0)
    assert taken.tolist() == [[3, 0, 0], [5, 0, 1]]


def test_an_empty_log_has_three_columns() -> None:
    assert EventLog().to_tensor().shape == (0, 3)


def test_births_are_recorded() -> None:
    sizes = {"stm_centroids": 10, "ltm_centroids": 6, "images_per_centroid": 5, "window": 50}
    memory = CentroidMemory(60, IMAGE_SHAPE, 16, **sizes, novelty_percentile=0.9)
    memory.insert(numbered_images(0, 300), torch.from_numpy(drifting_clusters(300, 16, clusters=15, seed=4)))
    created = {centroid: number for number, kind, centroid in memory.events() if kind == "created"}
    state = memory.state_dict()
    rows = [row for row, centroid in enumerate(state["centroid"].tolist()) if centroid >= 0]
    assert len(rows) > 10
    for row in rows:
        assert state["born"][row] == created[int(state["centroid"][row])]

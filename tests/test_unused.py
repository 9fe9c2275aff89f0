"""What would change nothing under a method is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from climb.config import LearnerConfig, MemoryConfig
from climb.engine import Parts
from climb.errors import InputError
from climb.impossible import check_config
from climb.methods import METHODS, kind_of_memory
from climb.presets import FAULTS
from climb.unused import faults_of, prunes_as_told, refuse_equal, refuse_unused
from climb.workshop import Workshop

CENTROIDS = {"climb", "climb-selective", "climb-memory-only", "climb-previous-step"}
USED_BY = {
    "batch-views": METHODS.keys() - {"pcmc"},
    # The released code trains the aligners of CLA.
    "frozen-aligner": {"climb-fifo", "climb-minred", "climb-reservoir"} | CENTROIDS - {"climb-memory-only"},
    "swapped-refresh": CENTROIDS,
    # Memories that are given embeddings.
    "train-embedding": {"climb-minred", "cla-r", "minred"} | CENTROIDS,
}


@pytest.mark.parametrize("method", sorted(METHODS))
def test_faults_are_refused_where_they_change_nothing(method: str) -> None:
    assert USED_BY.keys() == FAULTS.keys()
    used = [fault for fault in FAULTS if method in USED_BY[fault]]
    assert list(faults_of(method)) == used
    refuse_unused(method, faults=used)
    for fault in FAULTS.keys() - set(used):
        with pytest.raises(InputError, match=f"fault '{fault}' changes nothing in method '{method}'"):
            refuse_unused(method, faults=[*used, fault])


@pytest.mark.parametrize("method", sorted(METHODS))
def test_one_method_prunes_in_its_own_way_and_most_do_not(method: str) -> None:
    assert prunes_as_told(method) == (method in CENTROIDS - {"climb-selective"})


@pytest.mark.parametrize("prune", ["anchor", "selective"])
def test_a_way_of_pruning_is_refused_where_it_changes_nothing(prune: str) -> None:
    refuse_unused("climb", prune=prune)
    for method in ("er-fifo", "climb-selective"):
        refuse_unused(method)
        with pytest.raises(InputError, match=f"prune '{prune}' changes nothing in method '{method}'"):
            refuse_unused(method, prune=prune)


def test_methods_of_others_are_known_by_what_they_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "theirs", METHODS["climb-memory-only"])
    assert faults_of("theirs") == ("batch-views", "swapped-refresh", "train-embedding")
    assert prunes_as_told("theirs")


def test_a_method_that_cannot_be_built_does_not_spoil_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(workshop: Workshop) -> Parts:
        raise ZeroDivisionError

    theirs = replace(METHODS["climb"], name="theirs-broken", build=broken)
    monkeypatch.setitem(METHODS, "theirs-broken", theirs)
    assert kind_of_memory(theirs) is type(None)
    check_config(LearnerConfig(method="theirs-broken"))  # said when it is run, and then with its own words
    with pytest.raises(InputError, match="It is for the methods climb, "):
        refuse_unused("er-fifo", prune="anchor")


# -- settings to tune -------------------------------------------------------------------------------------------------

OF_CENTROIDS = {
    "stm_centroids": (50, 100),
    "ltm_centroids": (30, 60),
    "images_per_centroid": (20, 30),
    "window": (500, 1000),
    "novelty_percentile": (0.9, 0.95),
    "stm_rate": (0.1, 0.2),
    "ltm_accept": (0.5, 0.7),
}
WITHOUT_MEMORY = {"cla-b", "finetune", "iid"}
WITH_TEACHER = {"climb", "climb-selective", "climb-fifo", "climb-minred", "climb-reservoir", "cla-e", "cla-b"}
ALIGNED = WITH_TEACHER | {"climb-previous-step", "cla-r", "cassle-r", "scale"}
TUNABLE = {
    **dict.fromkeys(OF_CENTROIDS, CENTROIDS),
    "capacity": METHODS.keys() - WITHOUT_MEMORY,
    "ema_decay": WITH_TEACHER,
    "alignment_weight": ALIGNED,
    "temperature": METHODS.keys() - {"osiris-r", "scale"},
    "lr": METHODS.keys(),
    **{field: USED_BY[fault] for fault, fields in FAULTS.items() for field in fields},
}
VALUES = {**OF_CENTROIDS, "capacity": (60, 90), "ema_decay": (0.9, 0.99), "alignment_weight": (1.0, 2.0)}
VALUES |= {"temperature": (0.1, 0.5), "lr": (0.1, 0.3), "embed_mode": ("eval", "views")}
VALUES |= dict.fromkeys(("augment_per_batch", "train_aligner", "swapped_refresh"), (False, True))


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"pcmc"}))
def test_what_a_method_does_not_look_at_is_not_tuned(method: str) -> None:
    learner = LearnerConfig(method=method, memory=MemoryConfig(capacity=3000))
    for setting, users in TUNABLE.items():
        refuse_equal(learner, {setting: VALUES[setting][:1]})  # one value: there is nothing to rank
        if method in users:
            refuse_equal(learner, {setting: VALUES[setting]})
        else:
            with pytest.raises(InputError, match=f"{setting} changes nothing in method '{method}'"):
                refuse_equal(learner, {setting: VALUES[setting]})


def test_what_an_objective_does_not_look_at_is_not_tuned_with_it() -> None:
    with pytest.raises(InputError, match="temperature changes nothing in method 'climb'"):
        refuse_equal(LearnerConfig(objective="simsiam"), {"temperature": (0.1, 0.5)})


def test_a_loop_of_its_own_may_look_at_anything() -> None:
    refuse_equal(LearnerConfig(method="pcmc"), {"ema_decay": (0.9, 0.99), "alignment_weight": (1.0, 2.0)})

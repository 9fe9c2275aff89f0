"""What would change nothing under a method is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from climb.config import LearnerConfig
from climb.engine import Parts
from climb.errors import InputError
from climb.methods import METHODS, check_config, kind_of_memory
from climb.presets import FAULTS
from climb.unused import faults_of, prunes_as_told, refuse_unused
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

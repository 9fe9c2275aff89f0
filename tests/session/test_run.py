"""A run, from its configuration to its files."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

from climb.alignment import Snapshot
from climb.engine import resolve_precision
from climb.errors import ClimbError, InputError
from climb.memory import FifoMemory
from climb.nets import Encoded
from climb.objectives import SimCLR
from climb.runs import Journal, RunFolder
from climb.runs.run_file_checks import FORMAT_VERSION, read_object, write_object
from climb.session import Session, execute
from climb.session.evaluation import Evaluator
from climb.session.experiments import determinism, open_session
from climb.settings.config import Execution, RunConfig
from climb.state import load_tree

Make = Callable[..., RunConfig]
CPU = Execution(device="cpu")


def new_session(config: RunConfig, folder: RunFolder, execution: Execution = CPU) -> Session:
    return open_session(config, execution, folder, torch.device("cpu"))


def evaluator_of(session: Session) -> Evaluator:
    return next(observer for observer in session.observers if isinstance(observer, Evaluator))


KEYS = {
    "final_accuracy",
    "continual_accuracy",
    "continual_accuracy_upto",
    "continual_accuracy_all",
    "forgetting",
    "random_encoder_accuracy",
    "accuracy_matrix",
    "cbp",
    "forward_only_images",
    "stored_images",
    "memory_bytes",
    "needs_boundaries",
    "seconds",
    "method",
    "preset",
    "evaluated",
    "seed",
    "config_hash",
    "versions",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Filled by the first test that asks; later ones copy it."""
    return tmp_path_factory.mktemp("finished") / "run"


@pytest.fixture
def done(finished: Path, make_config: Make, tmp_path: Path) -> Path:
    execute(make_config(), CPU, finished)
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def test_a_run_is_told_where_tasks_end_and_says_so(
    make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables mark such methods."""
    heard: list[nn.Module] = []
    monkeypatch.setattr(Snapshot, "on_boundary", lambda alignment, student: heard.append(student))
    told = make_config(learner={"method": "cassle-r"}, evaluation={"network": "student", "epochs": 1})
    result = execute(told, CPU, tmp_path / "told")
    assert result["needs_boundaries"] is True
    assert len(heard) == len(result["accuracy_matrix"]) > 1
    alone = make_config(learner={"method": "er-fifo"}, evaluation={"network": "student", "epochs": 1})
    assert execute(alone, CPU, tmp_path / "alone")["needs_boundaries"] is False


def without_time(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key != "seconds"}


def test_the_files_of_a_finished_run(done: Path, make_config: Make) -> None:
    names = {path.name for path in done.iterdir()}
    assert names == {
        ".lock",
        "config.json", "journal.jsonl", "result.json", "scenario.json",
        "model.safetensors", "memory.safetensors", "accuracy.png", "memory.png", "report.html",
    }  # fmt: skip
    for name in ("accuracy.png", "memory.png"):
        with Image.open(done / name) as picture:
            assert min(picture.size) > 300
    written = read_object(done / "config.json")
    assert written["config_hash"] == make_config().config_hash()
    assert written["config"]["learner"]["memory"]["capacity"] == 40
    assert written["execution"]["device"] == "cpu"
    assert {"climb", "torch", "python", "numpy"} <= set(written["versions"])


def test_the_result(done: Path, make_config: Make) -> None:
    result = read_object(done / "result.json")
    assert set(result) >= KEYS
    assert set(result["seconds"]) == {"train", "evaluate", "total"}
    assert result["seconds"]["total"] >= result["seconds"]["train"] > 0
    assert (result["method"], result["preset"], result["evaluated"], result["seed"]) == (
        "climb",
        "default",
        "teacher",
        0,
    )
    matrix = result["accuracy_matrix"]
    assert [len(row) for row in matrix] == [2, 2]
    assert result["final_accuracy"] == pytest.approx(sum(matrix[1]) / 2)
    assert result["continual_accuracy"] == pytest.approx((matrix[0][0] + sum(matrix[1]) / 2) / 2)
    assert result["forgetting"] == pytest.approx(matrix[0][0] - matrix[1][0])
    # 4 classes x 40 images, a tenth held out: 72 a task, 7 mini-batches of 10 each, 3 passes.
    assert result["gradient_steps"] == 2 * 7 * 3
    assert 2 * 42 * 10 < result["cbp"] <= 2 * 42 * 18
    assert 0 < result["stored_images"] <= 40
    assert result["memory_bytes"] >= result["stored_images"] * 3 * 16 * 16
    assert result["config_hash"] == make_config().config_hash()


def test_the_result_says_what_was_computed_and_by_what(done: Path) -> None:
    result = read_object(done / "result.json")
    assert (result["engine"], result["precision"], result["processes"]) == ("eager", here(), 1)
    assert result["deterministic"] is True  # as every run on a CPU, asked to or not
    assert (result["dataset"], result["tasks"], result["format_version"]) == ("synthetic", 2, FORMAT_VERSION)
    assert result["recipe"] == read_object(done / "config.json")["config"]["recipe"]
    assert result["memory_bounded"] is True
    last = Journal(done / "journal.jsonl").read("train")[-1]
    told = {"novel", "evicted", "promoted", "merged", "pruned", "stm_images", "ltm_images"}
    assert {name: result["memory"][name] for name in told} == {name: last[name] for name in told}


def test_the_model_is_the_evaluated_encoder(done: Path) -> None:
    model = load_tree(done / "model.safetensors", kind="encoder")
    assert (model["backbone"], model["image_size"], model["evaluated"]) == ("micro", 16, "teacher")
    assert len(model["mean"]) == len(model["std"]) == 3
    assert all(not name.startswith(("encoder.", "projector.")) for name in model["encoder"])


def test_images_are_normalised_by_the_statistics_of_their_dataset(
    done: Path, make_config: Make, tmp_path: Path
) -> None:
    session = new_session(make_config(), RunFolder(tmp_path / "other"))
    data = evaluator_of(session).data
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (data.mean, data.std))
    images = data.test.images[:2]
    torch.testing.assert_close(session.engine.augment.plain(images), (images / 255 - mean) / std)
    model = load_tree(done / "model.safetensors", kind="encoder")
    assert (tuple(model["mean"]), tuple(model["std"])) == (data.mean, data.std)


def test_journal_lines_carry_their_batch_in_order(done: Path) -> None:
    lines = Journal(done / "journal.jsonl").read()
    batches = [line["batch"] for line in lines]
    assert batches == sorted(batches)
    assert {line["event"] for line in lines} == {"start", "floor", "train", "evaluation"}
    assert [line["batch"] for line in lines if line["event"] == "evaluation"] == [7, 14]
    train = [line for line in lines if line["event"] == "train"]
    assert [line["batch"] for line in train] == [1, 7, 11, 14]
    assert train[0]["alignment"] is None  # no replay yet
    assert {"objective", "stored", "stm_images", "ltm_images", "threshold", "promoted", "pruned"} <= set(train[-1])
    assert all(0.1 < line["embedding_spread"] <= 1 for line in train)  # whether it collapses shows at every line
    assert all(1 < line["effective_rank"] < 128 for line in train)


def test_the_journal_begins_with_what_the_run_is_computed_by(done: Path) -> None:
    first = Journal(done / "journal.jsonl").read()[0]
    assert (first["batch"], first["event"]) == (0, "start")
    assert (first["engine"], first["precision"], first["processes"]) == ("eager", here(), 1)
    assert (first["layout"], first["threads"]) == ("channels-last", torch.get_num_threads())
    assert first["versions"] == read_object(done / "result.json")["versions"]


def test_the_iid_bound_takes_as_many_steps_as_climb(done: Path, make_config: Make, tmp_path: Path) -> None:
    climb = read_object(done / "result.json")
    config = make_config(learner={"method": "iid"})
    bound = execute(config, CPU, tmp_path / "iid")
    rows = config.learner.stream_batch + config.learner.replay_batch
    assert bound["gradient_steps"] == climb["gradient_steps"] > 0
    assert bound["cbp"] == 2 * rows * bound["gradient_steps"] > climb["cbp"]  # which replays once there is something to
    assert (bound["stored_images"], bound["memory_bytes"], bound["memory_bounded"]) == (0, 0, True)
    assert len(bound["accuracy_matrix"]) == len(climb["accuracy_matrix"])


def test_the_iid_bound_goes_on_with_the_mini_batch_that_is_next(make_config: Make, tmp_path: Path) -> None:
    feed = new_session(make_config(learner={"method": "iid"}), RunFolder(tmp_path / "run")).feed
    whole, rest = ([batch for batch in feed.batches(done) if batch is not None] for done in (0, 5))
    assert (len(whole), len(rest)) == (14, 9)
    assert all(torch.equal(one.images, other.images) for one, other in zip(whole[5:], rest, strict=True))


def here() -> str:
    """What auto computes in on this CPU."""
    return resolve_precision("auto", torch.device("cpu"))


def test_choices_are_stored_and_restored(make_config: Make, tmp_path: Path) -> None:
    folder, config = RunFolder(tmp_path), make_config()
    folder.claim(config, CPU, {})
    first = new_session(config, folder)
    first._resume()
    assert folder.choices() == asdict(first.choices)
    assert (first.choices.precision, first.choices.layout) == (here(), "channels-last")
    other = {**asdict(first.choices), "precision": "float32", "layout": "contiguous"}
    folder.keep_choices(other)
    second = new_session(config, folder)
    assert asdict(second.choices) == other
    assert second.engine.precision == "float32"
    assert second.engine.parts.network.encoder.stages[1][0].weight.is_contiguous()
    asked = new_session(config, folder, replace(CPU, precision="bf16"))
    assert (asked.choices.precision, asked.choices.layout) == ("bf16", "contiguous")


def test_a_run_that_another_process_has_begun_meanwhile_is_not_continued(make_config: Make, tmp_path: Path) -> None:
    """Its checkpoint may be of other arithmetic than what this process has prepared."""
    folder, config = RunFolder(tmp_path), make_config()
    late = new_session(config, folder)  # before the folder is locked
    folder.claim(config, CPU, {})
    folder.keep_choices({**asdict(late.choices), "precision": "float32", "layout": "contiguous"})
    with pytest.raises(ClimbError, match=r"another process has begun .* meanwhile; give the same command again"):
        late._resume()


def test_a_run_of_an_older_version_stays_as_it_was(make_config: Make, tmp_path: Path) -> None:
    folder, config = RunFolder(tmp_path), make_config()
    folder.claim(config, CPU, {})
    first = new_session(config, folder)
    first.done, first.unsaved = 1, True
    first._checkpoint()
    assert "choices" not in folder.header()
    older = new_session(config, folder)
    assert (older.choices.precision, older.choices.layout, older.choices.engine) == ("float32", "contiguous", "eager")


def test_an_evaluation_that_is_about_to_be_done_again_is_cut_from_the_journal(
    make_config: Make, tmp_path: Path
) -> None:
    folder, config = RunFolder(tmp_path), make_config()
    folder.claim(config, CPU, {})
    run = new_session(config, folder)
    run.done, run.pending, run.unsaved = 7, 0, True
    run._checkpoint()
    folder.journal.write(7, "train")
    folder.journal.write(7, "evaluation", task=0)  # by a process that ended before its next checkpoint
    new_session(config, folder)._resume()
    assert [line["event"] for line in folder.journal.read()] == ["train", "start"]


def test_each_network_has_the_accuracies_that_were_measured_of_it(make_config: Make, tmp_path: Path) -> None:
    result = execute(make_config(evaluation={"network": "both"}), CPU, tmp_path / "run")
    journal = Journal(tmp_path / "run" / "journal.jsonl")
    (floor,) = journal.read("floor")
    for found, network in ((result, "teacher"), (result["other"], "student")):
        lines = [line for line in journal.read("evaluation") if line["network"] == network]
        assert found["accuracy_matrix"] == [line["per_task"] for line in lines]
        assert found["accuracy_upto"] == [line["upto"] for line in lines]
        assert found["random_encoder_accuracy"] == floor[network]


def test_tasks_count_by_their_test_images(make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[int]] = []
    monkeypatch.setattr(
        "climb.session.evaluation.summarize", lambda matrix, upto, images, **_: given.append(images) or {}
    )
    evaluator = evaluator_of(new_session(make_config(), RunFolder(tmp_path / "other")))
    evaluator.measured = {"teacher": [{"per_task": [1.0, 2.0], "upto": 1.0, "upto_per_image": 1.0}] * 2}
    evaluator.floor = {"student": 7.0, "teacher": 5.0}
    assert evaluator.accuracies("teacher")["random_encoder_accuracy"] == 5.0
    assert given == [[20, 20]]  # of two classes each


class OneDirection(SimCLR):
    """Pulls all features into one direction. The last batch norm of the projector scales up what is left."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        return 10 * (1 - torch.nn.functional.normalize(encoded.features, dim=2).sum(2).mean() / 128**0.5)


def test_a_collapse_is_warned_of_once(
    tmp_path: Path, make_config: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SimCLR, "forward", OneDirection.forward)
    learner = {"lr": 0.3, "method": "er-fifo"}
    with caplog.at_level(logging.WARNING, logger="climb.session"):
        execute(make_config(learner=learner, evaluation={"epochs": 1, "network": "student"}), CPU, tmp_path / "run")
    said = [record.getMessage() for record in caplog.records if "collapsed" in record.getMessage()]
    assert said == [
        "at mini-batch 7: all features of test images, of the student, are nearly one point, or one line: the network "
        "has collapsed and does not recover by itself. Start again in another folder with a lower --lr, or with more "
        "images per step (--replay-batch)"
    ]
    journal = Journal(tmp_path / "run" / "journal.jsonl")
    assert all(line["embedding_spread"] > 0.5 for line in journal.read("train"))  # by these, all is well
    assert all(line["feature_spread"] < 0.1 for line in journal.read("evaluation"))


def test_a_few_test_images_show_no_collapse(
    tmp_path: Path, make_config: Make, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(
        data={"options": {"classes": 4, "train_per_class": 40, "test_per_class": 1}}, evaluation={"epochs": 1}
    )
    with caplog.at_level(logging.WARNING, logger="climb.session"):
        execute(config, CPU, tmp_path / "run")
    assert not [message for message in caplog.messages if "collapsed" in message]
    lines = Journal(tmp_path / "run" / "journal.jsonl").read("evaluation")
    assert lines
    assert all("feature_spread" not in line for line in lines)


def test_a_memory_may_sum_itself_up_in_numbers_of_its_own(
    tmp_path: Path, make_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FifoMemory, "summary", lambda memory: {"oldest": memory._seen - len(memory)}, raising=False)
    result = execute(make_config(learner={"method": "er-fifo"}), CPU, tmp_path / "run")
    assert result["memory"]["oldest"] == 100
    assert Journal(tmp_path / "run" / "journal.jsonl").read("train")[-1]["oldest"] == 100


def test_a_finished_run_is_not_computed_again(done: Path, make_config: Make) -> None:
    write_object(done / "result.json", read_object(done / "result.json") | {"mark": 1})
    before = {path.name: path.stat().st_mtime_ns for path in done.iterdir()}
    assert execute(make_config(), CPU, done)["mark"] == 1
    assert {path.name: path.stat().st_mtime_ns for path in done.iterdir()} == before


def test_another_configuration_is_refused_with_the_difference(done: Path, make_config: Make) -> None:
    other = make_config(seed=3, learner={"lr": 0.05})
    with pytest.raises(InputError, match=r"seed: 0 there, 3 given, learner\.lr: 0\.3 there, 0\.05 given"):
        execute(other, CPU, done)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lr": 0.1}, r"learner\.lr: 0\.1 there, 0\.3 given"),
        ({"lr": "fast"}, r"learner\.lr: fast there"),
        ({"memory": 7}, r"learner\.memory: 7 there"),
        ({"rate": 1}, r"learner\.rate: 1 there"),
    ],
)
def test_a_configuration_that_was_changed_by_hand_is_refused(
    done: Path, make_config: Make, changes: dict[str, Any], said: str
) -> None:
    header = json.loads((done / "config.json").read_text())
    header["config"]["learner"] |= changes
    (done / "config.json").write_text(json.dumps(header))
    with pytest.raises(InputError, match=r"config.json is damaged or was edited: .*checksum; restore the file"):
        execute(make_config(), CPU, done)
    # Older files have no checksum; the hash inside is what it was.
    del header["checksum"]
    (done / "config.json").write_text(json.dumps(header | {"format_version": 1}))
    with pytest.raises(InputError, match=f"config.json was changed after the run began .*{said}.*restore the file"):
        execute(make_config(), CPU, done)


def test_a_checkpoint_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.checkpoint_path.parent.mkdir()
    folder.checkpoint_path.write_bytes(b"half a file")
    with pytest.raises(ClimbError, match=r"cannot read .*restore the file, or delete the folder to start over"):
        folder.load_checkpoint()


def test_device_and_checkpoints_are_no_part_of_the_identity(done: Path, make_config: Make) -> None:
    execution = Execution(device="cpu", precision="float32", checkpoint_seconds=1.0, keep=True)
    assert execute(make_config(), execution, done)["final_accuracy"] >= 0


def test_a_folder_of_something_else_is_refused(tmp_path: Path, make_config: Make) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="is not empty and holds no run; give another --out"):
        execute(make_config(), CPU, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stream": {"tasks": 5}}, "4 classes cannot be cut into 5 tasks; use 1 to 4 tasks"),
        ({"stream": {"kind": "regulra"}}, "did you mean 'regular'"),
        ({"learner": {"method": "clim"}}, "unknown method 'clim'; did you mean 'climb'"),
        ({"learner": {"backbone": "resnet19"}}, "unknown backbone 'resnet19'; did you mean 'resnet18'"),
        ({"learner": {"image_size": 32}}, "has images of 16 px, the learner expects 32 px"),
        ({"learner": {"replay_batch": 30}}, "replay_batch must be at most half of capacity: 30 > 40 / 2"),
        ({"data": {"dataset": "cifra10"}}, "unknown dataset 'cifra10'; did you mean 'cifar10'"),
        ({"data": {"options": {"clases": 3}}}, "dataset 'synthetic' takes no clases=3: unknown option 'clases'"),
    ],
)
def test_what_cannot_run_leaves_no_folder_behind(
    tmp_path: Path, make_config: Make, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        execute(make_config(**changes), CPU, tmp_path / "run")
    # The corrected command must find the folder free.
    assert not (tmp_path / "run").exists()


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not(
    done: Path, tmp_path: Path, make_config: Make
) -> None:
    result = execute(make_config(), CPU, tmp_path / "again")
    other = execute(make_config(seed=1), CPU, tmp_path / "other")
    assert without_time(result) == without_time(read_object(done / "result.json"))
    weights = (done / "model.safetensors").read_bytes()
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == weights
    assert load_first(tmp_path / "other") != load_first(done)
    assert other["config_hash"] != result["config_hash"]
    assert (tmp_path / "again" / "journal.jsonl").read_text() == (done / "journal.jsonl").read_text()


def load_first(folder: Path) -> list[float]:
    encoder = load_tree(folder / "model.safetensors", kind="encoder")["encoder"]
    values: list[float] = next(iter(encoder.values())).flatten().tolist()
    return values


def test_probing_never_changes_training(done: Path, tmp_path: Path, make_config: Make) -> None:
    both = make_config(evaluation={"network": "both", "epochs": 2, "knn": True, "ridge": True})
    student = make_config(evaluation={"network": "student"})
    more = execute(both, CPU, tmp_path / "both")
    execute(student, CPU, tmp_path / "student")
    files = {name: tmp_path / name / "model.safetensors" for name in ("both", "student")}
    assert load_tree(files["student"], kind="encoder")["evaluated"] == "student"
    first, second = (load_tree(file, kind="encoder")["encoder"] for file in (files["both"], done / "model.safetensors"))
    assert all(first[name].equal(second[name]) for name in first)  # the teacher, probed by all means or few
    losses = [
        [line["objective"] for line in Journal(folder / "journal.jsonl").read("train")]
        for folder in (done, tmp_path / "both", tmp_path / "student")
    ]
    assert losses[0] == losses[1] == losses[2]
    assert more["evaluated"] == "teacher"
    assert more["other"]["evaluated"] == "student"
    shared = {"final_accuracy", "continual_accuracy", "forgetting", "accuracy_matrix", "random_encoder_accuracy"}
    assert shared <= set(more["other"])
    assert 0 <= more["knn_accuracy"] <= 100
    assert 0 <= more["ridge_accuracy"] <= 100


@pytest.mark.parametrize("method", ["cla-e", "er-fifo"])
def test_methods_without_centroids_or_teacher(tmp_path: Path, make_config: Make, method: str) -> None:
    result = execute(make_config(learner={"method": method}), CPU, tmp_path / "run")
    assert result["evaluated"] == ("teacher" if method == "cla-e" else "student")
    assert result["stored_images"] == 40
    assert not (tmp_path / "run" / "memory.png").exists()


@pytest.mark.parametrize("kind", ["irregular", "blurred", "iid"])
def test_other_scenarios(tmp_path: Path, make_config: Make, kind: str) -> None:
    options = {"irregular": {"cap": 3}, "blurred": {"blur": 10}, "iid": {}}[kind]
    result = execute(make_config(stream={"kind": kind, "options": options}), CPU, tmp_path / "run")
    assert result["tasks"] == 2
    assert json.loads((tmp_path / "run" / "scenario.json").read_text())["kind"] == kind


def test_a_saved_scenario_can_be_replayed(done: Path, tmp_path: Path, make_config: Make) -> None:
    manifest = json.loads((done / "scenario.json").read_text())
    result = execute(make_config(stream={"manifest": manifest}), CPU, tmp_path / "replayed")
    assert result["accuracy_matrix"] == read_object(done / "result.json")["accuracy_matrix"]


def test_one_task_has_nothing_to_forget(tmp_path: Path, make_config: Make) -> None:
    result = execute(make_config(stream={"tasks": 1}), CPU, tmp_path / "run")
    assert result["forgetting"] is None
    assert read_object(tmp_path / "run" / "result.json")["forgetting"] is None


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("climb", "embeddings with NaN or infinity: training has diverged; lower the learning rate"),
        ("er-fifo", r"the loss became nan at mini-batch \d+: training diverged; lower --lr"),
    ],
)
def test_divergence_stops_the_run_and_says_so(tmp_path: Path, make_config: Make, method: str, message: str) -> None:
    with pytest.raises(ClimbError, match=message):
        execute(make_config(learner={"lr": 1e30, "method": method}), CPU, tmp_path / "run")
    assert RunFolder(tmp_path / "run").result() is None


def test_the_checkpoint_stays_when_asked_to(tmp_path: Path, make_config: Make) -> None:
    execution = Execution(device="cpu", checkpoint_seconds=0.0, keep=True)
    execute(make_config(), execution, tmp_path / "run")
    state = RunFolder(tmp_path / "run").load_checkpoint()
    assert state is not None
    assert (state["done"], state["pending"]) == (14, None)  # the end, all evaluated


# -- images of one's own ---------------------------------------------------------------------------------------------


@pytest.fixture
def own_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Execution]:
    """``own_images("a", 8)``: runs on a folder of images of 8 pixels, made now."""
    monkeypatch.setenv("CLIMB_CACHE", str(tmp_path / "cache"))

    def make(name: str, size: int) -> Execution:
        for number in range(30):
            file = tmp_path / name / f"class {number % 2}" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.effect_noise((size, size), 50).save(file)
        return Execution(device="cpu", data_root=str(tmp_path / name))

    return make


def test_other_images_are_another_run(
    make_config: Make, own_images: Callable[..., Execution], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(data={"dataset": "folder", "options": {}}, evaluation={"network": "teacher", "epochs": 1})
    first, second = own_images("a", 8), own_images("b", 30)
    result = execute(config, first, tmp_path / "run")
    assert result["data_fingerprint"].startswith("2 classes 30 files ")
    said = f"other images .{result['data_fingerprint']} there, 2 classes 30 files .* given.*another --out, or delete"
    with pytest.raises(InputError, match=said):  # finished
        execute(config, second, tmp_path / "run")
    moved = tmp_path / "moved"
    shutil.copytree(tmp_path / "a", moved)
    assert execute(config, Execution(device="cpu", data_root=str(moved)), tmp_path / "run") == result
    assert "not found" not in caplog.text
    shutil.rmtree(moved)
    assert execute(config, Execution(device="cpu", data_root=str(moved)), tmp_path / "run") == result
    assert "not found" in caplog.text
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(InputError, match=said):  # begun
        execute(config, second, tmp_path / "run")


def test_a_run_of_an_older_version_that_did_not_write_what_its_images_were_stays_valid(
    make_config: Make, own_images: Callable[..., Execution], tmp_path: Path
) -> None:
    config = make_config(data={"dataset": "folder", "options": {}}, evaluation={"network": "teacher", "epochs": 1})
    images = own_images("a", 8)
    execute(config, images, tmp_path / "run")
    for name in ("config.json", "result.json"):
        written = read_object(tmp_path / "run" / name) | {"format_version": 1}
        del written["data_fingerprint"]
        (tmp_path / "run" / name).write_text(json.dumps(written))
    assert "data_fingerprint" not in execute(config, images, tmp_path / "run")


@pytest.mark.parametrize("name", ["memory", "final_accuracy", "seconds"])
def test_a_result_that_lacks_a_field_is_named(name: str, done: Path, make_config: Make) -> None:
    result = read_object(done / "result.json") | {"format_version": 1}
    del result[name]
    (done / "result.json").write_text(json.dumps(result))
    with pytest.raises(InputError, match=f"result.json lacks {name}.*; restore the file, or delete the folder"):
        execute(make_config(), CPU, done)


def test_a_run_without_checkpoints_is_stored(make_config: Make, tmp_path: Path) -> None:
    execute(make_config(), Execution(device="cpu", checkpoint_seconds=float("inf")), tmp_path / "run")
    assert read_object(tmp_path / "run" / "config.json")["execution"]["checkpoint_seconds"] is None
    assert RunFolder(tmp_path / "run").result() is not None


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_time_between_checkpoints_that_is_none_is_refused(seconds: float, make_config: Make, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="checkpoint_seconds must be at least 0; given"):
        execute(make_config(), Execution(device="cpu", checkpoint_seconds=seconds), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("images", "out", "refused"),
    [
        ("plain", "plain", True),
        ("plain", "plain/run", True),
        ("plain", "plain/a/run", True),
        ("plain", "plainer/run", False),
        ("plain", "plain/../run", False),
        ("plain", "linked/run", True),
        ("linked", "plain/run", True),
        ("~/plain", "plain/run", True),
        ("split", "split/run", False),
        ("split", "split/train/run", True),
        ("split", "split/test/run", True),
        ("split", "split/val/run", True),
    ],
)
def test_a_run_lies_apart_from_its_images_by_whatever_way_they_are_reached(
    images: str, out: str, refused: bool, make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("plain/a", "split/train/a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "linked").symlink_to(tmp_path / "plain")
    config = make_config(data={"dataset": "folder", "options": {}})
    execution = Execution(device="cpu", data_root=images if images.startswith("~") else str(tmp_path / images))
    # An empty folder of images is refused, too: in other words, and later.
    with pytest.raises(InputError) as said:
        execute(config, execution, tmp_path / out)
    assert ("lies among the images" in str(said.value)) == refused


def test_a_run_may_lie_where_a_dataset_was_downloaded_to(
    make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(*_: Any) -> None:
        raise MemoryError("it was not refused")

    monkeypatch.setattr("climb.session.experiments.open_session", begun)
    config = make_config(data={"dataset": "cifar10", "options": {}})
    with pytest.raises(MemoryError, match="it was not refused"):
        execute(config, Execution(device="cpu", data_root=str(tmp_path)), tmp_path / "run")


def test_what_another_process_finished_meanwhile_is_not_computed_again(
    done: Path, make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder was empty when it was looked at, and locked by the other until now."""
    claim, out = RunFolder.claim, tmp_path / "other"

    def late(self: RunFolder, *args: Any, **options: Any) -> None:
        shutil.copytree(done, out, dirs_exist_ok=True)
        claim(self, *args, **options)

    monkeypatch.setattr(RunFolder, "claim", late)
    monkeypatch.setattr(Session, "run", lambda self: pytest.fail("computed again"))
    assert execute(make_config(), CPU, out) == read_object(done / "result.json")


@pytest.mark.parametrize("before", [False, True])
def test_determinism_is_asked_for_inside_and_as_before_after_it(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")  # a person's own is kept
    torch.use_deterministic_algorithms(before)
    try:
        with determinism(False):
            assert torch.are_deterministic_algorithms_enabled() == before
        with determinism(True):
            assert torch.are_deterministic_algorithms_enabled()
        assert torch.are_deterministic_algorithms_enabled() == before
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    finally:
        torch.use_deterministic_algorithms(False)

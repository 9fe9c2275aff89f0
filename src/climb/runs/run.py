"""One run, from the dataset to `result.json`. Follow `Run.execute` to follow a batch."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from climb.config import Execution, RunConfig
from climb.datasets import load, own_image_size
from climb.engine import Engine, IidChunks, Observation, resolve_engine, resolve_precision
from climb.engine.health import FEWEST, Health, feature_numbers, health
from climb.errors import ClimbError, InputError
from climb.evaluation import summarize
from climb.files import write_json
from climb.learner import build_engine
from climb.memory.store import fits
from climb.nets import SavedEncoder, save_encoder
from climb.parallel import alone, current
from climb.presets import NETWORK
from climb.runs.believed import FORMAT_VERSION
from climb.runs.evaluator import Evaluator, row_to_json
from climb.runs.folder import RunFolder
from climb.runs.interrupt import Finished, Interrupted, StopRequest, stop_on_signal
from climb.runs.journal import plain
from climb.runs.memory_diversity import memory_diversity
from climb.runs.plots import draw_plots
from climb.runs.prefetch import with_images
from climb.runs.progress import LiveLine
from climb.runs.versions import versions
from climb.streams import Batch, Manifest, Stream, make

JOURNAL_EVERY = 10  # mini-batches between two lines; reading a loss waits for the device
log = logging.getLogger("climb.runs")


class Run:
    """The state of a run in progress."""

    def __init__(self, config: RunConfig, execution: Execution, folder: RunFolder, device: torch.device) -> None:
        self.config = config
        self.execution = execution
        self.folder = folder
        self.device = device
        self.group = current()
        own = own_image_size(config.data.dataset)
        data = self.group.first_then_others(  # who find what it has downloaded and decoded
            lambda: load(
                config.data.dataset,
                root=execution.data_root,
                image_size=None if config.data.image_size == own else config.data.image_size,
                seed=config.seed,
                **config.data.options,
            )
        )
        if data.image_size != config.learner.image_size:
            raise InputError(
                f"dataset '{data.name}' has images of {data.image_size} px, the learner expects "
                f"{config.learner.image_size} px; set both to one size"
            )
        self.manifest = manifest_of(config, len(data.classes))
        self.stream = Stream(self.manifest, data.train.labels, data.test.labels)
        images = data.train.images.nbytes + data.test.images.nbytes
        self.data = data.to(device) if fits(images, device) else data
        self.kind = resolve_engine(execution.engine, device)
        self.engine = self._new_engine()
        self.evaluator = Evaluator(
            config.evaluation, self.data, self.stream, main=NETWORK[config.learner.preset], seed=config.seed
        )
        self.done = 0  # mini-batches finished
        self.pending: int | None = None  # a segment that has ended and is not evaluated yet
        self.rows: dict[str, list[dict[str, Any]]] = {}  # by network, one per finished segment
        self.floor: dict[str, float] = {}  # random encoder's accuracy by network
        self.tally: Counter[str] = Counter()  # what became of the images in the memory
        self.seconds = {"train": 0.0, "evaluate": 0.0, "total": 0.0}
        self._training_since = time.monotonic()  # not yet in the seconds
        self.warned = False  # of a collapse

    def _new_engine(self) -> Engine:
        return build_engine(
            self.config.learner,
            mean=self.data.mean,
            std=self.data.std,
            seed=self.config.seed,
            device=self.device,
            precision=resolve_precision(self.execution.precision, self.device),
            kind=self.kind,
        )

    def execute(self) -> dict[str, Any]:
        """Train over the stream, evaluate at the end of each segment, write the result.

        A signal during the last of these waits: the result is written, then the run stops as it was asked to.
        """
        self._resume()
        with stop_on_signal() as stop:
            self._learn(stop)
            self._checkpoint()  # before the result: what ends the process meanwhile costs no learning
            result = self._finish() if self.group.size == 1 else self._finish_together()
        if stop.asked:
            raise Finished(result)
        return result

    def _learn(self, stop: StopRequest) -> None:
        """Every mini-batch that is left, and the evaluations between them."""
        size = self.config.learner.stream_batch
        total = self.stream.number_of_batches(size)
        label = f"{self.config.learner.method} on {self.data.name}"
        began = time.monotonic() - self.seconds["total"]
        saved = time.monotonic()
        with LiveLine(total, start=self.done, label=label, shown=self.group.first) as line:
            if not self.floor:
                line.note("evaluating the random encoder")
                self._evaluate_floor()
            self._evaluate_pending(line)
            self._training_since = time.monotonic()
            for batch, images in with_images(self._batches(total), self.data.train.images, self.device):
                observation = self.engine.observe(images)
                self.tally.update(asdict(observation.report))
                self.done, self.pending = batch.number + 1, batch.ends_segment
                line.advance(self.done, self.engine.budget.images / max(self._trained(), 1e-9))
                if self.group.first and (batch.number % JOURNAL_EVERY == 0 or self.pending is not None):
                    line.note(self._record(observation))
                if self.pending is not None:
                    self.engine.on_boundary()
                due = stop.save_asked or time.monotonic() - saved > self.execution.checkpoint_seconds
                asked, due = self._decided(stop.asked, due)
                if self.pending is not None and not asked:
                    with self._not_training():
                        self._evaluate_pending(line)
                if asked or due:
                    stop.save_asked = False
                    with self._not_training():
                        self.seconds["total"] = time.monotonic() - began
                        self._checkpoint()
                    saved = time.monotonic()
                if asked:
                    raise Interrupted
        self.seconds["total"] = time.monotonic() - began

    def _decided(self, asked: bool, due: bool) -> tuple[bool, bool]:
        """Whether to stop, as any process was asked to, and whether to save, as the first one's clock says."""
        if self.group.size == 1:
            return asked, due
        table = self.group.table(asked, due)
        return any(row[0] for row in table), bool(table[0][1])

    def _batches(self, total: int) -> Iterator[Batch]:
        """Mini-batches from where the run stands. The i.i.d. bound is handed all images of its passes at once."""
        learner = self.config.learner
        if isinstance(self.engine.parts.batch, IidChunks):
            size = learner.passes * (learner.stream_batch + learner.replay_batch)
            return self.stream.shuffled(size, total, start=self.done)
        return self.stream.batches(learner.stream_batch, start=self.done)

    # -- evaluation ----------------------------------------------------------------------------------------------

    def _evaluate_floor(self) -> None:
        if not self.group.first:
            return
        began = time.monotonic()
        rows = self.evaluator.rows(self.engine, after=len(self.stream.segments) - 1)
        self.floor = {name: sum(row.per_task) / len(row.per_task) for name, (row, _) in rows.items()}
        self.seconds["evaluate"] += time.monotonic() - began
        self.folder.journal.write(0, "floor", **self.floor)

    def _evaluate_pending(self, line: LiveLine) -> None:
        if self.pending is None:
            return
        if not self.group.first:
            self.group.table(0)  # the hosts wait for the first one to be done; a device would spin
            self.pending = None
            return
        segment, began = self.pending, time.monotonic()
        line.note(f"evaluating task {segment + 1} of {len(self.stream.segments)}")
        rows = self.evaluator.rows(self.engine, after=segment)
        for name, (row, state) in rows.items():
            self.rows.setdefault(name, []).append(row_to_json(row))
            self.folder.journal.write(
                self.done,
                "evaluation",
                network=name,
                task=segment,
                **feature_numbers(state),
                **row_to_json(row),
            )
            if state is not None:
                self._warn_of_collapse(state, f"the {name}'s features of test images")
        self.pending = None
        self.seconds["evaluate"] += time.monotonic() - began
        main, _ = next(iter(rows.values()))
        log.info("after task %d: joint %.2f %%, up to now %.2f %%", segment + 1, main.joint, main.upto)
        line.note(f"task {segment + 1}: {main.joint:.1f} %")
        self.group.table(0)

    # -- bookkeeping ---------------------------------------------------------------------------------------------

    def _record(self, observation: Observation) -> str:
        loss = float(observation.objective)
        if not math.isfinite(loss) and self.engine.budget.steps > 0:  # PCMC has no loss before its first sleep
            raise ClimbError(f"the loss became {loss} at mini-batch {self.done}: training diverged; lower --lr")
        memory = self.engine.parts.memory
        summary: dict[str, float] = getattr(memory, "summary", dict)()
        stored = 0 if memory is None else len(memory)
        state = health(observation.embeddings)
        if len(observation.embeddings) >= FEWEST:
            self._warn_of_collapse(state, "embeddings")
        self.folder.journal.write(
            self.done,
            "train",
            embedding_spread=state.spread,
            effective_rank=state.effective_rank,
            objective=loss,
            alignment=float(observation.alignment),
            stored=stored,
            **summary,
            **{name: self.tally[name] for name in ("novel", "evicted", "promoted", "merged", "pruned")},
        )
        two_stores = {"stm_images", "ltm_images"} <= summary.keys()  # a memory of one's own may sum up otherwise
        return f"loss {loss:.3f}, {stored} stored" + (
            f" ({summary['stm_images']} short-term, {summary['ltm_images']} long-term)" if two_stores else ""
        )

    def _warn_of_collapse(self, state: Health, what: str) -> None:
        if state.collapsed and not self.warned:
            self.warned = True
            log.warning(
                "at mini-batch %d all %s are nearly one point, or one line: the network has collapsed", self.done, what
            )

    def _trained(self) -> float:
        """Seconds of training until now."""
        return self.seconds["train"] + time.monotonic() - self._training_since

    @contextmanager
    def _not_training(self) -> Iterator[None]:
        """Inside, time does not count as training."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds["train"] = self._trained()
        yield
        self._training_since = time.monotonic()

    # -- state ---------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        engine = self.engine.state_dict()  # in every process: each has some of the images
        if not self.group.first:
            return
        self.folder.save_checkpoint(
            {
                "engine": engine,
                "done": self.done,
                "pending": self.pending,
                "rows": self.rows,
                "floor": self.floor,
                "tally": dict(self.tally),
                "seconds": self.seconds,
            }
        )

    def _resume(self) -> None:
        state = self.group.from_first(self._begin_journal() if self.group.first else None)
        if state is None:
            return
        self.engine.load_state_dict(state["engine"])
        self.done, self.pending = state["done"], state["pending"]
        self.rows, self.floor = state["rows"], state["floor"]
        self.tally = Counter(state["tally"])
        self.seconds = state["seconds"]
        if self.group.first:
            log.info("resumed at mini-batch %d", self.done)

    def _begin_journal(self) -> dict[str, Any] | None:
        """The last checkpoint, the journal cut to it."""
        state = self.folder.load_checkpoint()
        if state is None:
            self.folder.journal.cut(-1)
        else:
            self.folder.journal.cut(state["done"], task=state["pending"])
        self.folder.journal.write(
            0 if state is None else state["done"],
            "start",
            engine=self.engine.kind,
            precision=self.engine.precision,
            processes=self.group.size,
            versions=versions(self.device),
        )
        return state

    def _finish_together(self) -> dict[str, Any]:
        """The first process takes over what all have learned, as one process would have learned it, and finishes."""
        learned = self.engine.state_dict()
        if self.group.first:
            with alone():
                self.engine = self._new_engine()
                self.engine.load_state_dict(learned)
                return dict(self.group.from_first(self._finish()))
        return dict(self.group.from_first(None))

    def _finish(self) -> dict[str, Any]:
        networks = self.evaluator.networks(self.engine)
        evaluated, *others = networks
        memory, alignment = self.engine.parts.memory, self.engine.parts.alignment
        budget = self.engine.budget
        result: dict[str, Any] = {
            **self._accuracies(evaluated),
            **self.evaluator.final_probes(self.engine),
            "cbp": budget.cbp,
            "gradient_steps": budget.steps,
            "forward_only_images": budget.forward_only,
            "stored_images": 0 if memory is None else len(memory),
            "memory_bytes": 0 if memory is None else memory.nbytes,
            "memory_bounded": memory is None or memory.bounded,
            "needs_boundaries": alignment is not None and alignment.needs_boundaries,
            "memory": {**dict(self.tally), **{k: plain(v) for k, v in getattr(memory, "summary", dict)().items()}},
            "seconds": self.seconds,
            "recipe": self.config.recipe,
            "method": self.config.learner.method,
            "preset": self.config.learner.preset,
            "dataset": self.data.name,
            "tasks": len(self.stream.segments),
            "evaluated": evaluated,
            "seed": self.config.seed,
            "precision": self.engine.precision,
            "engine": self.engine.kind,
            "processes": self.group.size,
            "deterministic": self.device.type == "cpu" or self.execution.deterministic,
            "config_hash": self.config.config_hash(),
            "versions": versions(self.device),
            "format_version": FORMAT_VERSION,
        }
        diversity = memory_diversity(self.engine, classes=len(self.data.classes), seed=self.config.seed)
        if diversity is not None:
            result["diversity"] = diversity
        images = self.folder.data_fingerprint()
        if images is not None:
            result["data_fingerprint"] = images
        if others:
            result["other"] = {"evaluated": others[0], **self._accuracies(others[0])}
        self.manifest.save(self.folder.scenario_path)
        learner = self.config.learner
        saved = SavedEncoder(
            encoder=networks[evaluated].encoder,
            backbone=learner.backbone,
            image_size=learner.image_size,
            mean=self.data.mean,
            std=self.data.std,
        )
        save_encoder(self.folder.model_path, saved, evaluated=evaluated, config_hash=self.config.config_hash())
        self.folder.save_memory(self.evaluator.remembered(self.engine))
        draw_plots(self.folder.journal, result, self.folder.path)
        write_json(self.folder.result_path, result)  # last: its presence means that the run is done
        if not self.execution.keep:
            self.folder.drop_checkpoint()
        return result

    def _accuracies(self, network: str) -> dict[str, Any]:
        rows = self.rows[network]
        matrix = [row["per_task"] for row in rows]
        return {
            **summarize(
                matrix,
                [row["upto"] for row in rows],
                [len(segment.test) for segment in self.stream.segments],
                upto_per_image=[row["upto_per_image"] for row in rows],
            ),
            "random_encoder_accuracy": self.floor[network],
            "accuracy_matrix": matrix,
            "accuracy_upto": [row["upto"] for row in rows],
        }


def manifest_of(config: RunConfig, classes: int) -> Manifest:
    """The scenario that a configuration describes: a saved one, or one of the named kinds."""
    stream = config.stream
    if stream.manifest is not None:
        return Manifest.from_json(json.dumps(stream.manifest))
    return make(stream.kind, classes, stream.tasks, seed=config.seed, **stream.options)

"""What a session leaves behind: result, encoder, memory snapshot, plots and page."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from climb.engine import Engine
from climb.evaluation import extract_features
from climb.evaluation.similarity import centre_of, panel
from climb.images.find import EXTENSIONS
from climb.memory.snapshot import saved_images
from climb.methods.build import chosen_network
from climb.nets import Network, SavedEncoder, save_encoder
from climb.report import draw_plots, write_report
from climb.runs import Result
from climb.runs.journal import plain
from climb.runs.provenance import versions
from climb.runs.run_file_checks import FORMAT_VERSION, write_object
from climb.session.evaluation import Evaluator, memory_diversity
from climb.session.feeds import LiveFeed
from climb.session.observer import Observer
from climb.sources import Source
from climb.sources.folder import STANDARD_INPUT
from climb.streams import Manifest

if TYPE_CHECKING:
    from climb.session.session import Session

log = logging.getLogger("climb.session")


class RunResult(Observer):
    """Writes the files of a finished run; `result.json` comes last: its presence means that the run is complete."""

    def __init__(self, manifest: Manifest, evaluator: Evaluator) -> None:
        self._manifest, self._evaluator = manifest, evaluator

    def finish(self, session: Session) -> None:
        """Write the files, remove the checkpoint, and draw the page."""
        if not session.complete:
            return
        folder, engine = session.folder, session.engine
        networks = self._evaluator.networks(engine)
        session.result = self._result(session, list(networks))
        self._manifest.save(folder.scenario_path)
        evaluated, network = next(iter(networks.items()))
        if engine.guard is not None:
            network = engine.guard.published(engine, verify=True)
        memory = {} if engine.parts.memory is None else engine.parts.memory.state_dict()
        write_encoder(session, evaluated, network, memory)
        folder.save_memory(self._evaluator.memory_snapshot(engine))
        write_object(folder.result_path, session.result)
        if not session.execution.keep:
            folder.drop_checkpoint()
        write_page(folder.path)

    def _result(self, session: Session, networks: list[str]) -> dict[str, Any]:
        config, engine = session.config, session.engine
        evaluated, *others = networks
        memory, alignment, budget = engine.parts.memory, engine.parts.alignment, engine.budget
        summary: dict[str, Any] = getattr(memory, "summary", dict)()
        result: dict[str, Any] = {
            **self._evaluator.accuracies(evaluated),
            **self._evaluator.final_probes(engine),
            "cbp": budget.cbp,
            "gradient_steps": budget.steps,
            "forward_only_images": budget.forward_only,
            "stored_images": 0 if memory is None else len(memory),
            "memory_bytes": 0 if memory is None else memory.nbytes,
            "memory_bounded": memory is None or memory.bounded,
            "needs_boundaries": alignment is not None and alignment.needs_boundaries,
            "memory": {**session.tally, **{name: plain(value) for name, value in summary.items()}},
            "seconds": session.timer.seconds,
            "recipe": config.recipe,
            "method": config.learner.method,
            "preset": config.learner.preset,
            "dataset": self._evaluator.data.name,
            "tasks": len(self._evaluator.groups),
            "evaluated": evaluated,
            "seed": config.seed,
            "precision": engine.precision,
            "engine": engine.kind,
            "processes": session.group.size,
            "deterministic": session.device.type == "cpu" or session.execution.deterministic,
            "config_hash": config.config_hash(),
            "versions": versions(session.device),
            "format_version": FORMAT_VERSION,
        }
        optional = {
            "diversity": memory_diversity(engine, classes=len(self._evaluator.data.classes), seed=config.seed),
            "data_fingerprint": session.folder.data_fingerprint(),
            "other": {"evaluated": others[0], **self._evaluator.accuracies(others[0])} if others else None,
        }
        return result | {name: value for name, value in optional.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Learned:
    """The outcome of `learn`."""

    folder: Path
    images: int
    """Images learned, in all sittings."""
    new_images: int
    """Images learned in this sitting."""
    passed_over: dict[str, int]
    """Images that were not used, by reason, in all sittings."""
    stored: int
    """Images in the memory."""
    capacity: int
    """Maximum number of images in the memory; 0 for a method without one."""
    memory_bytes: int
    seconds: float

    def _repr_html_(self) -> str:
        return Result({**asdict(self), "folder": str(self.folder)})._repr_html_()


class LearnerResult(Observer):
    """Writes a learner's encoder at each checkpoint, the journal's "end" line, and the page of each sitting."""

    def __init__(self, feed: LiveFeed) -> None:
        self._feed = feed
        self._before = 0  # images learned in earlier sittings
        self._stops = False  # whether the next checkpoint is the last one of this sitting

    def start(self, session: Session) -> None:
        """Note how much has been learned; have a missing encoder written again."""
        if not self._feed.source.rereadable:
            log.warning(
                "images of %s cannot be read again: a crash or a power cut loses what came since the last "
                "checkpoint, at most the last %g s (--checkpoint-seconds)",
                source_name(self._feed.source),
                session.execution.checkpoint_seconds,
            )
        self._before = session.engine.budget.images
        if session.folder.checkpoint_path.exists() and not session.folder.model_path.exists():
            session.unsaved = True

    def at_checkpoint(self, session: Session, state: dict[str, Any]) -> None:
        """Write the encoder, atomically: other processes may read it while learning goes on."""
        # Before the checkpoint. If the process is killed in between, the next checkpoint writes it again.
        name, network = published_network(session.engine, last=self._stops)
        memory = state["engine"].get("memory") or {}
        write_encoder(session, name, network, memory, images=session.engine.budget.images)

    def at_stop(self, session: Session) -> None:
        """Have the encoder of the last checkpoint verified."""
        self._stops = True

    def finish(self, session: Session) -> None:
        """Write the "end" line, which tells a learner that is complete from one that died, and the page."""
        images, memory, source = session.engine.budget.images, session.engine.parts.memory, self._feed.source
        if session.complete:
            session.write("end", images=images)
        if session.complete and images == 0 and not self._feed.passed_over:
            if source.rereadable:
                log.warning(
                    "no image was found in %s: files count by their extension (%s). Tar shards are given by a pattern, "
                    "in quotes: 'FOLDER/*.tar'; Parquet files too: 'hf:FOLDER/*.parquet'; videos one at a time",
                    source.name,
                    " ".join(sorted(EXTENSIONS)),
                )
            else:
                log.warning("no image came from %s", source_name(source))
        session.result = Learned(
            folder=session.folder.path,
            images=images,
            new_images=images - self._before,
            passed_over=dict(self._feed.passed_over),
            stored=0 if memory is None else len(memory),
            capacity=0 if memory is None else memory.capacity,
            memory_bytes=0 if memory is None else memory.nbytes,
            seconds=session.timer.seconds["total"],
        )
        write_page(session.folder.path)


def source_name(source: Source) -> str:
    """The name of a source in messages."""
    return "standard input" if source.name == STANDARD_INPUT else source.name


def published_network(engine: Engine, *, last: bool) -> tuple[str, Network]:
    """The network to write, with its name. With a guard, never an encoder that may be unhealthy.

    Args:
        engine: the engine.
        last: whether a sitting ends: then the encoder is measured. Else the one last found healthy is taken.
    """
    name, network = chosen_network(engine)
    return name, network if engine.guard is None else engine.guard.published(engine, verify=last)


def write_encoder(session: Session, name: str, network: Network, memory: dict[str, Any], **counts: int) -> None:
    """Write the encoder of a network, "student" or "teacher", with all that is needed to use it.

    ``memory`` is the state of the memory; the centre of similarities is that of images in it.
    """
    learner, feed = session.config.learner, session.feed
    saved = SavedEncoder(
        encoder=network.encoder,
        backbone=learner.backbone,
        image_size=learner.image_size,
        mean=feed.mean,
        std=feed.std,
        centre=_centre(session, network, memory),
    )
    config_hash = session.config.config_hash()
    save_encoder(session.folder.model_path, saved, evaluated=name, config_hash=config_hash, **counts)


def _centre(session: Session, network: Network, memory: dict[str, Any]) -> tuple[float, ...] | None:
    """The mean direction of the features of stored images; None without whole images."""
    images, engine = saved_images(memory), session.engine
    if images is None or len(images) < 2 or images.shape[-1] != engine.config.image_size:  # patches
        return None
    features = extract_features(
        network.encoder, panel(images), engine.augment.plain, device=engine.device, precision=engine.precision
    )
    return tuple(centre_of(features).tolist())


def write_page(folder: Path) -> None:
    """Write plots and page of a run folder. A failure is logged: the run is complete without them."""
    try:
        draw_plots(folder)
        write_report(folder)
    except Exception as error:
        log.warning("no report page in %s: %s: %s", folder, type(error).__name__, error)

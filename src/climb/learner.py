"""`Climb`, the estimator: learns from images, mini-batch by mini-batch, and gives features at any time."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from climb.arguments import check_value, checked
from climb.engine import Engine, choose, resolve_device
from climb.engine.choices import REFERENCE
from climb.engine.inference import FairLock, Snapshot, inference, uninterrupted
from climb.errors import InputError, unknown
from climb.memory import Memory
from climb.methods import check_config
from climb.methods.build import build_engine, chosen_network
from climb.nets import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Channels,
    SavedEncoder,
    load_encoder,
    weights_of,
)
from climb.nets.foreign import module_name, same_class
from climb.nets.weights import OWN, digest
from climb.novelty.stored import StoredReference
from climb.pixels import Images, as_images, resized, square_side
from climb.resolve import check_room, resolve
from climb.settings.config import Execution, LearnerConfig, MemoryConfig, RunConfig, from_dict, to_dict
from climb.settings.fields import Setting, settings_of
from climb.state import load_tree, restoring, save_tree, tree_kind

log = logging.getLogger("climb.learner")


FIRST = (
    "method", "preset", "capacity", "backbone", "image_size", "stream_batch", "replay_batch", "passes", "lr",
    "alignment_weight", "seed", "device", "objective",
)  # fmt: skip
"""Arguments of `Climb` that may be given by position, in this order. All others are given by name."""
EXECUTION = ("device", "precision", "engine")
"""Arguments that are no part of the configuration."""
TEXTS = {
    "backbone": "Network that encodes images: a name, or a torch.nn.Module from images (n, 3, H, W) to features (n, f) "
    "or feature maps, of which a copy is trained; auto: resnet18 on a GPU, micro on a CPU.",
    "weights": "Weights that the network starts from: none (random), pretrained (its published ones), or a path; "
    "by default none, and for a module its own.",
    "image_size": "Side to which images are resized. None takes the side of the first images, which must be square.",
}
"""Arguments whose defaults, and therefore texts, are not those of the setting."""


def _arguments() -> dict[str, Setting]:
    """The settings that are arguments of `Climb`, in their order."""
    sections = (RunConfig, LearnerConfig, MemoryConfig, Execution)
    declared = {name: each for section in sections for name, each in settings_of(section).items() if each.has_option}
    others = (name for name, each in declared.items() if each.section in (LearnerConfig, MemoryConfig))
    return {name: declared[name] for name in dict.fromkeys([*FIRST, *others, *EXECUTION])}


def _signature() -> inspect.Signature:
    defaults = {"backbone": "auto", "image_size": None, "preset": None}
    parameters = []
    for name, each in _arguments().items():
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if name in FIRST else inspect.Parameter.KEYWORD_ONLY
        # None leaves the value to the preset, the method, the objective or the setting's default.
        own = name in (*FIRST, *EXECUTION) and not each.preset
        default = defaults.get(name, each.default if own else None)
        hint = each.hint | None if default is None else each.hint
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=hint))
    return inspect.Signature(parameters)


class Climb:
    """Learns image features from a stream, in one pass, with a bounded memory. Follows scikit-learn's conventions.

    The arguments are ``seed``, ``device``, ``precision``, ``engine`` and the settings of `LearnerConfig` and
    `MemoryConfig`; ``help(Climb)`` lists them. None leaves a value to the preset, the method, or the setting's default.

    All methods are safe to call from several threads. `transform` never changes training, and waits for one mini-batch
    of `partial_fit` at most.

    >>> images = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    >>> model = Climb(capacity=100, replay_batch=16, device="cpu").partial_fit(images)
    >>> model.transform(images).shape
    (40, 128)
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_lock",
        "_reference",
        "_snapshot",
    )  # a constructor's attributes are its arguments
    __signature__ = _signature()
    engine_: Engine
    mean_: Channels
    std_: Channels

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The arguments of the constructor are attributes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        bound = self.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        vars(self).update(bound.arguments)
        self._lock, self._snapshot = FairLock(), Snapshot()
        self._reference: StoredReference | None = None

    # -- learning ------------------------------------------------------------------------------------------------

    def partial_fit(self, X: Images, y: object = None) -> Climb:
        """Learn from uint8 images (n, H, W, 3) or (n, 3, H, W), any n; ``y`` is ignored."""
        images = as_images(X)
        with self._lock:
            if not hasattr(self, "engine_"):
                self._begin(images)
        return self._learn(images)

    def fit(self, X: Images, y: object = None) -> Climb:
        """Forget everything and learn from images. `partial_fit` continues instead."""
        images = as_images(X)
        with self._lock:
            self._begin(images)
        return self._learn(images)

    def transform(self, X: Images) -> NDArray[np.float32]:
        """Features (n, f) of uint8 images, from the encoder in eval mode. All are of one state of the encoder."""
        with self._lock:
            engine = self._fitted()
            encoder = self._snapshot.of(self.encoder_, engine.budget.batches)
        features: NDArray[np.float32] = self._embedded(engine, encoder, as_images(X)).numpy()
        return features

    def _embedded(self, engine: Engine, encoder: nn.Module, images: torch.Tensor) -> torch.Tensor:
        """Features (n, f) of uint8 images, on the CPU. The caller does not hold the lock."""
        # Elsewhere than in float32 on a CPU, arithmetic has switches that all threads share.
        alone = engine.device.type != "cpu" or engine.precision != "float32"
        parts: list[torch.Tensor] = []
        for batch in torch.split(images, 256):
            inputs = resized(batch, engine.config.image_size)
            with self._lock if alone else nullcontext(), inference(encoder, engine.device, engine.precision):
                parts.append(encoder(engine.augment.plain(inputs.to(engine.device))).float().cpu())
        return torch.cat(parts)

    def score_samples(self, X: Images) -> NDArray[np.float64]:
        """How normal uint8 images are to the memory: near 1 they are familiar, near 0 they are new.

        The value is the share of stored images that lie at least as far from the other stored ones, by the features of
        `transform`. Features of stored images are computed again when they are 100 mini-batches old.

        >>> images = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
        >>> model = Climb(capacity=100, replay_batch=16, device="cpu").partial_fit(images)
        >>> black = np.zeros((1, 32, 32, 3), dtype=np.uint8)
        >>> bool(model.score_samples(black)[0] < model.score_samples(images).min())
        True
        """
        images = as_images(X)
        with self._lock:
            engine = self._fitted()
            now, memory = engine.budget.batches, engine.parts.memory
            encoder = self._snapshot.of(self.encoder_, now)
            if self._reference is None or self._reference.memory is not memory:
                self._reference = StoredReference(memory)
            reference = self._reference
            due = reference.due(now)
            stored = reference.images(due).cpu() if due else images[:0]
        features = self._embedded(engine, encoder, images)
        renewed = self._embedded(engine, encoder, stored) if due else features[:0]
        with self._lock:
            reference.put(due, renewed, now)
            scores: NDArray[np.float64] = 1 - reference.score(features).scores.numpy()
        return scores

    def predict(self, X: Images, *, false_alarms: float = 0.01) -> NDArray[np.int64]:
        """1 for familiar and -1 for new uint8 images, as scikit-learn's outlier detectors.

        Args:
            X: the images.
            false_alarms: share of images like the stored ones that may be called new.
        """
        check_value("false_alarms", false_alarms, float, least=0)
        if false_alarms >= 1:
            raise InputError(f"false_alarms is {false_alarms}; it must be in 0..1, such as 0.01")
        return np.where(self.score_samples(X) < false_alarms, -1, 1)

    def fit_transform(self, X: Images, y: object = None) -> NDArray[np.float32]:
        """`fit`, then `transform` of the same images."""
        return self.fit(X).transform(X)

    # -- attributes ----------------------------------------------------------------------------------------------

    @property
    def encoder_(self) -> nn.Module:
        """The network behind `transform`: the teacher or the student, by the preset. It changes while others learn."""
        _, network = chosen_network(self._fitted())
        return network.encoder

    @property
    def memory_(self) -> Memory | None:
        """The memory; None for a method without one."""
        return self._fitted().parts.memory

    # -- parameters ----------------------------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in self.__signature__.parameters}

    def set_params(self, **params: Any) -> Climb:
        """Change constructor arguments. They take effect before the first `partial_fit`, and at `fit`."""
        for name, value in params.items():
            if name not in self.__signature__.parameters:
                raise unknown("parameter of Climb", name, self.__signature__.parameters)
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = self.__signature__.parameters
        shown = {k: type(v).__name__ if isinstance(v, nn.Module) else repr(v) for k, v in self.get_params().items()}
        changed = [f"{k}={shown[k]}" for k, v in self.get_params().items() if v != defaults[k].default]
        return f"Climb({', '.join(changed)})"

    def _repr_html_(self) -> str:
        """A table for notebooks: arguments, images learned, memory and network."""
        rows: dict[str, object] = {"model": repr(self), "learned": "nothing yet"}
        if hasattr(self, "engine_"):
            engine, memory = self.engine_, self.memory_
            rows["learned"] = f"{engine.budget.images:,} images in {engine.budget.steps:,} steps"
            if memory is not None:
                rows["memory"] = f"{len(memory):,} of at most {memory.capacity:,} images"
            size = engine.config.image_size
            rows["network"] = f"{engine.config.backbone}, {size} x {size} pixels, on {engine.device}"
        lines = (f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
        return f"<table>{''.join(lines)}</table>"

    # -- files ---------------------------------------------------------------------------------------------------

    @checked()
    def save(self, path: str | Path) -> None:
        """Write the whole model, memory included, to one file, from which `load` continues."""
        state = self.__getstate__()
        if isinstance(self.backbone, nn.Module):
            state["params"]["backbone"] = module_name(self.backbone)
        save_tree(Path(path), state, kind="model")

    @classmethod
    @checked()
    def load(
        cls, path: str | Path, *, device: str = "auto", backbone: nn.Module | None = None, **execution: str
    ) -> Climb:
        """The model that `save` wrote. It continues to learn as if it had not been interrupted.

        The file may also be an encoder: ``model.safetensors`` of a run, a learner or an export, or its folder. Then
        `partial_fit` starts from its weights, with fresh heads, an empty memory and default arguments.

        Args:
            path: the file, or its folder.
            device: where it goes on.
            backbone: the module that the model was built with, if it was; its weights are those of the file.
            execution: another ``precision`` or ``engine``.
        """
        execution["device"] = device
        path = Path(path).expanduser()
        file = path / "model.safetensors" if path.is_dir() else path
        if tree_kind(file) == "encoder":
            return cls._from_encoder(load_encoder(file), **execution)
        state = load_tree(file, kind="model")
        model = cls.__new__(cls)
        with restoring(file):
            module = {} if backbone is None else {"backbone": same_class(backbone, state["params"]["backbone"], file)}
            model.__setstate__({**state, "params": {**state["params"], **module, **execution}})
        return model

    @classmethod
    def _from_encoder(cls, saved: SavedEncoder, **execution: str) -> Climb:
        model = cls(backbone=saved.backbone, image_size=saved.image_size, **execution)
        model._start(model._configured(saved.image_size), mean=saved.mean, std=saved.std)
        for network in (model.engine_.parts.network, model.engine_.parts.teacher):
            if network is not None:
                network.encoder.load_state_dict(saved.encoder.state_dict())
        return model

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {"params": self._plain_params(), "engine": None, "config": None}
        with self._lock:
            if hasattr(self, "engine_"):
                # The engine's configuration: set_params may have changed the arguments since.
                state.update(engine=self.engine_.state_dict(), config=to_dict(self.engine_.config))
                state.update(mean=list(self.mean_), std=list(self.std_), choices=self._choices)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["params"])  # type: ignore[misc]
        if state["engine"] is not None:
            # Older files have no mean, no std and no choices.
            mean, std = tuple(state.get("mean", IMAGENET_MEAN)), tuple(state.get("std", IMAGENET_STD))
            stored, config = state.get("choices", REFERENCE), from_dict(LearnerConfig, state["config"])
            self._start(config, mean=mean, std=std, stored=stored, restored=True)
            self.engine_.load_state_dict(state["engine"])

    # -- internals -----------------------------------------------------------------------------------------------

    def _begin(self, images: torch.Tensor) -> None:
        """A new engine, whose image size these images may decide."""
        side = self._plain_params()["image_size"]
        config = self._configured(square_side(images) if side is None else side)
        start = weights_of(config)
        mean, std = (None, None) if start is None else (start.mean, start.std)
        self._start(config, mean=mean or IMAGENET_MEAN, std=std or IMAGENET_STD)
        alignment = self.engine_.parts.alignment
        if alignment is not None and alignment.needs_boundaries:
            log.warning(
                "'%s' must be told where tasks end: call engine_.on_boundary() there, or its alignment has no say",
                self.method,
            )

    def _learn(self, images: torch.Tensor) -> Climb:
        for batch in torch.split(images, self.engine_.config.stream_batch):
            with self._lock, uninterrupted():
                self.engine_.observe(resized(batch, self.engine_.config.image_size))
        return self

    def _plain_params(self) -> dict[str, Any]:
        """The constructor's arguments, with numpy's numbers as Python's, which can be saved."""
        params = self.get_params().items()
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in params}

    def _configured(self, image_size: int) -> LearnerConfig:
        options = {**self._plain_params(), "image_size": image_size}
        for name in (*EXECUTION, "seed"):
            _arguments()[name].check(options[name])
        if isinstance(options["backbone"], str) and options["backbone"] == "auto":
            options["backbone"] = "micro" if resolve_device(self.device).type == "cpu" else "resnet18"
        for name in EXECUTION:
            del options[name]
        if isinstance(module := options["backbone"], nn.Module):
            options["backbone"] = module_name(module)
            if options["weights"] is None:
                options |= {"weights": OWN, "weights_sha256": digest(module.state_dict())}
        config = resolve(RunConfig(), options).learner
        check_config(config)
        check_room(config)
        return config

    def _start(
        self,
        config: LearnerConfig,
        *,
        mean: Channels = IMAGENET_MEAN,
        std: Channels = IMAGENET_STD,
        stored: Mapping[str, Any] | None = None,
        restored: bool = False,
    ) -> None:
        device = resolve_device(self.device)
        choices = choose(self.precision, self.engine, device=device, stored=stored)
        self.mean_, self.std_ = mean, std
        self.engine_ = build_engine(
            config,
            mean=mean,
            std=std,
            seed=self._plain_params()["seed"],
            device=device,
            precision=choices.precision,
            kind=choices.engine,
            layout=choices.layout,
            restored=restored,
            module=self.backbone if isinstance(self.backbone, nn.Module) else None,
        )
        self._choices = asdict(choices) if device.type == "cpu" else None

    def _fitted(self) -> Engine:
        if not hasattr(self, "engine_"):
            raise InputError("this Climb has not learned yet; call partial_fit(images) first")
        return self.engine_


Climb.__doc__ = "\n".join(
    [
        inspect.cleandoc(Climb.__doc__ or ""),
        "\nArgs:",
        *(f"    {name}: {TEXTS.get(name, each.text)}" for name, each in _arguments().items()),
    ]
)

"""`Climb`: the estimator. Point it at images, mini-batch after mini-batch; ask it for features at any time."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from climb.augment import POLICIES, Augment, Policy
from climb.config import LearnerConfig, MemoryConfig, from_dict, to_dict
from climb.engine import Engine, EngineKind, Precision, resolve_device, resolve_engine, resolve_precision
from climb.engine.inference import inference
from climb.errors import InputError
from climb.impossible import check_config
from climb.memory import Memory
from climb.methods import build_parts, choose_method, choose_objective, find_method
from climb.nets import Network, SavedEncoder, load_encoder
from climb.parallel import current
from climb.presets import NETWORK, apply_preset
from climb.state import load_tree, save_tree, tree_kind
from climb.workshop import Workshop, find_objective

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Images = NDArray[np.uint8] | torch.Tensor
log = logging.getLogger("climb.learner")


def build_engine(
    config: LearnerConfig,
    *,
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
    seed: int,
    device: torch.device,
    precision: Precision,
    kind: EngineKind,
) -> Engine:
    """The engine that a configuration describes, at its first step. ``mean`` and ``std`` normalise the images."""
    check_config(config)
    method = find_method(config.method)
    if method.own_loop:
        if current().size > 1:
            raise InputError(f"'{config.method}' trains in a loop of its own, which works in one process only")
        engine: Engine = method.build(
            config, mean=mean, std=std, seed=seed, device=device, precision=precision, kind=kind
        )
        return engine
    parts = build_parts(Workshop(config=config, seed=seed, device=device))
    memory, allowed = parts.memory, config.memory.capacity
    if memory is not None and memory.bounded and memory.capacity > allowed:
        raise InputError(
            f"method '{config.method}' has a memory for {memory.capacity} images where {allowed} are allowed; make it "
            "with the workshop's *w.sizes"
        )
    views = find_objective(config.objective).views if config.views == "objective" else POLICIES[config.views]
    policy = views(config.image_size)
    if not isinstance(policy, Policy):
        raise InputError(
            f"the views of objective '{config.objective}' are {type(policy).__name__}; its function must give a Policy"
        )
    augment = Augment(policy, mean, std, per_batch=config.augment_per_batch, device=device)
    return Engine(parts, augment, config, seed=seed, device=device, precision=precision, kind=kind)


def chosen_network(engine: Engine) -> tuple[str, Network]:
    """The preset's choice of student or teacher, by name; a method without a teacher has its student."""
    teacher = engine.parts.teacher
    if NETWORK[engine.config.preset] == "teacher" and teacher is not None:
        return "teacher", teacher
    return "student", engine.parts.network


class Climb:
    """Learns image features from a stream, in one pass, with a bounded memory. Follows scikit-learn's habits.

    Args:
        method: which method (``climb methods``).
        preset: "default", "paper" or "reference".
        capacity: most images ever stored.
        backbone: "resnet18", "resnet34", "resnet50", "vit-tiny", "micro", "timm/NAME", or "auto": resnet18 on a GPU,
            micro on a CPU.
        image_size: side images are resized to, stretched if they are not square (`climb learn` takes the middle);
            None takes the first images' own, which must be square.
        stream_batch: images of one stream mini-batch.
        replay_batch: images replayed in each pass; at most half of ``capacity``.
        passes: gradient steps per stream mini-batch.
        lr: learning rate; None takes the preset's.
        alignment_weight: weight of the alignment loss; None takes the preset's.
        seed: seed of everything random.
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
        objective: "simclr", "simsiam", "byol", "barlow-twins", "vicreg", "osiris", "scale", or one of your own; None
            takes the method's.

    >>> images = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    >>> model = Climb(capacity=100, replay_batch=16, device="cpu").partial_fit(images)
    >>> model.transform(images).shape
    (40, 128)
    """

    engine_: Engine
    mean_: tuple[float, float, float]
    std_: tuple[float, float, float]

    def __init__(
        self,
        method: str = "climb",
        preset: str = "default",
        capacity: int = 2500,
        backbone: str = "auto",
        image_size: int | None = None,
        stream_batch: int = 10,
        replay_batch: int = 128,
        passes: int = 3,
        lr: float | None = None,
        alignment_weight: float | None = None,
        seed: int = 0,
        device: str = "auto",
        objective: str | None = None,
    ) -> None:
        self.method = method
        self.preset = preset
        self.capacity = capacity
        self.backbone = backbone
        self.image_size = image_size
        self.stream_batch = stream_batch
        self.replay_batch = replay_batch
        self.passes = passes
        self.lr = lr
        self.alignment_weight = alignment_weight
        self.seed = seed
        self.device = device
        self.objective = objective

    # -- the verbs -----------------------------------------------------------------------------------------------

    def partial_fit(self, X: Images, y: object = None) -> Climb:
        """Learn from uint8 images (n, H, W, 3) or (n, 3, H, W), any n; ``y`` is ignored."""
        images = as_images(X)
        if not hasattr(self, "engine_"):
            self._start(self._configured(self._given()["image_size"] or _square_side(images)))
            alignment = self.engine_.parts.alignment
            if alignment is not None and alignment.needs_boundaries:
                log.warning(
                    "'%s' must be told where tasks end: call engine_.on_boundary() there, or its alignment has no say",
                    self.method,
                )
        for batch in torch.split(images, self.engine_.config.stream_batch):
            self.engine_.observe(_resized(batch, self.engine_.config.image_size))
        return self

    def fit(self, X: Images, y: object = None) -> Climb:
        """Learn from images anew: what was learned before is forgotten. `partial_fit` goes on instead."""
        images = as_images(X)  # or they are refused, and nothing is forgotten
        vars(self).pop("engine_", None)
        return self.partial_fit(images)

    def transform(self, X: Images) -> NDArray[np.float32]:
        """Features (n, f) of uint8 images, from the encoder in eval mode."""
        engine = self._fitted()
        images = as_images(X)
        encoder = self.encoder_
        parts: list[torch.Tensor] = []
        with inference(encoder, engine.device, engine.precision):
            for batch in torch.split(images, 256):
                inputs = engine.augment.plain(_resized(batch, engine.config.image_size).to(engine.device))
                parts.append(encoder(inputs).float().cpu())
        features: NDArray[np.float32] = torch.cat(parts).numpy()
        return features

    def fit_transform(self, X: Images, y: object = None) -> NDArray[np.float32]:
        """`fit`, then `transform` of the same images."""
        return self.fit(X).transform(X)

    # -- what was learned ----------------------------------------------------------------------------------------

    @property
    def encoder_(self) -> nn.Module:
        """The network that gives the features: the preset's choice of student or teacher."""
        _, network = chosen_network(self._fitted())
        return network.encoder

    @property
    def memory_(self) -> Memory | None:
        """What is remembered."""
        return self._fitted().parts.memory

    # -- parameters ----------------------------------------------------------------------------------------------

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Climb:
        """Change constructor arguments; takes effect on a model that has not learned yet."""
        for name, value in params.items():
            if name not in self._names():
                raise InputError(f"unknown parameter '{name}' of Climb. Allowed: {', '.join(self._names())}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = [f"{k}={v!r}" for k, v in self.get_params().items() if v != defaults[k].default]
        return f"Climb({', '.join(changed)})"

    def _repr_html_(self) -> str:
        """What a notebook shows: how it was made and what it has learned so far."""
        rows: dict[str, object] = {"made by": repr(self), "learned": "nothing yet"}
        if hasattr(self, "engine_"):
            engine, memory = self.engine_, self.memory_
            rows["learned"] = f"{engine.budget.images:,} images in {engine.budget.steps:,} steps"
            if memory is not None:
                rows["remembers"] = f"{len(memory):,} of at most {memory.capacity:,} images"
            size = engine.config.image_size
            rows["network"] = f"{engine.config.backbone}, {size} x {size} pixels, on {engine.device}"
        lines = (f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
        return f"<table>{''.join(lines)}</table>"

    # -- keeping it ----------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the whole model, memory included, to one file; `load` continues learning from it."""
        save_tree(Path(path), self.__getstate__(), kind="model")

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Climb:
        """The model that `save` wrote, which goes on learning as if it had never been away.

        Also the encoder alone, as a run, a learner or an export leaves it (``model.safetensors``, or the folder that
        holds it): `transform` gives its features, and `partial_fit` goes on from its weights, with fresh heads, an
        empty memory and the default parameters.
        """
        path = Path(path).expanduser()
        file = path / "model.safetensors" if path.is_dir() else path
        if tree_kind(file) == "encoder":
            return cls._beginning_with(load_encoder(file), device)
        state = load_tree(file, kind="model")
        model = cls.__new__(cls)
        model.__setstate__({**state, "params": {**state["params"], "device": device}})
        return model

    @classmethod
    def _beginning_with(cls, saved: SavedEncoder, device: str) -> Climb:
        model = cls(backbone=saved.backbone, image_size=saved.image_size, device=device)
        model._start(model._configured(saved.image_size), mean=saved.mean, std=saved.std)
        for network in (model.engine_.parts.network, model.engine_.parts.teacher):
            if network is not None:
                network.encoder.load_state_dict(saved.encoder.state_dict())
        return model

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {"params": self._given(), "engine": None, "config": None}
        if hasattr(self, "engine_"):
            # Its own configuration: the parameters may have been set to other values since.
            state.update(engine=self.engine_.state_dict(), config=to_dict(self.engine_.config))
            state.update(mean=list(self.mean_), std=list(self.std_))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["params"])  # type: ignore[misc]
        if state["engine"] is not None:
            mean, std = state.get("mean", IMAGENET_MEAN), state.get("std", IMAGENET_STD)  # older files have none
            self._start(from_dict(LearnerConfig, state["config"]), mean=mean, std=std)
            self.engine_.load_state_dict(state["engine"])

    # -- inside --------------------------------------------------------------------------------------------------

    def _given(self) -> dict[str, Any]:
        """The constructor's arguments; numbers of numpy's, which no file holds, as those of Python."""
        params = self.get_params().items()
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in params}

    def _configured(self, image_size: int) -> LearnerConfig:
        given = self._given()
        if given["backbone"] == "auto":
            given["backbone"] = "micro" if resolve_device(self.device).type == "cpu" else "resnet18"
        sizes = {name: given[name] for name in ("backbone", "stream_batch", "replay_batch", "passes")}
        plain = LearnerConfig(image_size=image_size, memory=MemoryConfig(capacity=given["capacity"]), **sizes)
        config = choose_method(apply_preset(plain, self.preset), self.method)
        if self.objective is not None:
            config = choose_objective(config, self.objective)
        rates = {name: given[name] for name in ("lr", "alignment_weight") if given[name] is not None}
        return replace(config, **rates)

    def _start(
        self, config: LearnerConfig, *, mean: Sequence[float] = IMAGENET_MEAN, std: Sequence[float] = IMAGENET_STD
    ) -> None:
        device = resolve_device(self.device)
        self.mean_, self.std_ = _three(mean), _three(std)
        self.engine_ = build_engine(
            config,
            mean=self.mean_,
            std=self.std_,
            seed=self._given()["seed"],
            device=device,
            precision=resolve_precision("auto", device),
            kind=resolve_engine("auto", device),
        )

    def _fitted(self) -> Engine:
        if not hasattr(self, "engine_"):
            raise InputError("this Climb has not learned yet; call partial_fit(images) first")
        return self.engine_


def as_images(X: Images) -> torch.Tensor:
    """uint8 images (n, 3, H, W) from (n, H, W, 3) or (n, 3, H, W), numpy or torch."""
    if isinstance(X, np.ndarray):  # torch wants memory that it may write to
        images = torch.from_numpy(np.ascontiguousarray(X) if X.flags.writeable else X.copy())
    else:
        images = X
    if not isinstance(images, torch.Tensor) or images.ndim != 4 or 3 not in (images.shape[1], images.shape[3]):
        shape = tuple(getattr(X, "shape", ())) or type(X).__name__
        raise InputError(f"images must have shape (n, H, W, 3) or (n, 3, H, W); given {shape}")
    if images.dtype != torch.uint8:
        raise InputError(f"images must be uint8, values 0 to 255; given {images.dtype}")
    if len(images) == 0:
        raise InputError(f"no image was given: the shape is {tuple(images.shape)}")
    # One layout in memory: convolutions of another one add up in another order, and give other last bits.
    return (images if images.shape[1] == 3 else images.permute(0, 3, 1, 2)).contiguous()


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    red, green, blue = values
    return red, green, blue


def _square_side(images: torch.Tensor) -> int:
    height, width = images.shape[-2:]
    if height != width:
        raise InputError(f"images of {height} x {width} pixels are not square; give image_size to have them resized")
    return int(height)


def _resized(images: torch.Tensor, side: int) -> torch.Tensor:
    if tuple(images.shape[-2:]) == (side, side):
        return images
    resized = F.interpolate(images.float(), size=(side, side), mode="bilinear", antialias=True, align_corners=False)
    return resized.round_().clamp_(0, 255).to(torch.uint8)

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from climb.errors import ClimbError, InputError
from climb.methods.build import build_engine
from climb.nets import build_network, start_weights
from climb.nets.timm_model import TimmModel, timm_model
from climb.nets.vit import vit_tiny
from climb.settings.config import LearnerConfig, MemoryConfig


def timm_or_skip() -> None:
    """Skip, with the reason, where timm is absent or its torchvision does not fit the installed torch."""
    try:
        import timm  # noqa: F401
    except Exception as error:
        pytest.skip(f"needs timm (pip install 'climb-ssl[timm]'): {type(error).__name__}: {error}")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def forget_timm(patch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "timm"]:
        patch.delitem(sys.modules, name)


def test_absent_timm_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_timm(monkeypatch)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"'timm/…' need timm, which is not installed.*'climb-ssl\[timm\]'"):
        build_network("timm/resnet18", 32, generator=generator())


@pytest.mark.parametrize(
    "fault", ["raise RuntimeError('operator torchvision::nms does not exist')", "import torchvision_of_nowhere"]
)
def test_timm_that_does_not_import_says_why(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_timm(monkeypatch)
    (tmp_path / "timm.py").write_text(fault)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ClimbError, match=r"installed but cannot be imported: .*torchvision") as raised:
        timm_model("resnet18", 32, generator=generator())
    assert not isinstance(raised.value, InputError)
    monkeypatch.delitem(sys.modules, "timm", raising=False)


class Standing(nn.Module):
    """A model in the ways of timm's: it drops features and paths, and says a wrong number of features."""

    num_features = 5

    def __init__(self, img_size: int | None = None) -> None:
        super().__init__()
        self.img_size = img_size
        self.stem = nn.Conv2d(3, 7, 8, stride=8)
        self.drop = nn.Dropout(0.5)
        self.drop_rate = 0.3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.drop(self.stem(x).mean((2, 3)))
        return nn.functional.dropout(rows, self.drop_rate, self.training)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A stand-in for timm, which needs torchvision. It records the requested models."""
    asked: list[dict[str, Any]] = []

    def create_model(name: str, **settings: Any) -> nn.Module:
        asked.append({"name": name, **settings})
        if settings["pretrained"] and name == "free":
            raise RuntimeError("the hub does not answer.\nTry again.")
        return Standing(settings.get("img_size"))

    module = ModuleType("timm")
    module.is_model = lambda name: name in ("fixed", "free")  # type: ignore[attr-defined]
    module.list_models = lambda: ["fixed", "free"]  # type: ignore[attr-defined]
    facts = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25), "input_size": (3, 40, 40)}
    module.get_pretrained_cfg = lambda name: SimpleNamespace(fixed_input_size=name == "fixed", **facts)  # type: ignore[attr-defined]
    module.create_model = create_model  # type: ignore[attr-defined]
    forget_timm(monkeypatch)
    monkeypatch.setitem(sys.modules, "timm", module)
    return asked


def test_every_model_is_built_untrained_and_without_its_classifier(
    stand_in: list[dict[str, Any]],
) -> None:
    network = build_network("timm/fixed", 24, generator=generator())
    build_network("timm/free", 24, generator=generator())
    bare = {"pretrained": False, "num_classes": 0}
    assert stand_in == [{"name": "fixed", **bare, "img_size": 24}, {"name": "free", **bare}]
    features, embeddings = network(torch.randn(4, 3, 24, 24, generator=generator()))
    assert features.shape == (4, 7) == (4, network.feature_dim)
    assert embeddings.shape == (4, network.embedding_dim)
    with pytest.raises(InputError, match="did you mean 'timm/fixed'"):
        build_network("timm/fixd", 24, generator=generator())


@pytest.mark.usefixtures("stand_in")
def test_a_model_is_drawn_from_the_generator_and_draws_nothing_itself() -> None:
    before = torch.get_rng_state()
    one, again, other = (timm_model("free", 24, generator=generator(seed)).train() for seed in (0, 0, 1))
    x = torch.randn(2, 3, 24, 24, generator=generator())
    assert torch.equal(one(x), again(x))
    assert torch.equal(one(x), one.eval()(x))  # nothing is dropped
    assert not torch.equal(one(x), other(x))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("stand_in")
def test_climb_learns_with_it() -> None:
    sizes = MemoryConfig(capacity=60, images_per_centroid=6)
    config = LearnerConfig(backbone="timm/free", image_size=16, passes=1, replay_batch=8, memory=sizes)
    place: Any = {"seed": 0, "device": torch.device("cpu"), "precision": "float32", "kind": "eager"}
    engine = build_engine(config, mean=(0.5,) * 3, std=(0.25,) * 3, **place)  # type: ignore[arg-type]
    before = [weights.detach().clone() for weights in engine.parts.network.encoder.parameters()]
    noise = torch.randint(0, 256, (3, 10, 3, 16, 16), dtype=torch.uint8, generator=generator())
    assert all(engine.observe(images).objective.isfinite() for images in noise)
    assert not any(map(torch.equal, before, engine.parts.network.encoder.parameters()))


def test_pretrained_weights_come_with_timms_statistics(stand_in: list[dict[str, Any]]) -> None:
    start = start_weights("timm/fixed", "pretrained", 24)
    assert stand_in[0] == {"name": "fixed", "pretrained": True, "num_classes": 0, "img_size": 24}
    assert (start.mean, start.std) == ((0.5,) * 3, (0.25,) * 3)
    network = build_network("timm/fixed", 24, generator=generator(), weights=start.state)
    assert torch.equal(network.encoder.model.stem.weight, start.state["model.stem.weight"])
    with pytest.raises(InputError, match=r"cannot get timm's weights of 'free': the hub does not answer; without a"):
        start_weights("timm/free", "pretrained", 24)


@pytest.mark.usefixtures("stand_in")
def test_a_file_has_timms_names_with_or_without_the_wrappers_prefix(tmp_path: Path) -> None:
    state = timm_model("free", 24, generator=generator()).state_dict()
    plain = {name.removeprefix("model."): value for name, value in state.items()}
    for number, names in enumerate((state, plain, {f"module.{name}": value for name, value in plain.items()})):
        torch.save({**names, "head.bias": torch.ones(9)}, tmp_path / f"{number}.pth")
        start = start_weights("timm/free", str(tmp_path / f"{number}.pth"), 24)
        assert torch.equal(start.state["model.stem.weight"], state["model.stem.weight"])
        assert start.mean == (0.5,) * 3


def test_unknown_model_gets_the_nearest_name() -> None:
    timm_or_skip()
    with pytest.raises(InputError, match=r"unknown timm model 'resnt18'; did you mean 'timm/resnet18'"):
        build_network("timm/resnt18", 32, generator=generator())
    with pytest.raises(InputError, match="unknown timm model 'hf-hub:someone/something'"):
        build_network("timm/hf-hub:someone/something", 32, generator=generator())


@pytest.mark.parametrize(
    ("name", "image_size", "feature_dim"),
    [
        ("resnet18", 32, 512),
        ("resnet18.a1_in1k", 64, 512),
        ("convnext_atto", 64, 320),
        ("vit_tiny_patch16_224", 64, 192),
        # Declares 576 features and gives 1024.
        ("mobilenetv3_small_100", 64, 1024),
    ],
)
def test_sizes(name: str, image_size: int, feature_dim: int) -> None:
    timm_or_skip()
    network = build_network(f"timm/{name}", image_size, generator=generator())
    assert isinstance(network.encoder, TimmModel)
    assert network.training
    assert all(part.training for part in network.modules())
    features, embeddings = network(torch.randn(2, 3, image_size, image_size, generator=generator()))
    assert features.shape == (2, feature_dim) == (2, network.feature_dim)
    assert embeddings.shape == (2, 2048) == (2, network.embedding_dim)
    assert network.bottleneck_dim == 512
    embeddings.pow(3).sum().backward()
    assert all(weights.grad is not None for weights in network.parameters())


def test_weights_depend_on_the_generator_alone() -> None:
    timm_or_skip()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = timm_model("resnet18", 32, generator=generator()).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again = timm_model("resnet18", 32, generator=generator()).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    other = timm_model("resnet18", 32, generator=generator(1)).state_dict()
    assert not torch.equal(first["model.conv1.weight"], other["model.conv1.weight"])
    # The pass that measures the output leaves no trace in the batch norms.
    assert first["model.bn1.num_batches_tracked"] == 0


@pytest.mark.parametrize("name", ["rexnet_100", "nest_tiny", "ghostnet_050"])
def test_no_pass_draws_random_numbers(name: str) -> None:
    """By default rexnet drops features in a layer, ghostnet without one, and nest drops paths."""
    timm_or_skip()
    encoder = timm_model(name, 224, generator=generator()).train()
    x = torch.randn(2, 3, 224, 224, generator=generator())
    before = torch.get_rng_state()
    with torch.no_grad():
        first, second = encoder(x), encoder(x)
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_error_without_words_is_named() -> None:
    timm_or_skip()
    with pytest.raises(
        InputError, match=r"'halonet26t' cannot take images of 224 pixels: (AssertionError|ValueError)\. Choose"
    ):
        timm_model("halonet26t", 224, generator=generator())


def test_image_too_small_for_the_model() -> None:
    timm_or_skip()
    with pytest.raises(InputError, match=r"timm's 'inception_v3' cannot take images of 32 pixels: .+ Choose another"):
        timm_model("inception_v3", 32, generator=generator())


def test_vit_tiny_agrees_with_timms() -> None:
    """Our own transformer, held to timm's: the same weights by the same names give the same features."""
    timm_or_skip()
    import timm

    ours = vit_tiny(64, generator=generator()).eval()
    theirs = timm.create_model(
        "vit_tiny_patch16_224",
        num_classes=0,
        img_size=64,
        patch_size=8,
        class_token=False,
        global_pool="avg",
        fc_norm=False,
    ).eval()
    torch.nn.init.normal_(ours.pos_embed)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(3, 3, 64, 64, generator=generator())
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), atol=1e-5, rtol=1e-5)

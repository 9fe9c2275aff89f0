"""How steps are executed: the rules, the measurements, and equal bits for equal choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch import nn

from climb.engine import Choices, Engine, choose
from climb.engine.choices import FEWEST_STEPS, REFERENCE, _seconds
from climb.errors import InputError
from climb.methods import METHODS, choose_method
from climb.methods.build import build_engine
from climb.nets import backbone
from climb.precision import threads
from climb.settings.config import LearnerConfig, MemoryConfig

CPU = torch.device("cpu")
MEMORY = MemoryConfig(capacity=60, stm_centroids=12, ltm_centroids=4, images_per_centroid=6, window=100)
CONFIG = LearnerConfig(backbone="micro", image_size=16, replay_batch=8, memory=MEMORY)
FAST = Choices(precision="bf16", layout="channels-last", engine="eager", threads=1)


def made(choices: Choices, config: LearnerConfig = CONFIG) -> Engine:
    return build_engine(
        config,
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
        seed=0,
        device=CPU,
        precision=choices.precision,
        kind=choices.engine,
        layout=choices.layout,
    )


def batches(n: int, rows: int = 10, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, rows, 3, 16, 16), dtype=torch.uint8, generator=generator)


def same_state(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_state(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same_state, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


@pytest.fixture
def half_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which bf16 is faster, with two cores."""
    monkeypatch.setattr("climb.engine.numerics.bf16_gain", lambda: 4.0)
    monkeypatch.setattr("climb.engine.choices.usable_cores", lambda: 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Choices]]:
    """``clock(float32=0.5, eager=...)``: seconds of a step are the product of the factors of its choices."""

    def install(base: float = 0.01, **factors: float) -> list[Choices]:
        tried: list[Choices] = []

        def seconds(choices: Choices, make: object) -> float:
            tried.append(choices)
            names = [str(value).replace("-", "_") for value in asdict(choices).values()]
            names[-1] = f"threads_{names[-1]}"
            return base * torch.tensor([factors.get(name, 1.0) for name in names]).prod().item()

        monkeypatch.setattr("climb.engine.choices._seconds", seconds)
        return tried

    return install


# -- rules -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "engine", "expected"),
    [
        ("auto", "auto", ("bf16", "channels-last", "eager", 2)),
        ("auto", "eager", ("bf16", "channels-last", "eager", 2)),
        ("bf16", "eager", ("bf16", "channels-last", "eager", 2)),
        ("float32", "auto", ("float32", "contiguous", "eager", 2)),
        ("float32", "eager", ("float32", "contiguous", "eager", 2)),
    ],
)
def test_rules_without_measurement(precision: str, engine: str, expected: tuple[Any, ...], half_pays: None) -> None:
    assert tuple(asdict(choose(precision, engine, device=CPU)).values()) == expected


@pytest.mark.parametrize(
    ("precision", "engine", "expected"),
    [
        ("auto", "auto", ("float32", "contiguous", "eager", 1)),
        ("bf16", "auto", ("bf16", "contiguous", "eager", 1)),
    ],
)
def test_stored_choices_are_kept_where_nothing_else_is_asked_for(
    precision: str, engine: str, expected: tuple[Any, ...], half_pays: None, clock: Callable[..., list[Choices]]
) -> None:
    tried = clock(float32=2.0)
    found = choose(precision, engine, device=CPU, stored={**REFERENCE, "threads": 1}, steps=10**6, make=made)
    assert tried == []
    assert tuple(asdict(found).values()) == expected


def test_more_threads_than_cores_are_not_restored(half_pays: None) -> None:
    assert choose(device=CPU, stored={**REFERENCE, "threads": 64}).threads == 2


def test_impossible_stored_choices_are_named() -> None:
    with pytest.raises(InputError, match="captured engine needs a CUDA device"):
        choose(device=CPU, stored={**REFERENCE, "engine": "captured"})


# -- measurements ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ({}, ("bf16", "channels-last", "eager", 2)),
        ({"contiguous": 0.97, "float32": 0.97, "threads_1": 0.97}, ("bf16", "channels-last", "eager", 2)),
        ({"contiguous": 0.8}, ("bf16", "contiguous", "eager", 2)),
        ({"float32": 0.8}, ("float32", "channels-last", "eager", 2)),
        ({"threads_1": 0.8}, ("bf16", "channels-last", "eager", 1)),
        ({"contiguous": 0.8, "threads_1": 0.8}, ("bf16", "contiguous", "eager", 1)),
    ],
)
def test_the_fastest_alternative_is_chosen(
    factors: dict[str, float], expected: tuple[Any, ...], half_pays: None, clock: Callable[..., list[Choices]]
) -> None:
    tried = clock(**factors)
    found = choose(device=CPU, steps=FEWEST_STEPS, make=made)
    assert tuple(asdict(found).values()) == expected
    assert all(choices.engine == "eager" for choices in tried)  # ten seconds are not worth compiling


def test_float32_on_request_gets_channels_last_where_that_is_faster(
    half_pays: None, clock: Callable[..., list[Choices]]
) -> None:
    clock(contiguous=2.0)
    assert choose("float32", device=CPU, steps=FEWEST_STEPS, make=made).layout == "channels-last"
    assert choose("float32", "eager", device=CPU, steps=FEWEST_STEPS, make=made).layout == "contiguous"


def test_an_explicit_precision_has_no_alternative(half_pays: None, clock: Callable[..., list[Choices]]) -> None:
    tried = clock(float32=0.1)
    assert choose("bf16", device=CPU, steps=FEWEST_STEPS, make=made).precision == "bf16"
    assert {choices.precision for choices in tried} == {"bf16"}


@pytest.mark.parametrize("options", [{"steps": FEWEST_STEPS - 1}, {"precision": "bf16", "engine": "eager"}])
def test_short_runs_and_explicit_options_are_not_measured(
    options: dict[str, Any], half_pays: None, clock: Callable[..., list[Choices]]
) -> None:
    tried = clock(contiguous=0.1)
    assert choose(**{"device": CPU, "steps": 10**6, "make": made, **options}).layout == "channels-last"
    assert tried == []


@pytest.mark.parametrize(("compiled", "expected"), [(0.8, "compiled"), (0.97, "eager"), (2.0, "eager")])
def test_long_runs_are_compiled_if_that_is_faster(
    compiled: float,
    expected: str,
    half_pays: None,
    clock: Callable[..., list[Choices]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("climb.engine.choices.missing_for_kernels", lambda device: None)
    clock(compiled=compiled)
    assert choose(device=CPU, steps=10**6, make=made).engine == expected
    assert choose("auto", "eager", device=CPU, steps=10**6, make=made).engine == "eager"


def test_without_a_compiler_steps_stay_eager_and_the_log_says_what_to_install(
    half_pays: None,
    clock: Callable[..., list[Choices]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock(compiled=0.1)
    monkeypatch.setattr("climb.engine.choices.missing_for_kernels", lambda device: "there is no compiler: install g++")
    assert choose(device=CPU, steps=10**6, make=made).engine == "eager"
    assert "install g++. Steps stay eager" in caplog.text


def test_a_step_that_cannot_be_compiled_stays_eager(
    half_pays: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def seconds(choices: Choices, make: object) -> float:
        if choices.engine == "compiled":
            raise RuntimeError("no such header\nand more")
        return 0.01

    monkeypatch.setattr("climb.engine.choices.missing_for_kernels", lambda device: None)
    monkeypatch.setattr("climb.engine.choices._seconds", seconds)
    assert choose(device=CPU, steps=10**6, make=made).engine == "eager"
    assert "cannot be compiled and stays eager: no such header" in caplog.text


@pytest.mark.parametrize("method", ["climb", "finetune", "minred", "lump", "scale", "cla-r", "osiris-r", "iid"])
def test_every_kind_of_step_can_be_timed(method: str) -> None:
    config = choose_method(CONFIG, method)
    engines: list[Engine] = []

    def make(choices: Choices) -> Engine:
        engines.append(made(choices, config))
        return engines[-1]

    assert _seconds(FAST, make) > 0
    (engine,) = engines
    if METHODS[method].memory is not None:
        assert engine._replayed


def test_measuring_changes_nothing() -> None:
    images = batches(8)
    plain, measured = made(FAST), made(FAST)
    for number, batch in enumerate(images):
        plain.observe(batch)
        measured.observe(batch)
        if number == 4:
            state, count = torch.random.get_rng_state(), torch.get_num_threads()
            choose(device=CPU, steps=FEWEST_STEPS, make=made)
            assert torch.equal(torch.random.get_rng_state(), state)
            assert torch.get_num_threads() == count
    assert same_state(plain.state_dict(), measured.state_dict())


# -- bits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("layout", ["contiguous", "channels-last"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_equal_choices_give_equal_bits_also_after_a_stop(precision: Any, layout: Any, count: int) -> None:
    choices = replace(FAST, precision=precision, layout=layout)
    with threads(count):
        one, other, resumed = made(choices), made(choices), made(choices)
        for batch in batches(5):
            one.observe(batch)
            other.observe(batch)
        resumed.load_state_dict(other.state_dict())
        for batch in batches(4, seed=1):
            one.observe(batch)
            resumed.observe(batch)
    assert same_state(one.state_dict(), resumed.state_dict())


@pytest.mark.slow(seconds=120)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported
def test_compiled_steps_repeat_to_the_bit_also_after_a_stop(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    choices = replace(FAST, engine="compiled")
    with threads(1):
        one, other, resumed = made(choices), made(choices), made(choices)
        for batch in batches(4):
            one.observe(batch)
            other.observe(batch)
        resumed.load_state_dict(other.state_dict())
        for batch in [*batches(2, seed=1), batches(1, rows=7)[0]]:  # the last mini-batch of a stream is shorter
            one.observe(batch)
            resumed.observe(batch)
    assert same_state(one.state_dict(), resumed.state_dict())
    eager = made(FAST)
    for batch in batches(4):
        eager.observe(batch)
    assert not same_state(eager.state_dict()["network"], one.state_dict()["network"])


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_layouts_agree_up_to_rounding(precision: Any) -> None:
    one, other = (made(replace(FAST, precision=precision, layout=layout)) for layout in ("contiguous", "channels-last"))
    images, rows = batches(1, rows=18)[0], (torch.arange(10), torch.arange(10, 18))
    results = [engine._eager_step(images, *rows, torch.zeros(0)) for engine in (one, other)]
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right, rtol=0.05 if precision == "bf16" else 1e-4, atol=0.05)
    kernel = other.parts.network.encoder.stages[1][0].weight
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    assert not kernel.is_contiguous()


def test_a_network_that_views_images_as_rows_keeps_its_layout(registries: None) -> None:
    class Rows(nn.Module):
        feature_dim = 4 * 64

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, 2, 1)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.conv(images).view(len(images), -1)

    @backbone("rows", hidden=16, embedding_dim=16, bottleneck_dim=8)
    def rows(image_size: int, *, generator: torch.Generator) -> Rows:
        encoder = Rows()
        nn.init.normal_(encoder.conv.weight, generator=generator)
        return encoder

    engine = made(FAST, replace(CONFIG, backbone="rows"))
    engine.observe(batches(1)[0])
    assert engine.parts.network.encoder.conv.weight.is_contiguous()


def test_memory_formats_of_saved_weights_do_not_matter() -> None:
    one, other = made(FAST), made(replace(FAST, layout="contiguous"))
    for batch in batches(3):
        one.observe(batch)
    other.load_state_dict(one.state_dict())
    kernel = other.parts.network.encoder.stages[1][0].weight
    assert kernel.is_contiguous()
    assert torch.equal(kernel, one.parts.network.encoder.stages[1][0].weight)

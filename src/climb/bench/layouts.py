"""The tables of the paper, empty: their rows, columns and metrics. Labels are those of the paper's values."""

from __future__ import annotations

from climb.bench.cell import Layout, Metric, RowSpec, Settings
from climb.config import LearnerConfig
from climb.errors import unknown
from climb.presets import FAULTS, apply_preset

CA = Metric(key="continual_accuracy", label="CA")
FA = Metric(key="final_accuracy", label="FA")
CA_UPTO = Metric(key="continual_accuracy_upto", label="CA up-to")
"""CA with a probe on the classes seen so far: the paper's sentence describes it, its numbers agree with `CA`."""
PER_IMAGE = (
    Metric(key="continual_accuracy_per_image", label="CA per image"),
    Metric(key="final_accuracy_per_image", label="FA per image"),
)
"""Each test image counts once, not each task: another number where tasks differ in size."""
FORGETTING = Metric(key="forgetting", label="forgetting", higher_is_better=False)

IID = RowSpec(label="i.i.d.", method="iid", kind="bound")
SCALE = RowSpec(label="SCALE", method="scale")
OSIRIS_R = RowSpec(label="Osiris-R", method="osiris-r")
MINRED = RowSpec(label="MinRed", method="minred")
CLA_R = RowSpec(label="CLA-R", method="cla-r")
CLA_E = RowSpec(label="CLA-E", method="cla-e")
CLIMB = RowSpec(label="CLIMB", method="climb")
PCMC = RowSpec(label="PCMC", method="pcmc", kind="indicative")

RELEASED = "as the released code"
"""The row of the preset `reference`."""

SSL, ALIGN = r"$\mathcal{L}_{\text{SSL}}$", r"$\mathcal{L}_{\text{align}}$"


REGULAR: Settings = (("stream.kind", "regular"),)
SIMCLR: Settings = (("learner.objective", "simclr"),)

MEMORY_SIZES: dict[str, tuple[str, float]] = {
    "N": ("learner.memory.capacity", 2500),
    "L": ("learner.memory.stm_centroids", 100),
    "K": ("learner.memory.ltm_centroids", 60),
    "M": ("learner.memory.images_per_centroid", 30),
}
"""The memory's sizes and CLIMB's choice of them."""
MEMORY_RULES: dict[str, tuple[str, float]] = {
    "p": ("learner.memory.novelty_percentile", 0.95),
    "tau_ema": ("learner.ema_decay", 0.999),
    "alpha_stm": ("learner.memory.stm_rate", 0.1),
}
"""The memory's rules of update and CLIMB's choice of them."""
CHOICES = {**MEMORY_SIZES, **MEMORY_RULES}
"""What the tables of sensitivity vary, one at a time; the others are as CLIMB has them."""


def coupled(name: str, value: float) -> dict[str, int]:
    """The sizes that move along when another is varied, so that the memory still fits its bound (appendix B).

    When N varies, K follows in proportion; when M varies, K keeps the long-term images near 1800.

    >>> coupled("N", 1000), coupled("M", 50), coupled("L", 50)
    ({'K': 24}, {'K': 36}, {})
    """
    capacity, ltm, images = (MEMORY_SIZES[size][1] for size in "NKM")
    return {"N": {"K": round(ltm * value / capacity)}, "M": {"K": round(ltm * images / value)}}.get(name, {})


def _sensitivity(name: str, symbol: str, values: tuple[str, ...]) -> tuple[RowSpec, ...]:
    rows = []
    for value in values:
        given = {name: float(value), **coupled(name, float(value))}
        rows.append(
            RowSpec(
                label=f"{name} = {value}",
                method="climb",
                group=name,
                latex=f"${symbol} = {value}$",
                where=tuple((setting, given.get(key, usual)) for key, (setting, usual) in CHOICES.items()),
            )
        )
    return tuple(rows)


def _faults() -> tuple[RowSpec, ...]:
    """CLIMB as the preset has it, with each fault of the released code, and as that code behaves."""
    printed = apply_preset(LearnerConfig(), "paper")
    usual = {field: getattr(printed, field) for fields in FAULTS.values() for field in fields}
    rows = [
        RowSpec(
            label=label,
            method="climb",
            where=tuple(
                (f"learner.{field}", value) for field, value in {**usual, **on, "memory_faults": False}.items()
            ),
        )
        for label, on in {"no fault": {}, **{f"+ {name}": fields for name, fields in FAULTS.items()}}.items()
    ]
    return (*rows, RowSpec(label=RELEASED, method="climb", where=(("learner.preset", "reference"),)))


def _ablation(label: str, method: str, latex: str) -> RowSpec:
    return RowSpec(label=label, method=method, latex=latex, own_rates=False)


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(
            name="table-regular",
            title="Regular tasks",
            rows=(IID, SCALE, OSIRIS_R, MINRED, CLA_R, CLA_E, CLIMB, PCMC),
            columns=("20 tasks", "50 tasks", "100 tasks"),
            where=REGULAR + SIMCLR,
            metrics=(CA, FA, CA_UPTO),
        ),
        Layout(
            name="table-irregular",
            title="Irregular tasks",
            rows=(OSIRIS_R, MINRED, CLA_R, CLA_E, CLIMB, PCMC),
            columns=("20 tasks", "50 tasks"),
            where=(("stream.kind", "irregular"), *SIMCLR),
            metrics=(CA, FA, *PER_IMAGE),
        ),
        Layout(
            name="table-ablation",
            title="Ablation",
            rows=(
                _ablation("SSL", "finetune", SSL),
                _ablation("SSL + memory", "climb-memory-only", f"{SSL} + Memory"),
                _ablation("SSL + memory + alignment", "climb-previous-step", f"{SSL} + Memory + {ALIGN}"),
                _ablation("SSL + memory + alignment + EMA (CLIMB)", "climb", f"{SSL} + Memory + {ALIGN} + EMA (CLIMB)"),
                _ablation("SSL + FIFO + alignment + EMA", "climb-fifo", f"{SSL} + FIFO + {ALIGN} + EMA"),
                _ablation("SSL + MinRed + alignment + EMA", "climb-minred", f"{SSL} + MinRed + {ALIGN} + EMA"),
                _ablation("SSL + reservoir + alignment + EMA", "climb-reservoir", f"{SSL} + Reservoir + {ALIGN} + EMA"),
            ),
            columns=("20 tasks",),
            where=REGULAR + SIMCLR,
            metrics=(CA, FA),
        ),
        Layout(
            name="table-sensitivity-architecture",
            title="Sensitivity to the memory's sizes",
            rows=(
                *_sensitivity("N", "N", ("1000", "1500", "2000", "2500", "3500", "5000")),
                *_sensitivity("L", "L", ("50", "75", "100", "150", "200")),
                *_sensitivity("K", "K", ("20", "35", "50", "60", "80")),
                *_sensitivity("M", "M", ("10", "20", "30", "50")),
            ),
            columns=("20 tasks",),
            where=REGULAR + SIMCLR,
            metrics=(CA, FA),
            varies=("capacity",),
        ),
        Layout(
            name="table-sensitivity-update",
            title="Sensitivity to the memory's rules of update",
            rows=(
                *_sensitivity("p", "p", ("0.75", "0.85", "0.90", "0.95", "0.99")),
                *_sensitivity("tau_ema", r"\tau_{\text{ema}}", ("0.990", "0.995", "0.999", "0.9995")),
                *_sensitivity("alpha_stm", r"\alpha_{\text{stm}}", ("0.01", "0.05", "0.1", "0.3", "0.5")),
            ),
            columns=("20 tasks",),
            where=REGULAR + SIMCLR,
            metrics=(CA, FA),
        ),
        Layout(
            name="table-pruning",
            title="Global pruning",
            rows=(RowSpec(label="Anchor", method="climb"), RowSpec(label="Selective", method="climb-selective")),
            columns=("20 tasks", "50 tasks"),
            where=REGULAR + SIMCLR,
            metrics=(CA, FA),
        ),
        Layout(
            name="table-diversity",
            title="Diversity of the memory at the end",
            rows=(
                CLIMB,
                RowSpec(label="MinRed", method="climb-minred", own_rates=False),
                RowSpec(label="Reservoir", method="climb-reservoir", own_rates=False),
                RowSpec(label="FIFO", method="climb-fifo", own_rates=False),
            ),
            columns=("20 tasks",),
            where=REGULAR + SIMCLR,
            metrics=(
                Metric(key="stored_images", label="stored images", digits=0, higher_is_better=None),
                Metric(key="diversity.vendi_score", label="Vendi score", digits=1),
                Metric(key="diversity.uniformity", label="uniformity", digits=3, higher_is_better=False),
                Metric(
                    key="diversity.intra_distance", label="intra-cluster distance", digits=3, higher_is_better=False
                ),
                Metric(key="diversity.inter_intra_ratio", label="inter/intra ratio", digits=3),
                Metric(key="final_accuracy", label="probe accuracy", digits=3, scale=0.01),
            ),
            note="measured on embeddings of the projector; the paper writes 'encoder embeddings'",
        ),
        Layout(
            name="table-simsiam",
            title="SimSiam as the objective",
            rows=(IID, MINRED, CLA_R, CLA_E, CLIMB),
            columns=("20 tasks", "50 tasks"),
            where=(*REGULAR, ("learner.objective", "simsiam")),
            metrics=(CA, FA),
        ),
        Layout(
            name="table-forgetting",
            title="Forgetting (negative: old tasks improved)",
            rows=(SCALE, OSIRIS_R, MINRED, CLA_R, CLA_E, CLIMB),
            columns=("20 tasks", "50 tasks", "100 tasks"),
            where=REGULAR + SIMCLR,
            metrics=(FORGETTING,),
        ),
        Layout(
            name="table-faults",
            title="What the faults of the released code cost",
            rows=_faults(),
            columns=("20 tasks",),
            where=REGULAR + SIMCLR,
            metrics=(CA, FA, CA_UPTO),
            varies=("preset", "memory"),  # the released memory outgrows its bound
        ),
    )
}


def find_layout(name: str) -> Layout:
    """The table of the paper with this name.

    >>> [row.label for row in find_layout("table-pruning").rows]
    ['Anchor', 'Selective']
    """
    if name not in LAYOUTS:
        raise unknown("layout", name, LAYOUTS)
    return LAYOUTS[name]

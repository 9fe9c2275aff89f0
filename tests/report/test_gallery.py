from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.decomposition import PCA

from climb.memory.snapshot import Group, MemorySnapshot, TierName
from climb.report import write_report
from climb.report.gallery import contact_sheet, encoded_sheets, gallery, sampled
from climb.report.memory_map import assigned_cells, principal_plane
from climb.report.page import read_memory
from climb.runs import RunFolder
from climb.runs.run_file_checks import read_object

MakeRun = Callable[..., Path]


def group(tier: TierName, centroid: int | None, n: int, *, first: int = 0, side: int = 8, dim: int = 6) -> Group:
    generator = torch.Generator().manual_seed(first)
    return Group(
        tier=tier,
        centroid=centroid,
        numbers=list(range(first, first + n)),
        images=torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=generator),
        value=None if tier == "stored" else torch.randn(dim, generator=generator),
        embeddings=torch.randn(n, dim, generator=generator),
        born=first,
        updated=first + n - 1,
    )


def page_of(memory: MemorySnapshot | None) -> ElementTree.Element:
    return ElementTree.fromstring(gallery(memory))


def picture(element: ElementTree.Element, key: str = "src") -> Image.Image:
    kind, _, data = element.attrib[key].partition(",")
    assert kind == "data:image/webp;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


TWO_TIERS = MemorySnapshot(
    seen=100,
    groups=[group("long-term", 3, 12, first=40), group("short-term", 7, 1, first=60), group("short-term", 9, 4)],
)


def test_centroids_show_images_size_and_age() -> None:
    page = page_of(TWO_TIERS)
    assert [text for heading in page.iter("h3") for text in heading.itertext()] == [
        "Long-term memory ", "1 centroid", "Short-term memory ", "2 centroids",
    ]  # fmt: skip
    sheets = [figure for figure in page.iter("figure") if figure.attrib["class"].startswith("sheet")]
    captions = ["".join(figure.find("figcaption").itertext()) for figure in sheets]  # type: ignore[union-attr]
    assert captions == ["#3 12 imagesage 60, idle 49", "#7 1 imageage 40, idle 40", "#9 4 imagesage 100, idle 97"]
    sizes = [picture(image).size for image in page.iter("img")]
    assert sizes == [(48, 16), (8, 8), (32, 8)]  # six in a row


def test_an_unknown_age_is_bounded() -> None:
    old = replace(group("long-term", 3, 12, first=40), born=None, born_before=30)
    page = page_of(MemorySnapshot(seen=2000, groups=[old, *TWO_TIERS.groups[1:]]))
    assert "#3 12 imagesolder than 1,970 images, idle 1,949" in ["".join(e.itertext()) for e in page.iter("figcaption")]


def test_names_of_tiers_are_escaped() -> None:
    nasty = replace(group("long-term", 3, 12), tier='"><b>')  # type: ignore[arg-type]
    assert '<b>"' not in gallery(MemorySnapshot(seen=100, groups=[nasty]))


def test_contact_sheet_layout_and_transparency() -> None:
    images = torch.stack([torch.full((3, 4, 4), 50 * n, dtype=torch.uint8) for n in range(5)])
    sheet = np.asarray(contact_sheet(images, columns=3))
    assert sheet[0, ::4, 0].tolist() == [0, 50, 100]
    assert sheet[4, ::4, 0].tolist() == [150, 200, 0]
    assert sheet[4, ::4, 3].tolist() == [255, 255, 0]


def test_encoded_sheets_resemble_the_images() -> None:
    smooth = (torch.linspace(0, 255, 32)[None, :, None] * torch.ones(3, 32, 32)).byte()
    ((address, width, height),) = encoded_sheets([contact_sheet(smooth[None], columns=6)])
    element = ElementTree.Element("img", {"src": address})
    found = np.asarray(picture(element).convert("RGB")).astype(float)
    assert (width, height) == (32, 32)
    assert np.abs(found - smooth.permute(1, 2, 0).numpy()).mean() < 4


def test_quality_drops_to_meet_the_budget() -> None:
    noise = [contact_sheet(group("long-term", 1, 30, side=32).images, columns=6)]
    fine = len(encoded_sheets(noise)[0][0])
    coarse = len(encoded_sheets(noise, budget=fine // 3)[0][0])
    assert coarse < fine / 2


def test_a_memory_without_centroids_has_large_sheets() -> None:
    page = page_of(MemorySnapshot(seen=1000, groups=[group("stored", None, 600)]))
    assert [picture(image).size[0] for image in page.iter("img")] == [25 * 8] * 3
    captions = ["".join(element.itertext()) for element in page.iter("figcaption")]
    assert "250 imagesfrom 250 to 499 of the stream" in captions


def test_a_large_memory_is_sampled_by_group() -> None:
    groups = [group("long-term", 1, 300), group("long-term", 2, 100), group("short-term", 3, 1)]
    assert [(len(part.images), size) for part, size in sampled(groups, most=40)] == [(29, 300), (9, 100), (1, 1)]
    assert [len(part.images) for part, _ in sampled(groups)] == [300, 100, 1]
    first, _ = sampled(groups, most=40)[0]
    assert torch.equal(first.images[1], groups[0].images[first.numbers[1]])


def test_a_missing_memory_gives_a_remark() -> None:
    assert "No images to show" in "".join(page_of(None).itertext())
    assert "No images to show" in "".join(page_of(MemorySnapshot(seen=0, groups=[])).itertext())


def test_map_shows_images_by_their_embeddings() -> None:
    page = page_of(TWO_TIERS)
    (svg,) = (svg for svg in page.iter("svg") if svg.get("class") == "map")
    frames = svg.findall("rect")
    assert sorted(frame.attrib["class"] for frame in frames) == ["frame long-term"] * 12 + ["frame short-term"] * 5
    assert len({(frame.attrib["x"], frame.attrib["y"]) for frame in frames}) == 17
    assert "image 40 of the stream, centroid #3" in [frame.findtext("title") for frame in frames]
    (image,) = svg.findall("image")
    drawn = np.asarray(picture(image, "href").convert("RGBA"))
    cell = float(frames[0].attrib["width"]) + 1
    for frame in frames:
        middle = [int(float(frame.attrib[key]) + cell / 2) for key in ("y", "x")]
        assert drawn[middle[0], middle[1], 3] == 255  # the frame contains a picture
    assert drawn[:, :, 3].mean() < 200  # the rest is transparent


def test_map_of_centroids_without_image_embeddings() -> None:
    groups = [
        Group(tier="long-term", centroid=n, numbers=[n], images=TWO_TIERS.images[:1], value=torch.eye(5)[n])
        for n in range(5)
    ]
    page = page_of(MemorySnapshot(seen=9, groups=groups))
    assert len(list(page.iter("rect"))) == 5
    assert "the first image of a centroid" in "".join(page.itertext())


def test_no_map_without_embeddings() -> None:
    bare = Group(tier="stored", centroid=None, numbers=[0, 1, 2, 3], images=TWO_TIERS.images[:4])
    page = page_of(MemorySnapshot(seen=9, groups=[bare]))
    assert not list(page.iter("svg"))
    assert "No map" in "".join(page.itertext())


def test_principal_plane_equals_pca() -> None:
    points = np.random.default_rng(0).normal(size=(200, 8)) @ np.diag([5, 3, 1, 1, 1, 1, 1, 0.1])
    plane, share = principal_plane(points)
    oracle = PCA(2).fit(points)
    assert np.abs(plane) == pytest.approx(np.abs(oracle.transform(points)), abs=1e-8)
    assert share == pytest.approx(oracle.explained_variance_ratio_.sum())
    again, _ = principal_plane(points[::-1].copy())
    assert again[::-1] == pytest.approx(plane, abs=1e-8)  # signs included


@pytest.mark.parametrize("points", [np.zeros((4, 3)), np.ones((3, 1)), np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])])
def test_identical_points_get_distinct_cells(points: np.ndarray) -> None:
    plane, share = principal_plane(points)
    assert share == 0
    assert len(set(assigned_cells(plane, 12, 8))) == len(points)


def test_cells_are_distinct_and_keep_the_order() -> None:
    plane = np.random.default_rng(0).normal(size=(900, 2))
    spots = assigned_cells(plane, 48, 27)
    there = [spot for spot in spots if spot is not None]
    assert len(there) == len(set(there)) > 600
    assert all(0 <= column < 48 and 0 <= row < 27 for column, row in there)
    kept = [place for place, spot in enumerate(spots) if spot is not None]
    columns = np.array([spot[0] for spot in there])
    assert np.corrcoef(plane[kept, 0], columns)[0, 1] > 0.9


def test_a_page_of_2500_images_stays_below_five_megabytes(make_run: MakeRun) -> None:
    """The worst case: incompressible noise, twenty tasks, a long journal."""
    journal = [
        {"batch": n, "event": "train", "objective": 1 / n, "alignment": -0.5, "stored": n, "stm_images": n % 700,
         "ltm_images": n % 1800, "stm_centroids": n % 100, "ltm_centroids": 60, "threshold": 0.2, "promoted": n,
         "merged": n, "pruned": n, "novel": n, "evicted": n, "effective_rank": n % 50, "embedding_spread": 0.9}
        for n in range(1, 5001)
    ]  # fmt: skip
    folder = make_run(journal=journal)
    result = read_object(folder / "result.json")
    result |= {"accuracy_matrix": [[12.3456789] * 20] * 20, "accuracy_upto": [1.0] * 20}
    (folder / "result.json").write_text(json.dumps(result))
    groups = [group("long-term", n, 30, first=30 * n, side=32, dim=512) for n in range(60)]
    groups += [group("short-term", 60 + n, 7, first=1800 + 7 * n, side=32, dim=512) for n in range(100)]
    memory = MemorySnapshot(seen=50_000, groups=groups)
    assert len(memory.images) == 2500
    RunFolder(folder).save_memory(memory)
    page = write_report(folder)
    assert page.stat().st_size < 5_000_000
    text = page.read_text()
    assert len(re.findall(r'<figure class="sheet', text)) == 160
    assert "2,500 of the 50,000 images" in text


def test_images_of_a_checkpoint_are_reduced(make_run: MakeRun) -> None:
    folder = make_run(result=None)
    config_path = folder / "config.json"
    config_path.write_text(config_path.read_text().replace('"method": "climb"', '"method": "er-fifo"'))
    images = torch.zeros(3, 3, 160, 160, dtype=torch.uint8)
    memory = {"images": images, "ids": torch.arange(3), "seen": 3}
    RunFolder(folder).save_checkpoint({"engine": {"memory": memory}})
    found = read_memory(folder)
    assert found is not None
    assert found.images.shape == (3, 3, 48, 48)

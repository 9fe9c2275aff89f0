"""Search: the image itself comes first, wherever one looks."""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from climb import Climb
from climb.cli import run_command
from climb.errors import InputError
from climb.export import SearchResult, embed, export, images_of, open_model, search, stored_images, write_features
from climb.export.embed import Embedded
from climb.export.search import nearest
from climb.export.search_page import copy_found, write_page
from climb.runs import RunFolder
from climb.session import learn

from .conftest import noise


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    for place, pixels in enumerate(noise(30, seed=4)):
        Image.fromarray(pixels).save(tmp_path / f"pictures/{place:02d}.png")
    return tmp_path / "pictures"


@pytest.mark.parametrize("place", ["folder", "features.npy", "features.parquet", "comparable.npy"])
def test_it_finds_the_image_itself_and_orders_the_rest(
    learned: tuple[Climb, Path], pictures: Path, tmp_path: Path, place: str
) -> None:
    learner, file = learned
    model = open_model(file, device="cpu", precision="float32")
    within = pictures
    if place != "folder":
        within = tmp_path / place
        write_features(within, embed(model, images_of(pictures, 16), comparable=place.startswith("comparable")))
    found = search(model, pictures / "17.png", within=within, top=5)
    assert found[0].path == pictures / "17.png"
    assert found[0].similarity == pytest.approx(1, abs=1e-5)
    features = learner.transform(noise(30, seed=4))
    unit = directions(directions(features) - centre_of(learner))
    order = np.argsort(-(unit @ unit[17]))[:5]
    assert [one.name for one in found] == [str(pictures / f"{row:02d}.png") for row in order]
    assert [one.similarity for one in found] == pytest.approx((unit @ unit[17])[order].tolist(), abs=1e-5)


def directions(features: np.ndarray) -> np.ndarray:
    return features / np.linalg.norm(features, axis=1, keepdims=True)


def centre_of(learner: Climb) -> np.ndarray:
    """Mean direction of the features of all stored images, of which there are fewer than 64."""
    assert learner.memory_ is not None
    stored = learner.memory_.state_dict()["images"]
    assert 2 <= len(stored) <= 64
    return directions(learner.transform(stored.permute(0, 2, 3, 1).numpy())).mean(axis=0)


def test_the_memory_and_a_folder_agree_on_similarities(
    learned: tuple[Climb, Path], pictures: Path, tmp_path: Path
) -> None:
    """The same images in the memory and as files."""
    model = open_model(learned[1], device="cpu", precision="float32")
    stored = stored_images(model)
    (tmp_path / "stored").mkdir()
    for name, pixels in zip(stored.names, stored.images, strict=True):
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(tmp_path / "stored" / f"{name}.png")
    in_memory = search(model, pictures / "17.png", top=10)
    in_folder = search(model, pictures / "17.png", within=tmp_path / "stored", top=10)
    assert [one.name for one in in_memory] == [Path(one.name).stem for one in in_folder]
    assert [one.similarity for one in in_memory] == pytest.approx([one.similarity for one in in_folder], abs=1e-5)


def test_a_folder_and_its_export_have_one_centre(pictures: Path, tmp_path: Path) -> None:
    learn(pictures, out=tmp_path / "mine", size="edge", image_size=16, budget=60, device="cpu", replay_batch=8)
    model = open_model(tmp_path / "mine", device="cpu", precision="float32")
    assert model.centre is not None
    exported = open_model(export(model, tmp_path / "export"), device="cpu", precision="float32")
    assert torch.equal(exported.centre, model.centre)  # type: ignore[arg-type]
    found = [search(one, pictures / "17.png", within=pictures, top=4) for one in (model, exported)]
    assert [one.similarity for one in found[0]] == pytest.approx([one.similarity for one in found[1]], abs=1e-6)


def test_an_old_file_without_a_centre_has_plain_cosines(encoder_file: Callable[..., Path], pictures: Path) -> None:
    model = open_model(encoder_file(), device="cpu")
    assert model.centre is None
    rows = np.concatenate([batch.features for batch in embed(model, images_of(pictures, 16))])
    cosines = directions(rows) @ directions(rows)[17]
    found = search(model, pictures / "17.png", within=pictures, top=30)
    assert [one.similarity for one in found] == pytest.approx(sorted(cosines.tolist(), reverse=True), abs=1e-5)


@pytest.mark.parametrize("name", ["features.npy", "features.parquet"])
def test_features_of_another_model_are_noticed(
    name: str, learned: tuple[Climb, Path], pictures: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    learner, file = learned
    model = open_model(file, device="cpu", precision="float32")
    write_features(tmp_path / name, embed(model, images_of(pictures, 16)))
    search(model, pictures / "17.png", within=tmp_path / name)
    assert not caplog.records
    learner.partial_fit(noise(60, seed=8)).save(tmp_path / "on.safetensors")
    search(
        open_model(tmp_path / "on.safetensors", device="cpu", precision="float32"),
        pictures / "17.png",
        within=tmp_path / name,
    )
    (record,) = caplog.records
    assert "was written by another model, or by this one before further training" in record.getMessage()
    for path in pictures.glob("*.png"):
        path.write_bytes(b"gone")
    caplog.clear()
    Image.fromarray(noise(1)[0]).save(tmp_path / "query.png")
    search(model, tmp_path / "query.png", within=tmp_path / name)
    assert not caplog.records


def test_among_equals_the_earlier_images_come_first() -> None:
    query = np.random.default_rng(0).normal(size=37).astype(np.float32)
    others = np.random.default_rng(1).normal(size=(2500, 37)).astype(np.float32)
    others[700:2300:3] = query  # more than are asked for, over several batches, at every kind of address
    batches = [
        Embedded(
            paths=[str(row) for row in range(start, min(start + 1000, 2500))], features=others[start : start + 1000]
        )
        for start in range(0, 2500, 1000)
    ]
    found = nearest(query, batches, 150)
    assert [one.name for one in found] == [str(row) for row in range(700, 700 + 450, 3)]


def test_names_that_are_not_utf8(learned: tuple[Climb, Path], pictures: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(os.fsencode(pictures) + b"/caf\xe9.png")
    (pictures / "03.png").rename(odd)
    model = open_model(learned[1], device="cpu", precision="float32")
    for within in (pictures, tmp_path / "features.npy", tmp_path / "features.parquet"):
        if within != pictures:
            write_features(within, embed(model, images_of(pictures, 16)))
        first = search(model, odd, within=within, top=1)[0]
        assert first.path is not None
        assert first.path.samefile(odd)
    page = write_page(tmp_path / "found.html", odd, [first]).read_text(encoding="utf-8")
    assert page.count(r"caf\udce9.png") >= 3
    told = subprocess.run(
        [sys.executable, "-m", "climb", "search", str(learned[1]), odd, "--in", str(pictures), "--device", "cpu"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert rb"caf\udce9.png" in told.stdout


def write_image(folder: Path, pixels: torch.Tensor) -> Path:
    Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()).save(folder / "asked.png")
    return folder / "asked.png"


def test_the_memory_of_a_saved_learner(learned: tuple[Climb, Path], tmp_path: Path) -> None:
    learner, file = learned
    model = open_model(file, device="cpu", precision="float32")
    stored = stored_images(model)
    assert learner.memory_ is not None
    assert len(stored.images) == len(stored.names) == len(learner.memory_)
    # A name says which image of the stream it was.
    numbers = [int(name.split()[1]) for name in stored.names]
    assert torch.equal(stored.images, torch.from_numpy(noise(60)[numbers]).permute(0, 3, 1, 2))
    asked = write_image(tmp_path, stored.images[9])
    first = search(model, asked)[0]
    assert (first.name, first.path) == (stored.names[9], None)
    assert first.similarity == pytest.approx(1, abs=1e-5)
    assert first.pixels is not None
    assert torch.equal(first.pixels, stored.images[9])


@pytest.mark.parametrize("method", ["er-reservoir", "minred", "cla-r"])
def test_flat_memories_too(method: str, tmp_path: Path) -> None:
    model = Climb(
        method=method, capacity=60, backbone="micro", replay_batch=8, device="cpu", precision="float32"
    ).partial_fit(noise(80))
    model.save(tmp_path / "model.safetensors")
    opened = open_model(tmp_path / "model.safetensors", device="cpu", precision="float32")
    stored = stored_images(opened)
    found = search(opened, write_image(tmp_path, stored.images[3]), top=1)
    assert found[0].name == stored.names[3]
    assert found[0].similarity == pytest.approx(1, abs=1e-5)


def test_the_memory_of_a_finished_run(run_folder: Path, tmp_path: Path) -> None:
    model = open_model(run_folder, device="cpu", precision="float32")
    content = RunFolder(run_folder).load_memory()
    assert content is not None
    found = search(model, write_image(tmp_path, content.images[0]), top=1000)
    assert len(found) == len(content.images)
    assert found[0].similarity == pytest.approx(1, abs=1e-5)
    assert {name.split("(")[1] for name in (one.name for one in found)} <= {"short-term)", "long-term)"}


def test_a_memory_kept_small_is_searched_by_the_features_of_the_full_images(
    encoder_file: Callable[..., Path], tmp_path: Path
) -> None:
    model = open_model(encoder_file(side=64), device="cpu", precision="float32")
    images = torch.from_numpy(noise(12, seed=6, side=64)).permute(0, 3, 1, 2).contiguous()
    from climb.memory.snapshot import Group, MemorySnapshot

    group = Group(
        tier="stored", centroid=None, numbers=list(range(12)), images=images, embeddings=model.features(images)
    )
    RunFolder(tmp_path).save_memory(MemorySnapshot(seen=12, groups=[group]))
    found = search(model, write_image(tmp_path, images[7]), top=1)[0]
    assert found.name == "image 7"
    assert found.similarity == pytest.approx(1, abs=1e-5)
    assert found.pixels is not None
    assert tuple(found.pixels.shape) == (3, 48, 48)


def test_the_page_and_the_copies(learned: tuple[Climb, Path], pictures: Path, tmp_path: Path) -> None:
    model = open_model(learned[1], device="cpu", precision="float32")
    asked = pictures / "03.png"
    found = search(model, asked, within=pictures, top=4)
    remembered = search(model, asked, top=2)
    page = write_page(tmp_path / "out/page.html", asked, [*found, *remembered]).read_text(encoding="utf-8")
    assert page.count('src="data:image/webp;base64,') == 7  # the image asked for, and six
    assert "://" not in page
    assert "default-src 'none'" in page  # nothing but what is inside it, whatever the names are
    assert found[1].name in page
    copies = copy_found(tmp_path / "copies", [*found, *remembered])
    assert copies[0].name == "001-1.000-03.png"
    assert copies[0].read_bytes() == asked.read_bytes()
    assert remembered[0].pixels is not None
    with Image.open(copies[4]) as image:
        assert np.array_equal(np.asarray(image), remembered[0].pixels.permute(1, 2, 0).numpy())
    assert len(list((tmp_path / "copies").iterdir())) == 6


def test_bad_requests(
    learned: tuple[Climb, Path], pictures: Path, tmp_path: Path, encoder_file: Callable[..., Path]
) -> None:
    model = open_model(learned[1], device="cpu", precision="float32")
    asked = pictures / "00.png"
    with pytest.raises(InputError, match="does not exist; give an image"):
        search(model, tmp_path / "nothing.png")
    with pytest.raises(InputError, match="is a folder; give an image"):
        search(model, pictures)
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(InputError, match="cannot be read as an image: not an image"):
        search(model, tmp_path / "text.png")
    with pytest.raises(InputError, match="top is 0; it must be at least 1"):
        search(model, asked, top=0)
    alone = open_model(encoder_file(), device="cpu", precision="float32")
    with pytest.raises(InputError, match="contains no stored images"):
        search(alone, asked)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no image to search"):
        search(model, asked, within=tmp_path / "empty")
    wide = open_model(encoder_file("vit-tiny", 16, name="wide.safetensors"), device="cpu", precision="float32")
    write_features(tmp_path / "wide.npy", embed(wide, images_of(pictures, 16)))
    with pytest.raises(InputError, match="have 192 numbers, those of this model 128"):
        search(model, asked, within=tmp_path / "wide.npy")
    found = search(model, asked, within=pictures, top=2)
    (pictures / "00.png").rename(pictures / "moved.png")
    with pytest.raises(InputError, match="does not exist any more"):
        copy_found(tmp_path / "copies", found)
    with pytest.raises(InputError, match="cannot show"):
        write_page(tmp_path / "page.html", pictures / "moved.png", found)
    with pytest.raises(InputError, match="is a file; --out must be a folder"):
        copy_found(tmp_path / "text.png", found)


def test_names_that_no_file_can_have_are_bad_input(tmp_path: Path) -> None:
    for write in (lambda path: copy_found(path, []), lambda path: write_page(path, tmp_path / "query.png", [])):
        with pytest.raises(InputError, match="null characters"):
            write("a\0b")


def test_an_image_with_the_longest_of_names_is_copied(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 125 + ".png")  # 254 bytes
    Image.new("RGB", (8, 8)).save(path)
    (copy,) = copy_found(tmp_path / "copies", [SearchResult(name=str(path), similarity=-0.5, path=path)])
    assert copy.read_bytes() == path.read_bytes()
    assert copy.name.startswith("001--0.500-ü")
    assert copy.suffix == ".png"


def test_images_inside_a_shard_have_no_file_to_show(
    learned: tuple[Climb, Path], pictures: Path, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "s.tar", "w") as shard:
        shard.add(pictures / "03.png", "03.png")
        shard.add(pictures / "04.png", "04.png")
    model = open_model(learned[1], device="cpu", precision="float32")
    found = search(model, pictures / "03.png", within=tmp_path / "s.tar", top=1)
    assert (found[0].name, found[0].path) == (f"{tmp_path / 's.tar'}#03.png", None)
    page = write_page(tmp_path / "found.html", pictures / "03.png", found).read_text(encoding="utf-8")
    assert page.count("<img") == 1  # the one asked for
    assert "s.tar#03.png" in page
    with pytest.raises(InputError, match="not a separate file"):
        copy_found(tmp_path / "copies", found)


def test_deep_greys_and_clear_places_are_shown_as_the_encoder_sees_them(tmp_path: Path) -> None:
    Image.fromarray(np.full((8, 8), 77 * 256, dtype=np.uint16)).save(tmp_path / "deep.png")
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    found = [SearchResult(name="clear.png", similarity=1.0, path=tmp_path / "clear.png")]
    page = write_page(tmp_path / "found.html", tmp_path / "deep.png", found).read_text(encoding="utf-8")
    colours = [
        Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB").getpixel((4, 4))
        for data in re.findall(r"base64,([^\"]+)", page)
    ]
    assert colours == [(77, 77, 77), (255, 255, 255)]


def test_names_with_brackets_are_printed_as_they_are(
    learned: tuple[Climb, Path], pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pictures / "03.png").rename(pictures / "[bold]cat [red].png")
    (pictures / "[").mkdir()
    (pictures / "05.png").rename(pictures / "[" / "red].png")
    code = run_command(["search", str(learned[1]), str(pictures / "04.png"), "--in", str(pictures), "--top", "40"])
    said = capsys.readouterr().out
    assert code == 0
    assert "[bold]cat [red].png" in said
    assert "[/red].png" in said


def test_features_with_nan_are_never_results() -> None:
    rows = Embedded(paths=["a", "b", "c"], features=np.array([[np.nan, 1], [1, 0], [0, 1]], np.float32))
    found = nearest(np.array([1, 0], np.float32), [rows], 3)
    assert [(one.name, one.similarity) for one in found] == [("b", 1.0), ("c", 0.0)]

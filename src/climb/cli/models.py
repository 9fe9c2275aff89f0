"""`climb embed`, `probe`, `search`, `export`: use a trained encoder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from climb.cli.options import options_of, with_settings
from climb.cli.output import OneLine, print_table
from climb.errors import InputError
from climb.files import write_json
from climb.settings.config import DataOptions, Execution

RANGE = options_of(DataOptions, only=["pixel_range"])
ARITHMETIC = options_of(Execution, only=["precision", "engine"])


@with_settings(data=RANGE, execution=ARITHMETIC)
def embed(
    model: str, images: str, /, *, out: str, comparable: bool = False, device: str = "auto", **options: Any
) -> None:
    """Write the features of images to a file, one row per image, with their paths.

    Args:
        model: a folder of climb run, climb learn or climb export, or a file of Climb.save.
        images: a folder, one image, tar shards (shards/*.tar), a video, hf:OWNER/NAME, or - for paths
            on standard input.
        out: features.npy (the paths go to features.paths.txt) or features.parquet (columns path and embedding).
        comparable: write unit vectors whose dot products are the similarities of climb search.
        device: auto, cpu, cuda, cuda:N or mps.
    """
    from climb import export as library
    from climb.export.feature_files import check_suffix, paths_beside

    target = check_suffix(out)
    opened = library.open_model(model, device=device, **options)
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        pictures = library.images_of(images, opened.saved.image_size, opened.pixel_range)
        tracked = progress.track(pictures, total=None, description="embedding")
        rows = library.write_features(target, library.embed(opened, tracked, comparable=comparable))
    beside = f" (paths: {paths_beside(target)})" if target.suffix == ".npy" else ""
    width = opened.saved.encoder.feature_dim
    print(f"{rows:,} images, {width} features each: {target}{beside}")


PROBES = {"linear": "linear", "knn": "kNN", "ridge": "ridge"}


@with_settings(data=RANGE, execution=ARITHMETIC)
def probe(
    model: str,
    images: str,
    /,
    *,
    shots: int | None = None,
    draws: int = 10,
    domains: bool | None = None,
    audit: bool = False,
    seed: int | None = None,
    out: str | None = None,
    device: str = "auto",
    **options: Any,
) -> None:
    """Train a linear, a nearest-neighbour and a ridge probe on the frozen features of labelled images.

    The same probes of the encoder that training started from, and of 8 x 8 thumbnails, stand beside them. IMAGES has a
    sub-folder for each class, or one for each domain that has one for each class; or train and test folders with those.
    Without a test folder, 20 % of each class are held out. If MODEL is a run on these images, its own test images are.

    Args:
        model: a folder of climb run, climb learn or climb export, or a file of Climb.save.
        images: folder of labelled images.
        shots: train on this many images per class, and per domain in a folder with domains (at least 1); the result is
            the mean of several draws. By default, all training images.
        draws: number of draws, with --shots (at least 1).
        domains: whether IMAGES has domains on its first level; by default, if all its folders hold the same classes.
        audit: compare encoder and start on hue, brightness, sharpness, rotation and mirroring instead; IMAGES then
            needs no labels.
        seed: seed of the split, the draws and the probe; by default the run's, on its own images, otherwise 0.
        out: also write the numbers to this JSON file.
        device: auto, cpu, cuda, cuda:N or mps.
    """
    from climb import export as library

    if audit and (shots is not None or domains is not None):
        raise InputError("--audit uses no labels; leave --shots and --domains out, or run climb probe twice")
    opened = library.open_model(model, device=device, **options)
    if audit:
        numbers = library.audit_model(opened, images, seed=seed or 0)
        _print_audit(model, images, numbers)
    else:
        numbers = library.probe(opened, images, shots=shots, draws=draws, domains=domains, seed=seed)
        _print_probe(model, images, numbers)
    if out is not None:
        write_json(Path(out), {"model": model, "images": images, **numbers})
        print(out)


def _print_probe(model: str, images: str, numbers: Mapping[str, Any]) -> None:
    """The accuracies with their standard errors, and how to read them."""
    start = numbers["start"]
    columns = {"encoder": numbers, "start": start, "gain": numbers["gain"], "thumbnails": numbers["thumbnails"]}
    rows = []
    for name, own in columns.items():
        if "linear_accuracy" in own:
            sign = "+" if name == "gain" else ""
            cells = (f"{own[f'{key}_accuracy']:{sign}.2f}{_error(own[f'{key}_error'])}" for key in PROBES)
            rows.append((name, *cells))
    rows.append(("most common class", *[f"{numbers['majority_accuracy']:.2f}{_error(numbers['majority_error'])}"] * 3))
    few = ""
    if "shots" in numbers:
        places = "class and domain" if numbers["domains"] else "class"
        few = f"; trained on {numbers['shots']} per {places}, mean of {numbers['draws']} draws"
    domains = f" in {numbers['domains']} domains" if numbers["domains"] else ""
    print(f"{model} on {images}".translate(OneLine.CONTROLS))
    print(
        f"{numbers['classes']} classes{domains}, {numbers['train_images']} training and {numbers['test_images']} test "
        f"images{few}"
    )
    print_table(("accuracy ± error", *PROBES.values()), rows, numbers=(1, 2, 3))
    print(f"start: {start['name']}" if "name" in start else f"no start: {start['missing']}")
    print(f"read the {PROBES[numbers['read']]} probe: {numbers['why']}")
    for warning in numbers["warnings"]:
        print(f"warning: {warning}")


def _print_audit(model: str, images: str, numbers: Mapping[str, Any]) -> None:
    """The accuracies by attribute with their standard errors."""
    columns = ("start", "encoder", "gain", "majority")
    rows = []
    for name, own in numbers["attributes"].items():
        cells = (f"{own[f'{c}_accuracy']:{'+' if c == 'gain' else ''}.2f}{_error(own[f'{c}_error'])}" for c in columns)
        rows.append((name, *cells))
    print(f"{model} on {images}".translate(OneLine.CONTROLS))
    print(f"ridge probe of what the pixels say, on {numbers['images']} images, half of them to test")
    print_table(("attribute", "start", "encoder", "gain", "commonest"), rows, numbers=(1, 2, 3, 4))
    print(f"start: {numbers['start']}")


def _error(value: float | None) -> str:
    return "" if value is None else f" ± {value:.2f}"


@with_settings(data=RANGE, execution=ARITHMETIC)
def search(
    model: str,
    image: str,
    /,
    *,
    within: Annotated[str, tyro.conf.arg(name="in", metavar="memory|IMAGES|FILE")] = "memory",
    top: int = 10,
    html: str | None = None,
    out: str | None = None,
    device: str = "auto",
    **options: Any,
) -> None:
    """Find the images with the most similar features to one image.

    Similarity is the cosine of features relative to the mean of the model's memory: 1 for the image itself.

    Args:
        model: a folder of climb run, climb learn or climb export, or a file of Climb.save.
        image: the query image.
        within: where to search: memory (the images that the model stores), a folder, tar shards, or a file of climb
            embed.
        top: number of images to find (at least 1).
        html: also write a self-contained page with the images to this file.
        out: also copy these images into this folder.
        device: auto, cpu, cuda, cuda:N or mps.
    """
    from climb import export as library
    from climb.export.search_page import copy_found, write_page

    opened = library.open_model(model, device=device, **options)
    matches = library.search(opened, image, within=within, top=top)
    rows = [
        (str(place), f"{match.similarity:.4f}", match.name.translate(OneLine.CONTROLS))
        for place, match in enumerate(matches, start=1)
    ]
    print_table(("", "similarity", "image"), rows, numbers=(0, 1))
    if html is not None:
        print(write_page(html, image, matches))
    if out is not None:
        copy_found(out, matches)
        print(out)


def export(
    model: str,
    /,
    *,
    format: tuple[Literal["safetensors", "onnx"], ...] = ("safetensors",),
    pixels: Literal["uint8", "float32"] = "uint8",
    out: str | None = None,
    push: str | None = None,
) -> None:
    """Write the encoder, its configuration and a model card into a folder.

    safetensors: weights under the names that timm and torchvision share, and a Python file that loads them with torch
    alone. onnx: any number of images at a time, normalisation inside, checked against torch before it is written.

    Args:
        model: a folder of climb run or climb learn, or a file of Climb.save.
        format: safetensors, onnx, or both.
        pixels: input of the ONNX file: uint8 in 0 to 255, or float32 in 0 to 1.
        out: folder to write; by default export in the model's folder, or a folder beside its file.
        push: also upload the folder to this repository (OWNER/NAME) of the Hugging Face hub; a new one is private.
    """
    from climb.export import exporter, open_model

    if push is not None:
        exporter.need_hub(push)
    folder = exporter.export(open_model(model, device="cpu", precision="float32"), out, formats=format, pixels=pixels)
    print(folder / "README.md")
    if push is not None:
        print(exporter.push(folder, push))


VERBS = ("embed", "probe", "search", "export")

"""`climb embed`: the features of images, as a file."""

from __future__ import annotations

from typing import Annotated

import tyro


def embed(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    images: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES")],
    /,
    *,
    out: str,
    device: str = "auto",
) -> None:
    """Write the features of images to a file, one row an image, with their paths.

    Args:
        model: a run's or a learner's folder, an export, or a file of Climb.save.
        images: a folder, one image, tar shards (shards/*.tar), a video, hf:OWNER/NAME, or - for paths
            on standard input.
        out: features.npy (the paths go to features.paths.txt) or features.parquet (columns path and embedding).
        device: auto, cpu, cuda, cuda:N or mps.
    """
    from climb.cli.counting import counting
    from climb.export import embed as embedded
    from climb.export import images_of, open_model, write_features
    from climb.export.feature_files import check_suffix, paths_beside

    target = check_suffix(out)
    opened = open_model(model, device=device)
    with counting("embedding", images_of(images, opened.saved.image_size)) as pictures:
        rows = write_features(target, embedded(opened, pictures))
    beside = f" (paths: {paths_beside(target)})" if target.suffix == ".npy" else ""
    width = opened.saved.encoder.feature_dim
    print(f"{rows:,} images, {width} features each: {target}{beside}")

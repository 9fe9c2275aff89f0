"""The model card: what the encoder is, how to load it with torch, timm, torchvision or onnxruntime, how good it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from climb.nets import MicroNet, ResNet, TimmModel, VisionTransformer

PROBES = (
    ("final_accuracy", "linear probe, all tasks, at the end"),
    ("continual_accuracy", "linear probe, mean over time, tasks seen so far"),
    ("knn_accuracy", "k nearest neighbours, at the end"),
    ("ridge_accuracy", "ridge classifier, at the end"),
    ("random_encoder_accuracy", "linear probe of the same network, untrained"),
)


def card(config: dict[str, Any], encoder: nn.Module, formats: Sequence[str], result: dict[str, Any] | None) -> str:
    """The text of README.md, in Markdown, with the front matter that the Hugging Face hub reads."""
    parts = [_front(), _what(config), _pictures(config)]
    if "safetensors" in formats:
        if not isinstance(encoder, TimmModel):
            parts.append(_torch(config))
        parts += [*_other_libraries(config, encoder), _climb(config)]
    if "onnx" in formats:
        parts.append(_onnx(config))
    if result is not None:
        parts.append(_figures(result))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _front() -> str:
    return """---
library_name: climb-ssl
pipeline_tag: image-feature-extraction
tags:
- self-supervised-learning
- continual-learning
- feature-extraction
---"""


def _what(config: dict[str, Any]) -> str:
    trained = config["trained"]
    by = (
        f"by `{trained['method']}` (preset `{trained['preset']}`, seed {trained['seed']}) "
        if "method" in trained
        else ""
    )
    on = f"{trained['dataset']}, a stream of {trained['tasks']} tasks" if "tasks" in trained else "a stream of images"
    return f"""# {config["architecture"]}, {config["image_size"]} px: an encoder of images

Trained {by}on {on}. No label was used. Made with climb {config["climb"]}: online continual self-supervised learning.

| | |
|---|---|
| network | `{config["architecture"]}`, {config["parameters"]:,} parameters |
| images | RGB, {config["image_size"]} x {config["image_size"]} pixels |
| features | {config["num_features"]} numbers an image, float32 |
| mean, std | {_numbers(config["mean"])}; {_numbers(config["std"])} (of values in 0 to 1) |"""


def _pictures(config: dict[str, Any]) -> str:
    side = config["image_size"]
    return f"""## Images

Take the middle square of an image and resize it to {side} x {side} pixels (bilinear, antialiased), as RGB.
Transparency is laid on white, deep greys keep their upper 8 bits, floating point counts from 0 to 1 or to 255:

```python
import numpy as np
from PIL import Image, ImageOps

image = ImageOps.exif_transpose(Image.open("image.jpg"))
if image.mode.startswith("I"):  # 16 or 32 bits
    image = Image.fromarray((np.asarray(image).astype("int64") >> 8).clip(0, 255).astype("uint8"))
elif image.mode == "F":
    values = np.nan_to_num(np.asarray(image, "float64"))
    image = Image.fromarray((values * (255 if values.max() <= 1 else 1)).clip(0, 255).astype("uint8"))
elif image.has_transparency_data:
    image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
image = ImageOps.fit(image.convert("RGB"), ({side}, {side}), Image.Resampling.BILINEAR)
images = np.asarray(image).transpose(2, 0, 1)[None]  # uint8 (1, 3, {side}, {side})
```

Features are compared by their cosine, or standardised before a classifier is trained on them."""


def _torch(config: dict[str, Any]) -> str:
    return f"""## With torch alone

`encoder.py` lies in this folder and needs torch and safetensors. It normalises the pixels itself.

```python
import torch
from encoder import load

with torch.no_grad():
    features = load()(torch.tensor(images))  # float32 (1, {config["num_features"]})
```"""


def _other_libraries(config: dict[str, Any], encoder: nn.Module) -> list[str]:
    name = config["architecture"]
    if isinstance(encoder, MicroNet):
        return ["## With timm or torchvision\n\nNeither has this small network; use `encoder.py`."]
    if isinstance(encoder, ResNet):
        small = isinstance(encoder.maxpool, nn.Identity)
        stem = (
            "model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)  # the stem for small images\n"
            "model.maxpool = torch.nn.Identity()\n"
            if small
            else ""
        )
        of_torchvision = f"model = torchvision.models.{name}()\nmodel.fc = torch.nn.Identity()\n{stem}"
        return [
            _library("timm", f'model = timm.create_model("{name}", num_classes=0)\n{stem}', config),
            _library("torchvision", of_torchvision, config),
        ]
    if isinstance(encoder, VisionTransformer):
        patch = encoder.patch_embed.proj.kernel_size[0]
        made = (
            "model = timm.create_model(\n"
            f'    "vit_tiny_patch16_224", img_size={config["image_size"]}, patch_size={patch}, num_classes=0,\n'
            '    class_token=False, global_pool="avg", fc_norm=False,\n'
            ")\n"
        )
        return [_library("timm", made, config)]
    own = name.removeprefix("timm/")
    return [
        _library("timm", f'model = timm.create_model("{own}", num_classes=0)  # img_size too, if it is fixed\n', config)
    ]


def _library(library: str, made: str, config: dict[str, Any]) -> str:
    return f"""## With {library}

The parameters have {library}'s names, all of them and no others.

```python
import {library}
import torch
from safetensors.torch import load_file

{made}model.load_state_dict(load_file("model.safetensors"), strict=True)
mean = torch.tensor({_numbers(config["mean"])}).view(3, 1, 1)
std = torch.tensor({_numbers(config["std"])}).view(3, 1, 1)
with torch.no_grad():
    features = model.eval()((torch.tensor(images) / 255 - mean) / std)
```"""


def _climb(config: dict[str, Any]) -> str:
    return f"""## With climb

```python
from climb import Climb

features = Climb.load("model.safetensors").transform(images)  # float32 (1, {config["num_features"]})
```

`partial_fit` goes on learning from these weights, with an empty memory.

On the command line this folder is a MODEL: `climb embed`, `climb probe` and `climb search` take it."""


def _onnx(config: dict[str, Any]) -> str:
    if config["onnx"]["pixels"] == "uint8":
        takes, given = "uint8 pixels in 0 to 255", "images"
    else:
        takes, given = "float32 pixels in 0 to 1", 'images.astype("float32") / 255'
    side = config["image_size"]
    return f"""## With onnxruntime

`model.onnx` takes {takes}, shape (batch, 3, {side}, {side}) with any batch, and normalises them
itself. Before it was written its features were compared to torch's on random images; the largest difference was
{config["onnx"]["difference_to_torch"]:.1e}.

```python
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
(features,) = session.run(["features"], {{"images": {given}}})  # float32 (1, {config["num_features"]})
```"""


def _figures(result: dict[str, Any]) -> str:
    rows = [f"| {meaning} | {result[key]:.2f} |" for key, meaning in PROBES if result.get(key) is not None]
    note = f" The {result['evaluated']} network was measured." if result.get("evaluated") else ""
    return "\n".join(
        [
            "## How good it is",
            "",
            f"Accuracy on the test images of {result.get('dataset', 'its dataset')}, in percent.{note}",
            "",
            "| probe | accuracy |",
            "|---|---|",
            *rows,
        ]
    )


def _numbers(values: Sequence[float]) -> str:
    return f"[{', '.join(f'{value:.6g}' for value in values)}]"

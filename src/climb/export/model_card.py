"""The model card: what the encoder is, how to load it, and its accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from climb.evaluation.metrics import ACCURACIES
from climb.nets import MicroNet, ResNet, TimmModel, VisionTransformer

PROBES = ("final_accuracy", "continual_accuracy", "knn_accuracy", "ridge_accuracy", "random_encoder_accuracy")
"""Keys of `ACCURACIES` in the table of the card."""

# The texts are format strings; their fields are those of `config.json`, and a few that `card` adds.

_HEAD = """---
library_name: climb-ssl
pipeline_tag: image-feature-extraction
tags:
- self-supervised-learning
- continual-learning
- feature-extraction
---

# {architecture}, {image_size} px: an image encoder

Trained {by}on {on}, without labels. Made with climb {climb}: online continual self-supervised learning.

| | |
|---|---|
| network | `{architecture}`, {parameters:,} parameters |
| images | RGB, {image_size} x {image_size} pixels |
| features | {num_features} float32 numbers per image |
| mean, std | {mean}; {std} (of values in 0 to 1) |

## Images

Crop the central square of an image and resize it to {image_size} x {image_size} pixels (bilinear, antialiased), as
RGB. Put transparent images on white. Scale images of more than 8 bits by {scaled}:

```python
import numpy as np
from PIL import Image, ImageOps

image = ImageOps.exif_transpose(Image.open("image.jpg"))
if image.mode[0] in "IF":  # 16 or 32 bits
    values = np.asarray(image, "float64")
    low, high = {low_high}
    values = (values.clip(low, high) - low) * (255 / (high - low)) + 0.5
    image = Image.fromarray(values.astype("uint8"))
elif image.has_transparency_data:
    image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
image = ImageOps.fit(image.convert("RGB"), ({image_size}, {image_size}), Image.Resampling.BILINEAR)
images = np.asarray(image).transpose(2, 0, 1)[None]  # uint8 (1, 3, {image_size}, {image_size})
```

Compare features by their cosine. Standardise them before you train a classifier.
"""

_TORCH = """
## With torch alone

`encoder.py` in this folder needs torch and safetensors. It normalises pixels.

```python
import torch
from encoder import load

with torch.no_grad():
    features = load()(torch.tensor(images))  # float32 (1, {num_features})
```
"""

_LIBRARY = """
## With {library}

The file has exactly the parameters of {library}'s model, under their names.

```python
import {library}
import torch
from safetensors.torch import load_file

model = {model}
model.load_state_dict(load_file("model.safetensors"), strict=True)
mean = torch.tensor({mean}).view(3, 1, 1)
std = torch.tensor({std}).view(3, 1, 1)
with torch.no_grad():
    features = model.eval()((torch.tensor(images) / 255 - mean) / std)
```
"""

_SMALL_STEM = """
model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)  # the stem for small images
model.maxpool = torch.nn.Identity()"""

_CLIMB = """
## With climb

```python
from climb import Climb

features = Climb.load("model.safetensors").transform(images)  # float32 (1, {num_features})
```

`partial_fit` continues training from these weights, with an empty memory.

On the command line, this folder is a MODEL for `climb embed`, `climb probe` and `climb search`.
"""

_ONNX = """
## With onnxruntime

`model.onnx` takes {pixels} of shape (batch, 3, {image_size}, {image_size}), with any batch size, and normalises
them. On random images its features differ from torch's by at most {onnx[difference_to_torch]:.1e}.

```python
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
(features,) = session.run(["features"], {{"images": {argument}}})  # float32 (1, {num_features})
```
"""

_PIXELS = {
    "uint8": {"pixels": "uint8 pixels in 0 to 255", "argument": "images"},
    "float32": {"pixels": "float32 pixels in 0 to 1", "argument": 'images.astype("float32") / 255'},
}


def card(config: dict[str, Any], encoder: nn.Module, formats: Sequence[str], result: dict[str, Any] | None) -> str:
    """The text of README.md in Markdown, with the front matter of the Hugging Face hub."""
    trained = config["trained"]
    by = "by `{method}` (preset `{preset}`, seed {seed}) ".format(**trained) if "method" in trained else ""
    on = "{dataset}, a stream of {tasks} tasks".format(**trained) if "tasks" in trained else "a stream of images"
    facts = {**config, "by": by, "on": on, "mean": _numbers(config["mean"]), "std": _numbers(config["std"])}
    facts |= {"scaled": "the range of each image", "low_high": "values.min(), values.max()"}
    if config.get("pixel_range") is not None:
        facts |= {"scaled": "one range for all", "low_high": "{:g}, {:g}".format(*config["pixel_range"])}
    text = _HEAD.format(**facts)
    if "safetensors" in formats:
        if not isinstance(encoder, TimmModel):
            text += _TORCH.format(**facts)
        for library, model in _models(config, encoder).items():
            text += _LIBRARY.format(**facts, library=library, model=model)
        if isinstance(encoder, MicroNet):
            text += "\n## With timm or torchvision\n\nNeither has this network; use `encoder.py`.\n"
        text += _CLIMB.format(**facts)
    if "onnx" in formats:
        text += _ONNX.format(**facts, **_PIXELS[config["onnx"]["pixels"]])
    return text if result is None else text + _figures(result)


def _models(config: dict[str, Any], encoder: nn.Module) -> dict[str, str]:
    """For each library with this network, the code that builds it."""
    name = config["architecture"].removeprefix("timm/")
    if isinstance(encoder, MicroNet):
        return {}
    if isinstance(encoder, ResNet):
        stem = _SMALL_STEM if isinstance(encoder.maxpool, nn.Identity) else ""
        return {
            "timm": f'timm.create_model("{name}", num_classes=0){stem}',
            "torchvision": f"torchvision.models.{name}()\nmodel.fc = torch.nn.Identity(){stem}",
        }
    if isinstance(encoder, VisionTransformer):
        sizes = f"img_size={config['image_size']}, patch_size={encoder.patch}"
        options = f'{sizes}, num_classes=0,\n    class_token=False, global_pool="avg", fc_norm=False'
        return {"timm": f'timm.create_model(\n    "vit_tiny_patch16_224", {options},\n)'}
    return {"timm": f'timm.create_model("{name}", num_classes=0)  # and img_size, if the model has a fixed one'}


def _figures(result: dict[str, Any]) -> str:
    shown = {key: ACCURACIES[key] for key in PROBES if result.get(key) is not None}
    rows = [f"| {accuracy.heading}: {accuracy.brief} | {result[key]:.2f} |" for key, accuracy in shown.items()]
    note = f" Measured on the {result['evaluated']} network." if result.get("evaluated") else ""
    on = f"Accuracy on the test images of {result.get('dataset', 'its dataset')}, in percent.{note}"
    return "\n".join(["", "## Accuracy", "", on, "", "| probe | accuracy |", "|---|---|", *rows, ""])


def _numbers(values: Sequence[float]) -> str:
    return f"[{', '.join(f'{value:.6g}' for value in values)}]"

"""A scenario of your own: the classes by size, rare ones last.

Run it: ``python examples/own_scenario.py``. From the command line:
``climb run folder --data FOLDER --import examples/own_scenario.py --scenario rare-last``.
"""

from __future__ import annotations

import numpy as np
import torch

from climb.streams import Images, Manifest, Stream, list_images, make_manifest, scenario


@scenario("rare-last")
def rare_last(images: Images, *, tasks: int, seed: int, validation: float = 0.1) -> Manifest:
    """Classes in tasks of equal numbers, from the most frequent classes to the rarest."""
    counts = np.bincount(images.train_labels.numpy(), minlength=images.classes)
    order = np.argsort(-counts, kind="stable")
    task_of_class = np.empty(images.classes, dtype=np.int64)
    for task, classes in enumerate(np.array_split(order, tasks)):
        task_of_class[classes] = task
    of_train, of_test = (task_of_class[labels.numpy()] for labels in (images.train_labels, images.test_labels))
    names = [f"{tasks - task} to last" for task in range(tasks)]
    return list_images("rare-last", images, of_train, of_test, names, seed=seed, validation=validation)


def main() -> None:
    """Show the stream of a few images."""
    train = torch.tensor([0] * 20 + [1] * 60 + [2] * 40 + [3] * 10)
    images = Images(train_labels=train, test_labels=torch.arange(4), classes=4)
    manifest = make_manifest("rare-last", images, tasks=2, seed=0)
    stream = Stream(manifest, images.train_labels, images.test_labels)
    for batch in stream.batches(10):
        shown = "" if batch.ends_segment is None else f", ends segment {batch.ends_segment}"
        print(f"rare-last: classes {sorted(set(train[batch.indices].tolist()))}{shown}")


if __name__ == "__main__":
    main()

"""What a memory says of itself, its reports and its bytes, must agree with what is seen of it from outside."""

from __future__ import annotations

import dataclasses

from climb.memory.check_traffic import Traffic
from climb.memory.contract import InsertReport, Memory
from climb.promise import promise

SETTLED = 3  # capacities given; some things, such as similarities, are only made when the memory has long been full


def check_report(report: InsertReport, n: int, *, before: int, after: int, fresh: int, capacity: int) -> None:
    """The report of an insert of ``n`` images, ``fresh`` of which are stored now.

    ``before`` and ``after`` are what `len` was. In a mini-batch larger than ``capacity`` an image may grow old and
    leave, for which the report has no word.
    """
    promise(isinstance(report, InsertReport), f"insert gave {type(report).__name__}; it must return an InsertReport")
    counts = dataclasses.asdict(report)
    promise(all(count >= 0 for count in counts.values()), f"negative count in the report: {report}")
    total = report.novel + report.joined + report.replaced + report.rejected
    promise(total == n, f"{n} images given, but novel + joined + replaced + rejected = {total}: {report}")
    promise(
        after - before <= report.novel + report.joined,
        f"grew by {after - before} images, but the report has {report.novel} novel and {report.joined} joined",
    )
    kept = n - report.rejected
    promise(fresh <= kept, f"{fresh} of {n} given images are stored, but the report has {report.rejected} rejected")
    if n <= capacity and not (report.evicted or report.merged or report.pruned):
        # An image can then only have made room for a later one, and nothing for the last.
        least = max(kept - report.replaced, min(kept, 1))
        promise(
            fresh >= least,
            f"only {fresh} of {n} given images are stored, and the report does not say where the others are: {report}",
        )
    _check_events(report, places=before + kept, left=before + kept - after)


def _check_events(report: InsertReport, *, places: int, left: int) -> None:
    """What is counted beside the images. From outside there is no more than a bound: centroids are not seen.

    ``left`` images, replaced ones among them, are gone; a centroid that goes takes an image with it, and so does a
    prune. A merge of two centroids may keep all images, but at no time were there more centroids than ``places``.
    """
    for name, count in (("evicted", report.evicted), ("pruned", report.pruned)):
        promise(count <= left, f"the report has {count} {name}, but {left} images left")
    promise(
        report.merged < max(places, 1),
        f"the report has {report.merged} merged, but there were {places} images, and so no more centroids",
    )
    promise(
        report.promoted <= places,
        f"the report has {report.promoted} promoted, but there were {places} images, and so no more centroids",
    )


class ByteCount:
    """`nbytes` through the traffic of one memory: enough for what it hands out, and no growth once it is full.

    How much a memory needs beside its images is not ours to say (similarities of all pairs are N x N); that it does
    not need more and more of it is. Full is one that does not store more than it ever did.
    """

    def __init__(self) -> None:
        self._stored = 0  # the most so far
        self._needed = 0  # bytes, the most while filling

    def check(self, memory: Memory, traffic: Traffic, number_bytes: int) -> None:
        """``number_bytes``: what a number of an embedding takes at least, 0 where none is handed out."""
        stored, nbytes = len(memory), memory.nbytes
        least = stored * (traffic.image_bytes + number_bytes * traffic.embedding_dim)
        what = "images and embeddings" if number_bytes else "images alone"
        promise(nbytes >= least, f"nbytes is {nbytes}, but the stored {what} take {least}")
        if stored > self._stored or traffic.made <= SETTLED * traffic.capacity:
            self._stored = max(self._stored, stored)
            self._needed = max(self._needed, nbytes)
        if memory.bounded:
            # All images and embeddings once more: the number of centroids changes, as may that of stored images.
            most = self._needed + (traffic.capacity + 1) * (traffic.image_bytes + traffic.embedding_bytes)
            promise(
                nbytes <= most,
                f"nbytes grew to {nbytes}, above {most}, with no more images stored than when it was {self._needed}",
            )

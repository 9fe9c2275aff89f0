"""What the journal of a learner says, by name: the one list that journal, trackers and metrics endpoint share."""

from __future__ import annotations

MEASURES = {
    "images": "Images learned so far.",
    "images_per_second": "Rate since the last line, waiting included.",
    "passed_over": "Images that were damaged, gigantic or unreadable, so far.",
    "dropped": "Frames of a live source that came faster than they could be learned, so far.",
    "objective": "Loss of the objective, mean since the last line.",
    "alignment": "Loss of the alignment, in the last mini-batch.",
    "embedding_spread": "Spread of the embeddings: 1 for random directions, 0 for one point.",
    "effective_rank": "Dimensions that the embeddings really use.",
    "feature_spread": "Spread of features of stored images, relative to that of the images: 0 for one point.",
    "feature_rank": "Dimensions that the encoder's features of stored images really use.",
    "view_alignment": "Squared distance of two views of a stored image, unit features: low is good.",
    "uniformity": "Log of the mean Gaussian potential of unit features of stored images: low is good, 0 is one point.",
    "drift": "Way that features of stored images moved between the last two checkpoints; 1 is that to another image.",
    "novelty_rate": "Share of images since the last line that opened a place of their own in the memory.",
    "threshold": "Cosine distance from which an image is novel.",
    "stored": "Images in the memory.",
    "occupancy": "Stored images, as a share of the most that may be stored.",
    "memory_bytes": "Bytes reserved for the memory.",
    "stm_images": "Images in the short-term memory.",
    "ltm_images": "Images in the long-term memory.",
    "stm_centroids": "Centroids in the short-term memory.",
    "ltm_centroids": "Centroids in the long-term memory.",
    "centroid_turnover": "Centroids evicted or merged since the last line, as a share of all.",
    "novel": "Images that opened a place of their own, so far.",
    "evicted": "Centroids removed to make room, so far.",
    "promoted": "Centroids that became long-term, so far.",
    "merged": "Centroids absorbed by another, so far.",
    "pruned": "Times the memory was pruned at its bound, so far.",
    "resident_bytes": "Memory of the process.",
}
"""Name and meaning of every number of a "train" line."""

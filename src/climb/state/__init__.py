"""What is written to disk and how: safetensors and JSON, atomic, versioned."""

from __future__ import annotations

from climb.state.tree import load_tree, save_tree, tree_kind

__all__ = ["load_tree", "save_tree", "tree_kind"]

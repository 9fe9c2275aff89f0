"""A trained encoder for use elsewhere."""

"""Every setting of a run: dataclasses, presets and named recipes."""

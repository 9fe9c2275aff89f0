"""What `climb methods` prints, read back."""

from __future__ import annotations

import re

Entries = dict[str, dict[str, str]]


def listings(said: str) -> tuple[Entries, Entries]:
    """The particulars of each method and of each objective, by name."""
    _, methods, objectives = re.split(r"^(?:methods|objectives)$", said, flags=re.MULTILINE)
    return _entries(methods), _entries(objectives)


def _entries(section: str) -> Entries:
    entries: Entries = {}
    for name, label, value in re.findall(r"^(\S+)? +(\w+)?  +(\S.*?) *$", section, re.MULTILINE):
        if name:
            entries[name] = {}
        entry = next(reversed(entries.values()))
        if label:
            entry[label] = value
        else:  # another line of the particular above
            last = next(reversed(entry))
            entry[last] += f" {value}"
    return entries

"""What `climb methods` prints, read back."""

from __future__ import annotations

import re

Entries = dict[str, dict[str, str]]


def listings(said: str) -> tuple[Entries, Entries, Entries]:
    """The particulars of each method, of each objective and of each network, by name."""
    _, *sections = re.split(r"^(?:methods|objectives|networks)$", said, flags=re.MULTILINE)
    methods, objectives, networks = map(_entries, sections)
    return methods, objectives, networks


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

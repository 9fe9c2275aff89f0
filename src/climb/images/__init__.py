"""Image files: find them in folders, decode them safely, make squares of them.

`climb.datasets`, `climb.sources` and `climb.export` share this package. It imports nothing of learning.
"""

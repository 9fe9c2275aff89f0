"""Decode an image file in a process of its own, and print what happened and what it took, as JSON.

python measure.py PACKAGE FILE        as users' images are decoded
python measure.py PACKAGE FILE here   without a helper process
"""

from __future__ import annotations

import json
import resource
import sys
import time
import types
from pathlib import Path


def status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def main() -> None:
    package = sys.modules["climb"] = types.ModuleType("climb")  # without torch: the peak of its import would hide ours
    package.__path__ = [sys.argv[1]]
    from climb.images.convert import center_square
    from climb.images.decode import ImageError, decode_here, decode_rgb, read_image_file
    from climb.images.helper import close_idle

    before, began = status("VmRSS"), time.process_time()
    try:
        data = read_image_file(sys.argv[2])
        if sys.argv[3:]:
            decode_here(data, 8, center_square, None, memory=float("inf"))
        else:
            decode_rgb(data, 8)
        outcome, detail = "decoded", ""
    except ImageError as error:
        outcome, detail = error.reason, error.detail
    own, seconds = status("VmHWM") - before, time.process_time() - began
    close_idle()
    helper = resource.getrusage(resource.RUSAGE_CHILDREN)
    memory = own + 1024 * helper.ru_maxrss
    seconds += helper.ru_utime + helper.ru_stime
    print(json.dumps({"outcome": outcome, "detail": detail, "memory": memory, "own": own, "seconds": seconds}))


if __name__ == "__main__":
    main()

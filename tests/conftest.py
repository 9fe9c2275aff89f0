"""What all tests, and the processes that they start, find."""

from __future__ import annotations

import os
import signal

# One thread a process: the suite runs a process per core, and two threads on one core wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, and for the processes that tests start

# A shell has its background jobs ignore Ctrl-C, and they hand that on; tests send it to the processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

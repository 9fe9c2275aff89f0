"""What all tests, and the processes that they start, find."""

from __future__ import annotations

import os
import signal

# One thread a process: the suite runs a process per core, and two threads on one core wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, and for the processes that tests start

# A shell has its background jobs ignore Ctrl-C, nohup a closed terminal, and both hand that on; tests send both.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

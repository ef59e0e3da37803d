"""Settings of every test run."""

import os

# Tiny models gain nothing from a second thread, and OpenMP threads that wait for one
# another slow each other down many times over when anything else uses the CPU.
os.environ.setdefault("OMP_NUM_THREADS", "1")

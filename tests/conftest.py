"""One thread for torch, here and in child processes: the models of the tests are so small that a second one only waits."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

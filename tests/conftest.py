"""One thread for torch, in child processes too: the models of the tests are so small that a second one only waits."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

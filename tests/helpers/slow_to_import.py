"""A module that takes a minute to import where it is asked to, as torch does on a busy machine."""

import os
import time
from pathlib import Path

BEGUN = "FALCONCAL_TEST_BEGUN"  # the file that says that the import has begun

if BEGUN in os.environ:
    Path(os.environ[BEGUN]).write_text(str(os.getpid()))
    time.sleep(60)


def work() -> None:
    """Do nothing."""

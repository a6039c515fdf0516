"""Run a study until somebody kills this process: FOLDER WORKERS SEEDS."""

import sys
from pathlib import Path

from falconcal.studies import Study, store
from falconcal.studies.events import Event
from falconcal.studies.executors.local_workers import local_executor
from falconcal.studies.runner import do_runs
from tests.helpers.paths import STRIPES
from tests.helpers.stripes import read_own

TEXT = STRIPES.read_text()
SCALED = '[methods.scaled]\nmethod = "temperature"\nbase = "falcon"\n'
CALIBRATED = TEXT.replace("[methods.dropout]", f"{SCALED}[methods.dropout]")  # before its base


def killable(seeds: int) -> Study:
    return read_own(CALIBRATED, "test", [f"seeds={seeds}"])


def say(event: Event) -> None:
    if event.kind not in ("planned", "complete"):
        print(event.kind, flush=True)


def main() -> None:
    folder, workers, seeds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    failed = do_runs(killable(seeds), folder, say, make_executor=local_executor(workers, threads=1))
    assert not failed, failed


if __name__ in ("__main__", "__mp_main__"):  # here and in the workers
    store.CHECKPOINT_MINUTES = 0.0  # a checkpoint after every step
if __name__ == "__main__":
    main()

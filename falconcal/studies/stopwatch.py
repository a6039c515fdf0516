"""How long something takes."""

import time


class Stopwatch:
    """Seconds of wall time and of processor time since it was made."""

    def __init__(self) -> None:
        self.wall, self.processors = time.perf_counter(), time.process_time()

    def read(self, what: str) -> dict[str, float]:
        """Return both, named after what was measured."""
        return {
            f"{what}_seconds": time.perf_counter() - self.wall,
            f"{what}_cpu_seconds": time.process_time() - self.processors,
        }

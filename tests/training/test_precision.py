"""bfloat16 is tried in a child process before a CPU trains in it."""

from collections.abc import Iterator

import pytest
import torch
from lightning_fabric import Fabric

from falconcal import Falcon, UserError
from falconcal.data import Dataset
from falconcal.integrations import FalconStep
from falconcal.training import precision
from falconcal.training.precision import bfloat16_works
from tests.helpers.small_data import small_network
from tests.helpers.stripes import load_stripes

ILLEGAL = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
ENDS = {
    ILLEGAL: "was ended by SIGILL",
    "raise RuntimeError('could not create a primitive')": "failed .*could not create a primitive",
    "raise SystemExit(7)": "failed .exit code 7",
    "import time; time.sleep(60)": "took more than 1 seconds",
}


@pytest.fixture(autouse=True)
def untried() -> Iterator[None]:
    """Each test tries anew, and leaves nothing that it made up."""
    precision._bfloat16_failure.cache_clear()
    yield
    precision._bfloat16_failure.cache_clear()


@pytest.fixture
def data() -> Dataset:
    return load_stripes()


@pytest.mark.end_to_end
@pytest.mark.parametrize("trial", ENDS)
def test_training_is_refused_where_the_trial_fails(
    trial: str, data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "TRIAL", trial)
    monkeypatch.setattr(precision, "TRIAL_SECONDS", 1.0 if "sleep" in trial else 60.0)
    method = Falcon(epochs=1, precision="bf16-mixed", accelerator="cpu")
    with pytest.raises(UserError, match=f'{ENDS[trial]}.*: use precision "32-true"'):
        method.fit(small_network(), data.train.batches(10), data.validation.batches())


@pytest.mark.end_to_end
def test_an_own_loop_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "TRIAL", ILLEGAL)
    model = small_network()
    optimizer = torch.optim.Adam(model.parameters())
    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    for given in ({"fabric": fabric}, {"falcon": Falcon(precision="bf16-mixed")}):
        with pytest.raises(UserError, match="SIGILL"):
            FalconStep(model, optimizer, **given)


def test_other_precisions_are_not_tried(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "TRIAL", ILLEGAL)
    method = Falcon(epochs=4, accelerator="cpu")
    method.fit(small_network(), data.train.batches(10), data.validation.batches())


@pytest.mark.end_to_end
def test_a_processor_with_bfloat16_trains_in_it(data: Dataset) -> None:
    if not bfloat16_works():
        pytest.skip("a processor without bfloat16")
    method = Falcon(epochs=4, precision="bf16-mixed", accelerator="cpu")
    model = method.fit(small_network(), data.train.batches(10), data.validation.batches())
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}

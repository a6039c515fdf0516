"""FALCON under Lightning's Trainer; these tests need the extra ``lightning``."""

from pathlib import Path
from typing import Any

import polars
import pytest
import torch
from torch import nn

from falconcal import Bounds, Falcon
from falconcal.data import Dataset
from falconcal.errors import UserError
from falconcal.metrics import (
    accuracy,
    expected_calibration_error,
    negative_log_likelihood,
)
from falconcal.models.predict import predict
from tests.helpers.small_data import small_network, stripes

lightning = pytest.importorskip("lightning.pytorch")
from falconcal.integrations.lightning import FalconModule  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("default"),  # Lightning warns of much that is none of ours
    pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning"),
]
UNIT = Bounds(0.0, 1.0)


def make_trainer(folder: Path, **options: Any) -> Any:
    usual = {"max_epochs": 4, "accelerator": "cpu", "devices": 1, "logger": False}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    rest = {"enable_checkpointing": False, "num_sanity_val_steps": 0}
    return lightning.Trainer(default_root_dir=folder, **{**usual, **quiet, **rest, **options})


def trained(
    module: FalconModule, data: Dataset, trainer: Any, size: int = 25, **options: Any
) -> nn.Module:
    torch.manual_seed(module.falcon.seed)
    train = data.train.batches(size, shuffle=True)
    trainer.fit(module, train, data.validation.batches(), **options)
    return module.model


def assert_same_weights(found: nn.Module, expected: nn.Module) -> None:
    weights = expected.state_dict()
    assert all(torch.equal(found.state_dict()[name], weights[name]) for name in weights)


CASES: list[dict[str, Any]] = [
    {},
    {"gradient": "exact"},
    {"calibration_fraction": 0.5},
    {"clip_norm": 0.1},
    {"accumulate": 2},
    {"bounds": UNIT, "dropout": 0.3},
]


@pytest.mark.parametrize("changed", CASES, ids=str)
def test_it_is_the_built_in_loop_to_the_last_bit(
    changed: dict[str, Any], tiny: Dataset, tmp_path: Path
) -> None:
    falcon = Falcon(epochs=4, **changed)
    train = tiny.train.batches(25, shuffle=True)
    expected = falcon.fit(small_network(), train, tiny.validation.batches())
    found = trained(FalconModule(small_network(), falcon), tiny, make_trainer(tmp_path))
    assert_same_weights(found, expected)


def test_loggers_are_told_the_terms_and_the_validation_figures(
    tiny: Dataset, tmp_path: Path
) -> None:
    logger = lightning.loggers.CSVLogger(tmp_path)
    trainer = make_trainer(tmp_path, logger=logger, log_every_n_steps=1)
    module = FalconModule(small_network(), Falcon(learning_rate=0.01))
    model = trained(module, tiny, trainer)
    rows = polars.read_csv(Path(logger.log_dir) / "metrics.csv", infer_schema_length=None)
    for term in ("clean/cross_entropy", "clean/entropy", "calibration/calibration"):
        assert rows[term].drop_nulls().len() == 4 * -(-len(tiny.train) // 25)
    predictions = predict(model, tiny.validation)
    for name, metric in (
        ("accuracy", accuracy),
        ("ece", expected_calibration_error),
        ("nll", negative_log_likelihood),
    ):
        values = rows[f"validation/{name}"].drop_nulls()
        assert values.len() == 4
        assert values[-1] == pytest.approx(metric(predictions), abs=1e-5)
    settings = (Path(logger.log_dir) / "hparams.yaml").read_text()
    assert "learning_rate: 0.01" in settings


def test_a_training_goes_on_from_lightnings_checkpoint(tiny: Dataset, tmp_path: Path) -> None:
    falcon = Falcon(dropout=0.0)
    keeper = lightning.callbacks.ModelCheckpoint(tmp_path, "{epoch}", save_top_k=-1)
    options: dict[str, Any] = {"enable_checkpointing": True, "callbacks": [keeper]}
    trainer = make_trainer(tmp_path, **options)
    whole = trained(FalconModule(small_network(), falcon), tiny, trainer)
    again = FalconModule(small_network(seed=9), falcon)
    resumed = trained(again, tiny, make_trainer(tmp_path), ckpt_path=tmp_path / "epoch=1.ckpt")
    assert_same_weights(resumed, whole)


@pytest.mark.end_to_end
def test_two_processes_end_where_one_does(tiny: Dataset, tmp_path: Path) -> None:
    falcon = Falcon(dropout=0.0, epsilons=(0.2,), calibration_weight=0.5)
    one = trained(FalconModule(small_network(), falcon), tiny, make_trainer(tmp_path), size=18)
    both = make_trainer(tmp_path, devices=2, strategy="ddp_spawn")
    two = trained(FalconModule(small_network(), falcon), tiny, both, size=18)
    for found, expected in zip(two.parameters(), one.parameters(), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    figure = negative_log_likelihood(predict(one, tiny.validation))
    assert float(both.callback_metrics["validation/nll"]) == pytest.approx(figure, abs=1e-4)


def test_the_optimiser_of_the_clean_step_may_be_ones_own(tiny: Dataset, tmp_path: Path) -> None:
    def frozen(weights: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(weights, lr=0.0)

    falcon = Falcon(calibration_weight=0.0)
    model = trained(FalconModule(small_network(), falcon, frozen), tiny, make_trainer(tmp_path))
    assert_same_weights(model, small_network())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"devices": 2}, r"devices is the Trainer's: give Trainer\(devices=...\)"),
        ({"precision": "bf16-mixed"}, "precision is the Trainer's"),
        ({"keep": "best"}, "its callbacks keep epochs, stop early and average"),
        ({"patience": 3}, "its callbacks keep epochs, stop early and average"),
    ],
)
def test_settings_that_the_trainer_has_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        FalconModule(small_network(), Falcon(**settings))


def test_a_plain_loader_must_have_its_bounds_stated(tmp_path: Path) -> None:
    examples = stripes(30)
    data = torch.utils.data.TensorDataset(examples.inputs, examples.labels)
    loader = torch.utils.data.DataLoader(data, batch_size=10)
    with pytest.raises(UserError, match="state it once, as bounds="):
        make_trainer(tmp_path).fit(FalconModule(small_network()), loader)
    model = small_network()
    trainer = make_trainer(tmp_path, max_epochs=1)
    trainer.fit(FalconModule(model, Falcon(bounds=UNIT)), loader)
    before = small_network().state_dict()
    assert not any(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())

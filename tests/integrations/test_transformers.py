"""FALCON under the Trainer of Hugging Face; these tests need the extra ``transformers``."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import falconcal
from falconcal import Bounds, Falcon, FalconStep
from falconcal.errors import UserError
from falconcal.metrics import METRICS
from falconcal.models.predict import predict
from falconcal.recalibration import ShiftTemperature, Temperature
from falconcal.training.precision import bfloat16_works
from tests.helpers.run_together import run_together

transformers = pytest.importorskip("transformers", reason="needs the extra transformers")
pytest.importorskip("accelerate", reason="needs the extra transformers")
from falconcal.integrations.transformers import FalconTrainer  # noqa: E402
from tests.helpers import trainer_processes  # noqa: E402

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.filterwarnings("default"),  # transformers warns of much that is none of ours
    pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning"),
]
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
WORDS, CLASSES = 30, 3
KINDS = ["bert", "vit"]


def model_of(kind: str, dropout: float = 0.0) -> Any:
    torch.manual_seed(0)
    rest = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    if kind == "bert":
        config = transformers.BertConfig(
            vocab_size=WORDS, intermediate_size=32, num_labels=CLASSES, **SMALL, **rest
        )
        return transformers.BertForSequenceClassification(config)
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, num_channels=1, intermediate_size=32, num_labels=CLASSES,
        **SMALL, **rest,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def rows_of(kind: str, count: int, seed: int = 0) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(count):
        label = number % CLASSES
        if kind == "bert":
            tokens = torch.randint(CLASSES + 1, WORDS, (6,), generator=generator)
            tokens[0], length = 1 + label, 3 + number % 4
            mask = (torch.arange(6) < length).long()
            row = {"input_ids": tokens * mask, "attention_mask": mask}
        else:
            image = 0.5 * torch.rand(1, 8, 8, generator=generator)
            image[:, :, 2 * label : 2 * label + 2] += 0.5
            row = {"pixel_values": image}
        rows.append({**row, "labels": torch.tensor(label)})
    return rows


def collated(rows: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def arguments(folder: Path, size: int = 8, epochs: int = 2, **others: Any) -> Any:
    usual = {
        "per_device_train_batch_size": size, "num_train_epochs": epochs, "learning_rate": 1e-3,
        "weight_decay": 0.0, "max_grad_norm": 0.0, "lr_scheduler_type": "constant",
        "report_to": [], "save_strategy": "no", "use_cpu": True, "disable_tqdm": True,
        "logging_strategy": "no", "train_sampling_strategy": "sequential", "optim": "adamw_torch",
    }  # fmt: skip
    return transformers.TrainingArguments(output_dir=str(folder), **{**usual, **others})


def settings(kind: str, **others: Any) -> Falcon:
    bounds = None if kind == "bert" else Bounds(0, 1)
    usual = {"epochs": 2, "entropy_weight": 2.0, "calibration_weight": 0.5, "epsilons": (0.1,)}
    return Falcon(bounds=bounds, **{**usual, **others})


def trained(
    kind: str, args: Any, falcon: Falcon | None, dropout: float = 0.0, precise: bool = False
) -> Any:
    model, rows = model_of(kind, dropout), rows_of(kind, 24)
    if precise:  # Adam makes much of the rounding of small gradients
        model = model.double()
        rows = [{name: as_double(one) for name, one in row.items()} for row in rows]
    if falcon is None:
        transformers.Trainer(model, args, train_dataset=rows, data_collator=collated).train()
    else:
        FalconTrainer(
            model, args, train_dataset=rows, data_collator=collated, falcon=falcon
        ).train()
    return model


def as_double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def largest_difference(one: nn.Module, other: nn.Module) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_with_both_weights_0_it_is_the_trainer_to_the_bit(kind: str, tmp_path: Path) -> None:
    falcon = settings(kind, entropy_weight=0.0, calibration_weight=0.0)
    args = arguments(tmp_path)
    with_falcon = trained(kind, args, falcon, dropout=0.1)
    assert largest_difference(with_falcon, trained(kind, args, None, dropout=0.1)) == 0


@pytest.mark.parametrize("gradient", ["shared", "exact"])
@pytest.mark.parametrize("kind", KINDS)
def test_its_two_steps_are_those_of_falcon_step(kind: str, gradient: Any, tmp_path: Path) -> None:
    falcon = settings(kind, gradient=gradient)
    by_trainer = trained(kind, arguments(tmp_path), falcon)
    model = model_of(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    step, rows = FalconStep(model, optimizer, falcon), rows_of(kind, 24)
    for _ in step.epochs():
        for start in range(0, 24, 8):
            step(collated(rows[start : start + 8]))
    assert largest_difference(by_trainer, model) < 1e-6
    assert largest_difference(model_of(kind), model) > 1e-3


@pytest.mark.parametrize("form", ["half_sum", "root"])
@pytest.mark.parametrize("kind", KINDS)
def test_accumulating_two_batches_is_one_of_both(kind: str, form: Any, tmp_path: Path) -> None:
    falcon = settings(kind, calibration_form=form)
    whole = trained(kind, arguments(tmp_path, 8), falcon, precise=True)
    halved = arguments(tmp_path, 4, gradient_accumulation_steps=2)
    halves = trained(kind, halved, falcon, precise=True)
    assert largest_difference(whole, halves) < 1e-6


def test_it_logs_its_terms_and_measures_calibration(tmp_path: Path) -> None:
    args = arguments(tmp_path, logging_strategy="steps", logging_steps=1, eval_strategy="epoch")
    rows = rows_of("bert", 24)
    trainer = FalconTrainer(
        model_of("bert"), args, train_dataset=rows, eval_dataset=rows, data_collator=collated,
        falcon=settings("bert"),
    )  # fmt: skip
    trainer.train()
    logged = {name for entry in trainer.state.log_history for name in entry}
    assert {"clean/loss", "clean/entropy", "calibration/calibration"} <= logged
    figures = trainer.evaluate()
    answers = predict(trainer.model, [collated(rows)])
    for name in ("accuracy", "ece", "nll", "brier", "signed_gap"):
        assert figures[f"eval_{name}"] == pytest.approx(METRICS[name](answers), abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_fit_predict_evaluate_and_calibrators_take_the_model(kind: str) -> None:
    rows = rows_of(kind, 120)
    bounds = None if kind == "bert" else Bounds(0, 1)
    batches = [collated(rows[start : start + 24]) for start in range(0, 120, 24)]
    loader = falconcal.Loader(batches, bounds=bounds)
    model = Falcon(epochs=2, bounds=bounds).fit(model_of(kind), loader, loader)
    shift = falconcal.SHIFTS["word_drop" if kind == "bert" else "contrast"]
    assert falconcal.evaluate(model, loader, [shift]).height > 0
    calibrated = Temperature().fit(model, validation=loader)
    given = {name: one for name, one in batches[0].items() if name != "labels"}
    with torch.no_grad():
        assert calibrated(**given).shape == (24, CLASSES)
    method = ShiftTemperature(perturbed={shift.name: "spread"}, stored=40)
    trusted = method.fit(model, train=loader, validation=loader)
    before, after = (predict(one, loader).log_probs.argmax(1) for one in (model, trusted))
    assert torch.equal(before, after)


def test_padding_stays_as_it_is_when_tokens_are_perturbed() -> None:
    """What stands in masked places changes nothing."""
    falcon, results = settings("bert"), []
    for filler in (0, 7):
        model = model_of("bert")
        step = FalconStep(model, torch.optim.AdamW(model.parameters()), falcon)
        batch = collated(rows_of("bert", 24))
        masked = batch["attention_mask"] == 0
        batch["input_ids"] = batch["input_ids"].masked_fill(masked, filler)
        for _ in step.epochs():
            step(copy.deepcopy(batch))
        results.append(model)
    first, second = (dict(one.named_parameters()) for one in results)
    for name in first:
        if "word_embeddings" not in name:
            torch.testing.assert_close(first[name], second[name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("falcon", "message"),
    [
        (Falcon(accumulate=2), "gradient_accumulation_steps"),
        (Falcon(l2_weight=0.1), "weight_decay"),
        (Falcon(keep="best"), "leave"),
    ],
)
def test_what_is_the_trainers_is_refused(falcon: Falcon, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        FalconTrainer(model_of("bert"), arguments(tmp_path), falcon=falcon)


@pytest.mark.parametrize(
    "config", [{"num_labels": 1}, {"problem_type": "multi_label_classification"}]
)
def test_a_model_of_another_task_is_refused(config: Any, tmp_path: Path) -> None:
    model = model_of("bert")
    model.config.update(config)
    with pytest.raises(UserError, match=r"one of several classes, got .* num_labels=\d"):
        FalconTrainer(model, arguments(tmp_path))


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """Return the weights of all trainings that two processes of torchrun did."""
    folder = tmp_path_factory.mktemp("together")
    run_together(2, "-m", "tests.helpers.trainer_processes", str(folder))
    found: dict[str, Tensor] = load_file(folder / "weights")
    assert int(found["processes"]) == 2
    return found


def weights_of(together: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {
        key.partition("/")[2]: one for key, one in together.items() if key.startswith(f"{name}/")
    }


def test_two_processes_with_both_weights_0_give_the_trainers_bits(
    together: dict[str, Tensor],
) -> None:
    plain, ours = weights_of(together, "trainer"), weights_of(together, "both weights 0")
    assert plain.keys() == ours.keys()
    assert all(torch.equal(plain[key], ours[key]) for key in plain)


@pytest.mark.parametrize("name", ["half_sum, shared", "root, exact", "accumulated"])
def test_two_processes_train_as_one_with_the_whole_batch(
    name: str, together: dict[str, Tensor], tmp_path: Path
) -> None:
    alone = trainer_processes.trained_by(name, 1, tmp_path).state_dict()
    found = weights_of(together, name)
    assert found.keys() == alone.keys()
    for key, one in alone.items():
        torch.testing.assert_close(found[key], one, atol=1e-6, rtol=0)
    plain = weights_of(together, "trainer")
    assert max(float((found[key] - plain[key]).abs().max()) for key in plain) > 1e-4


def test_half_precision_trains_both_steps_or_says_why_not(tmp_path: Path) -> None:
    if not bfloat16_works():
        pytest.skip("this processor does not compute in bfloat16")
    whole = trained("bert", arguments(tmp_path), settings("bert"))
    halved = trained("bert", arguments(tmp_path, bf16=True), settings("bert"))
    assert all(weight.dtype == torch.float32 for weight in halved.parameters())
    assert 0 < largest_difference(whole, halved) < 0.02

"""A model taken away comes back whole, or the error says what is wrong with its file."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from scipy import stats
from torch import Tensor, nn

import falconcal
from falconcal.data import Bounds
from falconcal.inference.model_metadata import FORMAT
from falconcal.io.tensors import write_tensors
from falconcal.methods import METHODS, make_method, plain_settings
from falconcal.metrics import RiskTable, risk_table
from falconcal.metrics.predictions import Predictions
from falconcal.models import MODELS, make_model
from tests.helpers.rewritten_files import rewritten
from tests.helpers.small_data import CLASSES, data_for, small_network, stripes
from tests.helpers.stripes import Columns, Scaled, Scaling, load_own

SMALL = "tests.helpers.stripes:make_small"
COLUMNS = "tests.helpers.stripes:Columns"


def save_small(file: Path, model: nn.Module | None = None, **changes: Any) -> nn.Module:
    model = model or small_network(seed=7)
    metadata = {"architecture": SMALL, "classes": CLASSES, "shape": (1, 28, 28), **changes}
    falconcal.save(model, file, **metadata)
    return model.eval()


def test_a_model_comes_back_with_its_bits_and_its_metadata(tmp_path: Path) -> None:
    file, inputs = tmp_path / "deep" / "model.safetensors", stripes(9).inputs
    method = falconcal.Falcon(epochs=3, bounds=Bounds(0.0, 1.0), directions=("gaussian",))
    model = save_small(file, bounds=Bounds(0.0, 1.0), method=method)
    random = torch.random.get_rng_state()
    saved = load_own(file)
    assert torch.equal(random, torch.random.get_rng_state())
    assert torch.equal(saved.model(inputs), model(inputs))
    assert not saved.model.training
    metadata = saved.metadata
    assert (metadata.classes, metadata.shape, metadata.bounds) == (
        CLASSES,
        (1, 28, 28),
        Bounds(0.0, 1.0),
    )
    assert metadata.version == falconcal.__version__
    assert metadata.method is not None
    assert make_method(metadata.method) == method


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", MODELS)
def test_a_name_of_the_table_is_sized_to_classes_and_shape(tmp_path: Path, name: str) -> None:
    dataset, file = data_for(name), tmp_path / "model.safetensors"
    inputs = dataset.train.inputs
    model = make_model(name, dataset, seed=5).eval()
    tokens = None if inputs.is_floating_point() else int(inputs.max()) + 1
    falconcal.save(
        model, file, name, classes=dataset.classes, shape=inputs.shape[1:], tokens=tokens
    )
    loaded = load_own(file).model
    assert type(loaded) is type(model)
    with torch.no_grad():
        assert torch.equal(loaded(inputs), model(inputs))


def test_a_factory_is_called_with_its_arguments(tmp_path: Path) -> None:
    model, file = Columns(5, 3, width=11), tmp_path / "model.safetensors"
    arguments = {"inputs": 5, "outputs": 3, "width": 11}
    falconcal.save(model, file, COLUMNS, classes=CLASSES, shape=[5], arguments=arguments)
    inputs = torch.rand(4, 5)
    assert torch.equal(load_own(file).model(inputs), model(inputs))


def test_half_precision_stays_half_and_tied_weights_stay_tied(tmp_path: Path) -> None:
    model = save_small(tmp_path / "half", small_network().half())
    loaded = load_own(tmp_path / "half").model
    assert {weight.dtype for weight in loaded.parameters()} == {torch.float16}
    for one, other in zip(loaded.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
    tied = make_tied(6)
    falconcal.save(
        tied, tmp_path / "tied", f"{__name__}:make_tied", classes=list("abcdef"), shape=[6],
        arguments={"width": 6},
    )  # fmt: skip
    back = load_own(tmp_path / "tied").model
    assert isinstance(back, nn.Sequential)
    assert back[0].weight is back[1].weight
    assert torch.equal(back.state_dict()["0.weight"], tied.state_dict()["0.weight"])


def make_tied(width: int) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
    model[1].weight = model[0].weight
    return model


def test_what_a_method_wraps_is_wrapped_again(tmp_path: Path) -> None:
    method = Scaling(base=falconcal.L2Dropout(epochs=12, learning_rate=0.01), factor=3.5)
    data = stripes(30)
    model = method.fit(small_network(), data.batches(10), data.batches())
    save_small(tmp_path / "model", model, method=method)
    saved = load_own(tmp_path / "model")
    assert isinstance(saved.model, Scaled)
    assert float(saved.model.scale) == 3.5
    assert torch.equal(saved.model(data.inputs), model(data.inputs))
    assert saved.metadata.method is not None
    assert make_method(saved.metadata.method) == method


@pytest.mark.parametrize("name", METHODS)
def test_settings_of_every_method_pass_through_json(name: str) -> None:
    method = METHODS[name]()
    assert make_method(json.loads(json.dumps(plain_settings(method)))) == method


def test_weights_that_do_not_fit_are_named_when_saving(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    with pytest.raises(falconcal.UserError, match=r"another shape: 5.bias \(4,\) for \(3,\)"):
        save_small(file, small_network(outputs=4))
    wrapped = nn.ModuleDict({"inner": small_network()})
    with pytest.raises(falconcal.UserError, match=r"missing: 2.bias.*too many: inner.2.bias"):
        save_small(file, wrapped)
    assert not file.exists()


def test_weights_that_do_not_fit_are_named_when_loading(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    arguments = {"inputs": 5, "outputs": 3}
    falconcal.save(Columns(5, 3), file, COLUMNS, classes=CLASSES, shape=[5], arguments=arguments)
    metadata = dataclasses.asdict(load_own(file).metadata)
    rewritten(file, facts={**metadata, "arguments": {"inputs": 5, "outputs": 3, "width": 9}})
    with pytest.raises(falconcal.UserError, match=r"first.weight \(8, 5\) for \(9, 5\)"):
        load_own(file)
    rewritten(file, facts={**metadata, "arguments": {"inputs": 5, "depth": 3}})
    with pytest.raises(
        falconcal.UserError, match=r"cannot make tests.helpers.stripes:Columns.*depth"
    ):
        load_own(file)


def test_a_damaged_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    save_small(file)
    whole = file.read_bytes()
    for length in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(falconcal.UserError, match="damaged, cut off"):
            load_own(file)
    with pytest.raises(falconcal.UserError, match="found none"):
        load_own(tmp_path / "none")


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    torch.save(small_network().state_dict(), file)  # a pickle
    with pytest.raises(falconcal.UserError, match="not a safetensors"):
        load_own(file)
    safetensors.torch.save_file(small_network().state_dict(), file)
    with pytest.raises(falconcal.UserError, match="it has no metadata"):
        load_own(file)
    write_tensors(file, {}, {"format": 1, "identity": "a checkpoint"})
    with pytest.raises(falconcal.UserError, match="is not a model file"):
        load_own(file)


def test_a_newer_format_says_so(tmp_path: Path) -> None:
    save_small(tmp_path / "model")
    rewritten(tmp_path / "model", format=FORMAT + 1, facts={"entirely": "different"})
    with pytest.raises(falconcal.UserError, match=f"has format {FORMAT + 1}.*install a newer"):
        load_own(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"classes": "abc"}, "classes"),
        ({"classes": ["a", "a", "b"]}, "a different name for each class"),
        ({"shape": [1, -28, 28]}, "shape"),
        ({"shape": None}, "shape"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"bounds": {"low": 1.0, "high": 0.0}}, "low below high"),
        (
            {"risks": {"thresholds": [0.5], "accepted": [3, 4], "errors": [1]}},
            "as many thresholds as counts",
        ),
        ({"mean": [0.5], "deviation": [0.0]}, "above 0"),
        ({"columns": ["a"]}, "a column for each of the 784 inputs"),
    ],
)
def test_wrong_metadata_are_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    save_small(tmp_path / "model")
    metadata = dataclasses.asdict(load_own(tmp_path / "model").metadata)
    rewritten(tmp_path / "model", facts={**metadata, **change})
    with pytest.raises(falconcal.UserError, match=f"looks damaged.*{words}"):
        load_own(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "architecture", "method"),
    [
        ("os:system", "standard library", "standard library"),
        ("subprocess:Popen", "standard library", "standard library"),
        ("builtins:exec", "standard library", "standard library"),
        ("falconcal.models:make_model", "names of its tables", "names of its tables"),
        (
            "tests.helpers.stripes:make_unannotated",
            "annotated to return one",
            "a dataclass of settings with a fit",
        ),
    ],
)
def test_a_file_calls_nothing_that_makes_no_module(
    tmp_path: Path, name: str, architecture: str, method: str
) -> None:
    file, mark = tmp_path / "model", tmp_path / "mark"
    save_small(file)
    metadata = dataclasses.asdict(load_own(file).metadata)
    rewritten(file, facts={**metadata, "architecture": name, "arguments": {"x": f"touch {mark}"}})
    with pytest.raises(falconcal.UserError, match=architecture):
        load_own(file)
    rewritten(file, facts={**metadata, "method": {"method": name, "command": f"touch {mark}"}})
    with pytest.raises(falconcal.UserError, match=method):
        load_own(file)
    assert not mark.exists()


def test_what_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(falconcal.errors.UsageError, match="JSON can hold"):
        save_small(tmp_path / "model", arguments={"inputs": torch.zeros(1)})


def test_a_name_that_is_near_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(falconcal.errors.UsageError, match="Did you mean 'lenet'"):
        save_small(tmp_path / "model", architecture="lennet")


def predictions(confidence: Tensor, correct: Tensor) -> Predictions:
    """Return two-class predictions of given confidences, right or wrong."""
    probs = torch.stack([confidence, 1 - confidence], 1)
    return Predictions.from_probabilities(probs, (~correct).long())


def test_a_risk_table_by_hand() -> None:
    # 40 examples: every twentieth is 2; the least confident four are wrong
    confidence = torch.linspace(0.99, 0.6, 40, dtype=torch.float64)
    table = risk_table(predictions(confidence, torch.arange(40) < 36))
    assert table.accepted == (*range(1, 39, 2), 40)
    assert table.errors == (*[0] * 18, 1, 4)
    for threshold, accepted in zip(table.thresholds, table.accepted, strict=True):
        assert int((confidence >= threshold).sum()) == accepted


def test_bounds_are_those_of_clopper_and_pearson_for_all_thresholds_at_once() -> None:
    table = RiskTable(thresholds=(0.9, 0.7, 0.0), accepted=(50, 80, 100), errors=(0, 3, 100))
    exact = [
        stats.binomtest(wrong, count).proportion_ci(1 - 2 * 0.05 / 20, method="exact").high
        for count, wrong in zip(table.accepted, table.errors, strict=True)
    ]
    assert table.upper_bounds() == pytest.approx(exact, abs=1e-12)
    assert table.upper_bounds()[0] == pytest.approx(1 - (0.05 / 20) ** (1 / 50))
    assert table.threshold(0.2) == 0.7
    assert table.threshold(exact[0]) == 0.9
    with pytest.raises(falconcal.UserError, match="597 accepted examples without an error"):
        table.threshold(0.01)
    with pytest.raises(falconcal.errors.UsageError, match="above 0 and below 1"):
        table.threshold(1.0)


def test_equal_confidences_are_accepted_together() -> None:
    confidence = torch.tensor([0.9] * 30 + [0.8] * 10, dtype=torch.float64)
    table = risk_table(predictions(confidence, torch.arange(40) != 35))
    assert (table.accepted, table.errors, table.considered) == ((30, 40), (0, 1), 20)
    assert 0.8 < table.thresholds[0] <= 0.9


@pytest.mark.end_to_end
def test_the_error_of_accepted_examples_is_kept_as_promised() -> None:
    """400 trials in which the true error above each threshold is known."""
    generator, broken, answered = torch.Generator().manual_seed(0), 0, 0
    for _ in range(400):
        confidence = 0.5 + 0.5 * torch.rand(400, generator=generator, dtype=torch.float64)
        correct = torch.rand(400, generator=generator, dtype=torch.float64) < confidence
        try:
            threshold = risk_table(predictions(confidence, correct)).threshold(0.2)
        except falconcal.UserError:
            continue
        answered += 1
        truth = 1 - (max(threshold, 0.5) + 1) / 2  # the mean error above the threshold
        broken += truth > 0.2
    assert answered > 300
    assert broken <= 400 * 0.05


def test_the_table_of_validation_data_travels_with_the_model(tmp_path: Path) -> None:
    data = stripes(60, 1)
    model = small_network().eval()
    found = falconcal.predict(model, data)
    save_small(tmp_path / "model", model, validation=found)
    assert load_own(tmp_path / "model").metadata.risks == risk_table(found)

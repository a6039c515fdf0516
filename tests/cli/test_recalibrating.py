"""``falconcal recalibrate``: saved and named models, every format, and what is refused."""

from pathlib import Path

import numpy
import polars
import pytest
import torch
from PIL import Image
from torch import nn

import falconcal
from falconcal.data import Bounds
from falconcal.inference.recalibrated import CALIBRATORS
from tests.helpers.bad_inputs.trying import Answer, Case, ask, snapshot
from tests.helpers.command import run_here
from tests.helpers.own_networks import Undefined, make_table_network
from tests.helpers.small_data import CLASSES, mislabelled, small_network, stripes

pytestmark = pytest.mark.end_to_end
NETWORK = "tests.helpers.own_networks:make_stripes_network"


def trained() -> nn.Module:
    data = mislabelled(90)
    method = falconcal.L2Dropout(epochs=8, learning_rate=0.02)
    return method.fit(small_network(), data.batches(30), data.batches(30))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a saved model, weights alone, and labelled data in every format."""
    folder = tmp_path_factory.mktemp("recalibrate")
    model, data = trained(), mislabelled(120, 3)
    falconcal.save(
        model, folder / "model.safetensors", NETWORK, arguments={}, classes=CLASSES,
        shape=(1, 28, 28), bounds=Bounds(0, 1), method=falconcal.L2Dropout(epochs=8),
    )  # fmt: skip
    torch.save(model.state_dict(), folder / "net.pth")
    inputs, labels = data.inputs.numpy(), data.labels.numpy()
    numpy.savez(folder / "data.npz", inputs=inputs, labels=labels)
    pixels = (255 * inputs[:, 0]).astype(numpy.uint8)
    numpy.savez(
        folder / "parts.npz", validation_inputs=pixels, validation_labels=labels,
        train_inputs=pixels[:60], train_labels=labels[:60], classes=numpy.array(CLASSES),
    )  # fmt: skip
    for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        path = folder / "photos" / CLASSES[label] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    write_rows(folder / "rows.csv")
    return folder


def write_rows(path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(150, 4, generator=generator)
    labels = make_table_network()(rows).argmax(1)
    labels[::4] = (labels[::4] + 1) % 3
    lines = [
        ",".join([CLASSES[label], *(f"{value:.4f}" for value in row)])
        for row, label in zip(rows.tolist(), labels.tolist(), strict=True)
    ]
    path.write_text("\n".join(["label,a,b,c,d", *lines]) + "\n")


def command(home: Path, *words: str, out: str = "out/t.safetensors") -> Answer:
    return ask(Case("", "", 0, "", ("recalibrate", *words, "--out", out)), home)


QUICK = ("--set", "check_families=false", "--set", "stored=60")


def test_a_saved_model_becomes_trustworthy_and_says_what_to_expect(
    home: Path, tmp_path: Path
) -> None:
    out = tmp_path / "trusted.safetensors"
    words = ("model.safetensors", "data.npz", "--train", "parts.npz", "--trust-code", "tests")
    answer = run_here(
        "recalibrate", *words, "--perturbed", "contrast,patch_shuffle", "--out", str(out),
        "--method", "shift_temperature", folder=home,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    said = " ".join(answer.stdout.split())
    order = [
        said.index(words)
        for words in (
            "under shifts that were not fitted on",  # the verdict
            "Calibration error Where Before After",
            "mean of 2 crafted shifts",
            "Real shifts that are unlike all of these were not tested.",
            "Model: ",
        )
    ]
    assert order == sorted(order)
    saved = falconcal.load(out, ["tests"])
    assert saved.metadata.method is not None
    assert saved.metadata.method["method"] == "shift_temperature"
    assert saved.metadata.method["base"]["method"] == "dropout"
    assert saved.metadata.risks is not None
    assert 0 < saved.metadata.training_examples <= 60
    raw = falconcal.load(home / "model.safetensors", ["tests"]).model
    inputs = stripes(20, 8).inputs
    with torch.no_grad():
        assert torch.equal(saved.model(inputs).argmax(1), raw(inputs).argmax(1))


@pytest.mark.parametrize("method", CALIBRATORS)
def test_every_calibrator_can_be_asked_for(method: str, home: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.safetensors"
    answer = command(
        home, "model.safetensors", "data.npz", "--trust-code", "tests", "--method", method,
        "--perturbed", "contrast", "--outliers", "uniform_noise", out=str(out),
    )  # fmt: skip
    assert answer.code == 0, answer.message
    assert falconcal.load(out, ["tests"]).metadata.method["method"] == method  # type: ignore[index]


def test_outliers_alone_do_not_stand_for_crafted_shifts(home: Path, tmp_path: Path) -> None:
    answer = run_here(
        "recalibrate", "model.safetensors", "data.npz", "--trust-code", "tests", "--method",
        "temperature", "--outliers", "uniform_noise,permuted_pixels", "--out",
        str(tmp_path / "t.safetensors"), folder=home,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    said = " ".join(answer.stdout.split())
    assert "under shifts that were not fitted on" in said
    assert "on outliers that were not fitted on" in said
    assert "crafted shifts" in said
    assert "outliers, uniform_noise" in said


def test_training_data_that_is_not_used_is_named(home: Path, tmp_path: Path) -> None:
    answer = run_here(
        "recalibrate", "model.safetensors", "data.npz", "--train", "parts.npz", "--trust-code",
        "tests", "--method", "temperature", "--out", str(tmp_path / "t.safetensors"), folder=home,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    said = " ".join(answer.stderr.split())
    assert "parts.npz is not used: Temperature keeps no training examples." in said


@pytest.mark.parametrize("data", ["data.npz", "parts.npz", "photos"])
def test_a_named_module_gives_the_same_from_every_format(
    data: str, home: Path, tmp_path: Path
) -> None:
    """Its bits come from the weights of a file; data of pictures are rounded to bytes."""
    out = tmp_path / "t.safetensors"
    shape = ("--shape", "1,28,28") if data == "photos" else ()
    bounds = ("--bounds", "0,1") if data == "data.npz" else ()
    answer = command(
        home, NETWORK, data, "--weights", "net.pth", "--method", "temperature", *shape, *bounds,
        out=str(out),
    )  # fmt: skip
    assert answer.code == 0, answer.message
    saved = falconcal.load(out, ["tests"])
    expected = falconcal.Temperature().fit(trained(), None, mislabelled(120, 3).batches(40))
    torch.testing.assert_close(
        saved.model.get_buffer("calibration.temperature"), expected.calibration.temperature,
        rtol=1e-2, atol=0,
    )  # fmt: skip
    named = ("0", "1", "2") if data == "data.npz" else CLASSES
    assert saved.metadata.classes == named


def test_a_sample_of_drifted_data_is_fitted_on_and_judged_by_its_halves(
    home: Path, tmp_path: Path
) -> None:
    drifted = mislabelled(100, 5)
    inputs = (0.6 * drifted.inputs).numpy()
    numpy.savez(tmp_path / "march.npz", inputs=inputs, labels=drifted.labels.numpy())
    command = ["recalibrate", str(home / "model.safetensors"), str(home / "data.npz")]
    options = ["--method", "temperature", "--trust-code", "tests"]
    out = [tmp_path / name for name in ("plain.safetensors", "drifted.safetensors")]
    run_here(*command, *options, "--out", str(out[0]))
    said = run_here(
        *command, *options, "--drifted", str(tmp_path / "march.npz"), "--out", str(out[1])
    )
    assert "on later data" in said.stdout
    assert "under shifts that were not fitted on" in said.stdout  # as without a sample
    plain, later = (falconcal.load(path, trust_code=("tests",)).model for path in out)
    examples = torch.from_numpy(inputs)
    assert not torch.equal(plain(examples), later(examples))
    few = drifted.first(20)
    numpy.savez(tmp_path / "few.npz", inputs=few.inputs.numpy(), labels=few.labels.numpy())
    out[1].unlink()
    said = run_here(
        *command, *options, "--drifted", str(tmp_path / "few.npz"), "--out", str(out[1])
    )
    assert "too few to say what to expect of later ones" in said.stdout


def test_rows_of_a_table_and_normalised_pixels(home: Path, tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.safetensors", tmp_path / "t.safetensors"
    table = ("tests.helpers.own_networks:make_table_network", "rows.csv", "--method", "isotonic")
    answer = command(home, *table, out=str(rows))
    assert answer.code == 0, answer.message
    assert falconcal.load(rows, ["tests"]).metadata.columns == ("a", "b", "c", "d")
    pixels = (NETWORK, "parts.npz", "--mean", "0.5", "--deviation", "0.25", *QUICK)
    answer = command(home, *pixels, "--perturbed", "contrast", out=str(out))
    assert answer.code == 0, answer.message
    method = falconcal.load(out, ["tests"]).metadata.method
    assert method is not None
    assert method["normalisation"] == [[0.5], [0.25]]


def refused(home: Path, *words: str) -> str:
    """Return the message of a request that must be refused with code 2 and leave nothing."""
    before = snapshot(home)
    answer = command(home, *words)
    assert answer.code == 2, answer
    assert snapshot(home) == before
    assert "Traceback" not in answer.message
    return answer.message


def test_bad_requests_get_a_sentence_and_leave_nothing(home: Path) -> None:
    trust = ("--trust-code", "tests")
    saved = ("model.safetensors", *trust)
    few = mislabelled(30)
    numpy.savez(home / "other.npz", inputs=few.inputs.numpy(), labels=few.labels.numpy() + 2)
    numpy.savez(home / "wide.npz", inputs=numpy.zeros((30, 1, 9, 9)), labels=few.labels.numpy())
    numpy.savez(home / "few.npz", inputs=few.inputs.numpy()[:9], labels=few.labels.numpy()[:9])
    numpy.savez(home / "bare.npz", inputs=few.inputs.numpy())
    numpy.savez(home / "none.npz", inputs=few.inputs.numpy()[:0], labels=few.labels.numpy()[:0])
    numpy.savez(home / "words.npz", inputs=few.inputs.numpy().astype(str), labels=few.labels)
    numpy.savez(home / "complex.npz", inputs=few.inputs.numpy() + 0j, labels=few.labels.numpy())
    pixels = (255 * few.inputs.numpy()).astype(numpy.uint8)
    numpy.savez(home / "small.npz", inputs=pixels[..., 1:], labels=few.labels.numpy())
    (home / "none.csv").write_text("label,a,b,c,d\n")
    numpy.savez(
        home / "renamed.npz", inputs=few.inputs.numpy(), labels=few.labels.numpy(),
        classes=numpy.array(["blue", *CLASSES[1:]]),
    )  # fmt: skip
    (home / "strange" / "blue").mkdir(parents=True, exist_ok=True)
    (home / "strange" / "left").mkdir(parents=True, exist_ok=True)
    for name in ("blue", "left"):
        Image.new("L", (28, 28)).save(home / "strange" / name / "1.png")
    cases = {
        (*saved, "other.npz"): "expected labels from 0 to 2, the classes of the model, got",
        (*saved, "wide.npz"): "expected examples as the model was saved for",
        (*saved, "few.npz"): "expected at least 5 examples of each class, got",
        (*saved, "none.npz"): "none.npz: expected labelled examples, got none",
        (*saved, "words.npz"): "words.npz: expected numbers as inputs, got dtype <U",
        (*saved, "complex.npz"): "complex.npz: expected numbers as inputs, got dtype complex",
        (*saved, "small.npz"): "or bytes (N, 28, 28, 1), got shape (30, 1, 28, 27) of uint8",
        (*saved, "renamed.npz"): "renamed.npz: the class 'blue' is not one of the model's",
        (*saved, "data.npz", "--train", "few.npz"): "few.npz: expected at least 5 examples of each",
        (*saved, "data.npz", "--train", "none.npz"): "none.npz: expected labelled examples",
        (*saved, "data.npz", "--drifted", "none.npz"): "none.npz: expected labelled examples",
        (
            "tests.helpers.own_networks:make_table_network",
            "none.csv",
        ): "none.csv: expected labelled",
        ("lenet", "data.npz"): "the network 'lenet' has no weights by itself",
        ("tests.helpers.own_networks:make_scripted", "parts.npz"): "the network, a RecursiveScript",
        (*saved, "bare.npz"): "expected the arrays inputs and labels",
        (*saved, "strange"): "the class 'blue' is not one of the model's",
        (*saved, "rows.csv"): "expected a column for each of the 784 inputs",
        (*saved, "nowhere.npz"): "no such file or folder",
        (*saved, "net.pth"): "got 'net.pth': convert it",
        ("model.safetensors", "data.npz"): "--trust-code tests",
        (*saved, "data.npz", "--method", "temprature"): "Did you mean",
        (*saved, "data.npz", "--method", "falcon"): "unknown calibrator",
        (*saved, "data.npz", "--perturbed", "wve"): "Did you mean 'wave'",
        (*saved, "data.npz", "--outliers", "nothing"): "nothing",
        (*saved, "data.npz", "--set", "base=dropout"): "expected no base",
        (*saved, "data.npz", "--set", "stored=0"): "stored",
        (*saved, "data.npz", "--weights", "net.pth"): "a saved model says all of it",
        ("nobody.nets:make", "data.npz"): "cannot import",
        ("tests.helpers.own_networks:make_nothing", "data.npz"): "to be a class of torch.nn.Module",
        ("os:system", "data.npz"): "standard library",
        (NETWORK, "data.npz", "--bounds", "0"): "the lowest and the highest value",
        (NETWORK, "photos"): "--shape 3,224,224",
        (NETWORK, "strange", "--shape", "1,28,28"): "the model has 3 outputs, the data 2 classes",
        (NETWORK, "data.npz", "--weights", "parts.npz"): "cannot read the weights",
        (NETWORK, "data.npz"): "bounds=(0, 1)",
        ("tests.helpers.own_networks:make_closed_network", "parts.npz"): "cannot be looked into",
    }
    for words, expected in cases.items():
        assert expected in refused(home, *words), words


def test_features_that_are_not_numbers_are_refused(home: Path) -> None:
    falconcal.save(
        Undefined(), home / "undefined.safetensors", "tests.helpers.own_networks:Undefined",
        arguments={}, classes=CLASSES, shape=(1, 28, 28), bounds=Bounds(0, 1),
    )  # fmt: skip
    words = ("undefined.safetensors", "data.npz", "--trust-code", "tests")
    assert "'inner' of the stored examples has NaN or infinity for" in refused(home, *words)


def test_the_output_must_be_another_file_of_the_right_kind(home: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.safetensors"
    there.write_text("a model that is at work")
    outputs = {
        "t.pth": "end in .safetensors",
        "model.safetensors": "another file",
        str(there): "is there already: name another file with --out, or remove it",
        "net.pth/t.safetensors": "net.pth is a file. Choose another file with --out",
    }
    for out, words in outputs.items():
        answer = command(home, "model.safetensors", "data.npz", "--trust-code", "tests", out=out)
        assert answer.code == 2
        assert words in answer.message
    assert there.read_text() == "a model that is at work"


def test_a_file_that_cannot_be_written_after_all_gets_a_sentence(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("falconcal.inference.recalibrated.save", full)
    out = tmp_path / "t.safetensors"
    words = ("model.safetensors", "data.npz", "--trust-code", "tests", "--method", "temperature")
    answer = command(home, *words, out=str(out))
    assert answer.code == 2
    assert f"cannot write {out}: No space left on device. Choose another" in answer.message
    assert not list(tmp_path.iterdir())


def test_classes_that_a_file_names_are_found_by_their_names(home: Path, tmp_path: Path) -> None:
    """The same examples with the classes in another order give the same bits."""
    with numpy.load(home / "data.npz") as data:
        inputs, labels = data["inputs"], data["labels"]
    numpy.savez(tmp_path / "turned.npz", inputs=inputs, labels=2 - labels, classes=CLASSES[::-1])
    found = []
    for number, data in enumerate(("data.npz", str(tmp_path / "turned.npz"))):
        out = tmp_path / f"{number}.safetensors"
        words = ("model.safetensors", data, "--trust-code", "tests", "--method", "temperature")
        assert command(home, *words, out=str(out)).code == 0
        model = falconcal.load(out, ["tests"]).model
        found.append(model.get_buffer("calibration.temperature"))
    assert torch.equal(*found)


def test_what_is_written_predicts_from_the_file_that_it_was_fitted_on(
    home: Path, tmp_path: Path
) -> None:
    """Bytes with channels last are pixels to both commands."""
    out, answers = tmp_path / "t.safetensors", tmp_path / "p.csv"
    trust = ("--trust-code", "tests")
    with numpy.load(home / "parts.npz") as parts:
        inputs, labels = parts["validation_inputs"], parts["validation_labels"]
    numpy.savez(tmp_path / "bytes.npz", inputs=inputs[..., None], labels=labels)
    words = ("model.safetensors", str(tmp_path / "bytes.npz"), "--method", "vector", *trust)
    assert command(home, *words, out=str(out)).code == 0
    run_here("predict", str(out), str(tmp_path / "bytes.npz"), "--out", str(answers), *trust)
    model = falconcal.load(out, ["tests"]).model
    with torch.no_grad():
        expected = model(torch.from_numpy(inputs / 255.0).float()[:, None]).softmax(1).amax(1)
    found = polars.read_csv(answers)["confidence"].to_torch()
    torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=0)

"""Files as other tools write them: made rows in their exact layout."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy
import polars
import pytest
import torch

from falconcal.errors import UsageError, UserError
from falconcal.inference.prediction_files import PredictionFile, read_predictions, same_examples
from falconcal.metrics.predictions import Predictions, Scores

NAMES = ("setosa", "versicolor", "virginica")
THREE = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]
TRUTH = [0, 1, 2, 2]
POSITIVE = [0.1, 0.8, 0.35, 0.9]
BINARY_TRUTH = [0, 1, 1, 1]


def lines(folder: Path, name: str, header: str | None, rows: Sequence[Sequence[object]]) -> Path:
    text = [] if header is None else [header]
    text += [",".join(map(str, row)) for row in rows]
    (folder / name).write_text("\n".join(text) + "\n")
    return folder / name


def check_three(read: PredictionFile, classes: Sequence[str] = ("0", "1", "2")) -> None:
    assert read.classes == tuple(classes)
    assert read.predictions.labels.tolist() == TRUTH
    torch.testing.assert_close(read.predictions.probs, torch.tensor(THREE, dtype=torch.float64))


def check_binary(read: PredictionFile, classes: Sequence[str] = ("0", "1")) -> None:
    assert read.classes == tuple(classes)
    assert read.predictions.labels.tolist() == BINARY_TRUTH
    assert read.predictions.probs[:, 1].tolist() == pytest.approx(POSITIVE)
    assert read.predictions.probs.sum(1).tolist() == pytest.approx([1.0] * 4)


# scikit-learn's predict_proba


def test_pandas_names_the_columns_of_an_array_by_numbers(tmp_path: Path) -> None:
    """pandas.DataFrame(model.predict_proba(x)).assign(label=y).to_csv(file): an index, too."""
    rows = [[number, *row, TRUTH[number]] for number, row in enumerate(THREE)]
    read = read_predictions(lines(tmp_path, "proba.csv", ",0,1,2,label", rows))
    check_three(read)
    assert read.found == "one probability per class in columns '0' to '2' of 3 classes"


def test_columns_named_by_model_classes(tmp_path: Path) -> None:
    """pandas.DataFrame(model.predict_proba(x), columns=model.classes_).assign(target=y)."""
    rows = [[*row, NAMES[TRUTH[number]]] for number, row in enumerate(THREE)]
    read = read_predictions(lines(tmp_path, "proba.csv", ",".join([*NAMES, "target"]), rows))
    check_three(read, NAMES)
    assert "called as the 3 labels are" in read.found


def test_numpy_text_without_names(tmp_path: Path) -> None:
    """numpy.savetxt(file, model.predict_proba(x), delimiter=","), the labels in another file."""
    file, truth = tmp_path / "proba.csv", tmp_path / "truth.csv"
    numpy.savetxt(file, numpy.array(THREE), delimiter=",")
    numpy.savetxt(truth, numpy.array(TRUTH), fmt="%d")
    check_three(read_predictions(file, truth=truth, header=False))
    with pytest.raises(UsageError, match="--no-header"):
        read_predictions(file, truth=truth)


def test_numpy_arrays_side_by_side(tmp_path: Path) -> None:
    """numpy.save("proba.npy", model.predict_proba(x)), numpy.save("truth.npy", y)."""
    numpy.save(tmp_path / "proba.npy", numpy.array(THREE))
    numpy.save(tmp_path / "truth.npy", numpy.array(TRUTH))
    read = read_predictions(tmp_path / "proba.npy", truth=tmp_path / "truth.npy")
    check_three(read)
    assert "in the same order" in read.found


def test_the_second_column_of_predict_proba(tmp_path: Path) -> None:
    """numpy.savez(file, y_true=y, y_prob=model.predict_proba(x)[:, 1])."""
    file = tmp_path / "proba.npz"
    numpy.savez(file, y_true=numpy.array(BINARY_TRUTH), y_prob=numpy.array(POSITIVE))
    check_binary(read_predictions(file))


# Kaggle


def test_a_submission_beside_its_solution_file(tmp_path: Path) -> None:
    """The solution has its rows in another order, and says which are public."""
    rows = list(zip(range(100, 104), POSITIVE, strict=True))
    submission = lines(tmp_path, "submission.csv", "id,target", rows)
    solution = [
        [100 + row, BINARY_TRUTH[row], "Public" if row % 2 else "Private"] for row in (2, 0, 3, 1)
    ]
    truth = lines(tmp_path, "solution.csv", "id,target,Usage", [*solution, [9, 1, "Private"]])
    read = read_predictions(submission, truth=truth)
    check_binary(read)
    assert "column 'target' of solution.csv, matched by 'id'" in read.found


def test_a_submission_of_many_classes(tmp_path: Path) -> None:
    classes = ["Class_1", "Class_2", "Class_3"]
    rows = [[number, *row] for number, row in enumerate(THREE)]
    submission = lines(tmp_path, "submission.csv", ",".join(["id", *classes]), rows)
    truth = lines(
        tmp_path, "solution.csv", "id,target", [[n, classes[k]] for n, k in enumerate(TRUTH)]
    )
    check_three(read_predictions(submission, truth=truth), classes)


@pytest.mark.parametrize("prefix", ["", "p_"])
def test_a_submission_beside_a_solution_of_one_column_per_class(
    prefix: str, tmp_path: Path
) -> None:
    """The solution has other rows and columns first; the class of nobody, Class_4, stays one."""
    classes = ["Class_1", "Class_2", "Class_3", "Class_4"]
    header = [prefix + name for name in classes]
    rows = [[number, *row, 0] for number, row in enumerate(THREE)]
    submission = lines(tmp_path, "submission.csv", ",".join(["id", *header]), rows)
    solution = [
        [number, *(int(place == TRUTH[number]) for place in (3, 0, 1, 2)), "Public"]
        for number in reversed(range(len(TRUTH)))
    ]
    turned = [header[3], *header[:3]]
    truth = lines(tmp_path, "solution.csv", ",".join(["id", *turned, "Usage"]), solution)
    read = read_predictions(submission, truth=truth)
    assert isinstance(read.record, Predictions)
    assert read.classes == tuple(classes)
    assert read.record.labels.tolist() == list(TRUTH)
    assert "the 4 columns of 0 and 1 of solution.csv, matched by 'id'" in read.found


ONE_HOT_MISTAKES = {
    "a share": ("0,0.5,0.5\n1,1,0\n", r"solution\.csv, line 2, column 'cat': expected 0 or 1.*0.5"),
    "two classes": ("0,1,0\n1,1,1\n", r"solution\.csv, line 3: expected one 1 .*got 2"),
    "no class": ("0,0,0\n1,1,0\n", r"solution\.csv, line 2: expected one 1 .*got 0"),
    "an empty cell": ("0,,1\n1,1,0\n", r"solution\.csv, line 2, column 'cat': .*empty"),
}


@pytest.mark.parametrize("mistake", ONE_HOT_MISTAKES)
def test_a_solution_of_classes_that_is_no_truth_is_named(mistake: str, tmp_path: Path) -> None:
    text, message = ONE_HOT_MISTAKES[mistake]
    submission = lines(tmp_path, "submission.csv", "id,cat,dog", [[0, 0.2, 0.8], [1, 0.7, 0.3]])
    (tmp_path / "solution.csv").write_text(f"id,cat,dog\n{text}")
    with pytest.raises(UserError, match=message):
        read_predictions(submission, truth=tmp_path / "solution.csv")


SOLUTION_MISTAKES = {
    "a missing identifier": ("id,target\n1,0\n", r"submission\.csv, line 3, .*'id'.*got '2'"),
    "a doubled identifier": (
        "id,target\n1,0\n1,1\n2,1\n",
        r"solution\.csv, line 3, .*got '1' again",
    ),
    "an empty label": ("id,target\n2,\n1,0\n", r"solution\.csv, line 2, column 'target': .*empty"),
    "two columns": ("id,a,b\n1,0,0\n2,1,1\n", r"solution\.csv: .*Name it with --labels"),
    "other identifiers": ("row,target\n1,0\n2,1\n3,1\n", r"2 predictions of .*got 3: .*--id"),
}


@pytest.mark.parametrize("mistake", SOLUTION_MISTAKES)
def test_a_solution_that_does_not_match_is_named(mistake: str, tmp_path: Path) -> None:
    text, message = SOLUTION_MISTAKES[mistake]
    submission = lines(tmp_path, "submission.csv", "id,target", [[1, 0.2], [2, 0.7]])
    (tmp_path / "solution.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        read_predictions(submission, truth=tmp_path / "solution.csv", probabilities="target")


# Hugging Face


def test_trainer_predict_saved_with_numpy(tmp_path: Path) -> None:
    """numpy.savez(file, predictions=output.predictions, label_ids=output.label_ids): logits."""
    file = tmp_path / "output.npz"
    logits = (numpy.log(THREE) + 2).astype(numpy.float32)
    numpy.savez(file, predictions=logits, label_ids=numpy.array(TRUTH))
    with pytest.raises(UsageError, match=r"no array 'probabilities'.*'predictions'.*--logits"):
        read_predictions(file)
    read = read_predictions(file, logits=True)
    assert read.predictions.labels.tolist() == TRUTH
    wanted = torch.tensor(THREE, dtype=torch.float64)
    torch.testing.assert_close(read.predictions.probs, wanted, atol=1e-6, rtol=0)


def test_logits_in_one_array_beside_their_labels(tmp_path: Path) -> None:
    numpy.save(tmp_path / "logits.npy", numpy.log(THREE))
    numpy.save(tmp_path / "labels.npy", numpy.array(TRUTH))
    read = read_predictions(tmp_path / "logits.npy", truth=tmp_path / "labels.npy", logits=True)
    torch.testing.assert_close(read.predictions.probs, torch.tensor(THREE, dtype=torch.float64))
    with pytest.raises(UserError, match="--logits"):
        read_predictions(tmp_path / "logits.npy", truth=tmp_path / "labels.npy")


# Evidently


def test_reference_data_of_evidently_with_many_classes(tmp_path: Path) -> None:
    """Columns target, prediction and one per class, as a column mapping names them."""
    rows = [
        [5.1, NAMES[k], NAMES[int(numpy.argmax(p))], *p] for k, p in zip(TRUTH, THREE, strict=True)
    ]
    header = ",".join(["sepal_length", "target", "prediction", *NAMES])
    check_three(read_predictions(lines(tmp_path, "reference.csv", header, rows)), NAMES)


def test_reference_data_of_evidently_with_a_probability_as_prediction(tmp_path: Path) -> None:
    rows = list(zip(BINARY_TRUTH, POSITIVE, strict=True))
    file = lines(tmp_path, "reference.csv", "target,prediction", rows)
    with pytest.raises(UsageError, match="--probabilities"):  # a prediction may be a class
        read_predictions(file)
    check_binary(read_predictions(file, probabilities="prediction"))


# NannyML


def test_reference_data_of_nannyml_with_two_classes(tmp_path: Path) -> None:
    rows = [
        [number, p, int(p > 0.5), y, "reference"]
        for number, (p, y) in enumerate(zip(POSITIVE, BINARY_TRUTH, strict=True))
    ]
    header = "identifier,y_pred_proba,y_pred,y_true,period"
    check_binary(read_predictions(lines(tmp_path, "reference.csv", header, rows)))


def test_reference_data_of_nannyml_with_many_classes(tmp_path: Path) -> None:
    cards = ("prepaid_card", "highstreet_card", "upmarket_card")
    frame = polars.DataFrame(THREE, [f"y_pred_proba_{name}" for name in cards], orient="row")
    frame = frame.with_columns(
        y_pred=polars.Series([cards[int(numpy.argmax(row))] for row in THREE]),
        y_true=polars.Series([cards[k] for k in TRUTH]),
        timestamp=polars.lit("2024-05-01"),
    )
    frame.write_parquet(tmp_path / "reference.parquet")
    check_three(read_predictions(tmp_path / "reference.parquet"), cards)


# MLflow


def test_the_data_of_an_evaluation_with_mlflow(tmp_path: Path) -> None:
    rows = [
        [int(p > 0.5), p, y, 0.25] for p, y in zip(POSITIVE, BINARY_TRUTH, strict=True)
    ]  # fmt: skip
    header = "prediction,prediction_proba,target,feature_0"
    check_binary(read_predictions(lines(tmp_path, "evaluated.csv", header, rows)))


def test_the_table_of_an_evaluation_with_mlflow(tmp_path: Path) -> None:
    """eval_results_table.json: pandas' layout "split"."""
    rows = [[[1.5], y, int(p > 0.5), p] for p, y in zip(POSITIVE, BINARY_TRUTH, strict=True)]
    table = {"columns": ["inputs", "target", "prediction", "prediction_proba"], "data": rows}
    (tmp_path / "eval_results_table.json").write_text(json.dumps(table))
    check_binary(read_predictions(tmp_path / "eval_results_table.json"))


# the forms by themselves


def test_names_of_two_classes_need_the_positive_one(tmp_path: Path) -> None:
    words = ["ham", "spam", "spam", "spam"]
    rows = list(zip(words, POSITIVE, strict=True))
    file = lines(tmp_path, "mail.csv", "label,probability", rows)
    with pytest.raises(UserError, match=r"got 'ham', 'spam': .*--positive"):
        read_predictions(file)
    check_binary(read_predictions(file, positive="spam"), ("ham", "spam"))
    named = lines(tmp_path, "named.csv", "label,p_spam", rows)
    check_binary(read_predictions(named), ("ham", "spam"))


def test_the_probability_of_class_0_alone(tmp_path: Path) -> None:
    rows = [[y, 1 - p] for p, y in zip(POSITIVE, BINARY_TRUTH, strict=True)]
    check_binary(read_predictions(lines(tmp_path, "zero.csv", "label,p_0", rows)))


def test_truth_values_are_labels_of_two_classes(tmp_path: Path) -> None:
    words = ["False", "True", "true", "TRUE"]
    rows = list(zip(words, POSITIVE, strict=True))
    check_binary(read_predictions(lines(tmp_path, "bool.csv", "y_true,y_prob", rows)))


def test_one_logit_of_two_classes(tmp_path: Path) -> None:
    logit = numpy.log(POSITIVE) - numpy.log1p(-numpy.array(POSITIVE))
    rows = list(zip(BINARY_TRUTH, logit, strict=True))
    file = lines(tmp_path, "logit.csv", "label,logit_1", rows)
    check_binary(read_predictions(file, logits=True))


def test_top_predictions_by_hand(tmp_path: Path) -> None:
    rows = [["cat", "cat", 0.8], ["dog", "cat", 0.6], ["dog", "dog", 0.9]]
    read = read_predictions(lines(tmp_path, "top.csv", "label,prediction,confidence", rows))
    assert isinstance(read.record, Scores)
    assert read.classes == ("cat", "dog")
    assert read.record.correct.tolist() == [True, False, True]
    assert read.record.confidence.tolist() == [0.8, 0.6, 0.9]
    assert read.record.top_only
    with pytest.raises(UserError, match="use record"):
        _ = read.predictions


def test_whole_numbers_are_the_same_class_with_or_without_a_fraction(tmp_path: Path) -> None:
    rows = [["2.0", "2", 0.8], ["10", "10", 0.6], ["2", "10", 0.9]]
    read = read_predictions(lines(tmp_path, "top.csv", "y_true,y_pred,confidence", rows))
    assert read.classes == ("2", "10")
    assert isinstance(read.record, Scores)
    assert read.record.correct.tolist() == [True, True, False]


def test_a_file_that_fits_two_forms_is_refused_with_both_named(tmp_path: Path) -> None:
    rows = [[0, 0, 0.8, 0.8, 0.2], [1, 0, 0.6, 0.6, 0.4]]
    file = lines(tmp_path, "both.csv", "label,prediction,confidence,p_0,p_1", rows)
    with pytest.raises(UsageError) as refused:
        read_predictions(file)
    assert "one probability per class in columns 'p_0' to 'p_1'" in str(refused.value)
    assert "the top prediction and its confidence in columns 'prediction'" in str(refused.value)
    assert "--form classes or --form top" in str(refused.value)
    assert isinstance(read_predictions(file, form="classes").record, Predictions)
    assert isinstance(read_predictions(file, form="top").record, Scores)


def test_two_columns_of_a_probability_are_refused_with_both_named(tmp_path: Path) -> None:
    file = lines(tmp_path, "both.csv", "label,y_prob,prediction_proba", [[0, 0.8, 0.8]])
    with pytest.raises(UsageError, match=r"'y_prob', and .*'prediction_proba'.*--probabilities"):
        read_predictions(file)
    assert read_predictions(file, probabilities="y_prob").classes == ("0", "1")


def test_columns_of_classes_named_one_by_one(tmp_path: Path) -> None:
    rows = [[NAMES[TRUTH[number]], *row, 7] for number, row in enumerate(THREE)]
    file = lines(tmp_path, "some.csv", ",".join(["label", *NAMES, "age"]), rows[:2])
    with pytest.raises(UserError, match="sum to 1"):  # the third class does not occur
        read_predictions(file)
    read = read_predictions(file, probabilities=",".join(NAMES))
    assert read.classes == NAMES


def test_rounded_rows_are_normalised_when_asked_for(tmp_path: Path) -> None:
    rows = [[0, 0.33, 0.33, 0.33], [1, 0.1, 0.61, 0.3]]
    file = lines(tmp_path, "rounded.csv", "label,p_0,p_1,p_2", rows)
    with pytest.raises(UserError, match=r"got 0\.99 .*rounding\? Then add --normalise"):
        read_predictions(file)
    probs = read_predictions(file, normalise=True).predictions.probs
    assert probs.sum(1).tolist() == pytest.approx([1.0, 1.0])
    assert probs[0].tolist() == pytest.approx([1 / 3] * 3)
    wrong = lines(tmp_path, "wrong.csv", "label,p_0,p_1", [[0, 0.5, 0.3]])
    with pytest.raises(UserError, match="more than rounding"):
        read_predictions(wrong, normalise=True)


# our own files


def test_the_scores_of_a_run(stored_scores: Path) -> None:
    read = read_predictions(stored_scores)
    frame = polars.read_parquet(stored_scores).filter(polars.col("shift") == "clean")
    assert read.found == "scores of a run, the clean examples"
    assert isinstance(read.record, Scores)
    assert read.record.label.tolist() == frame["label"].to_list()
    assert read.record.nll.tolist() == frame["nll"].to_list()
    shifted = read_predictions(stored_scores, shift="gaussian_noise", level=2, groups="label")
    assert len(shifted.record) == len(read.record)
    assert shifted.groups is not None
    assert set(shifted.groups) == {"0", "1", "2"}
    with pytest.raises(UsageError, match=r"no shift 'shear'.*gaussian_noise"):
        read_predictions(stored_scores, shift="shear")
    with pytest.raises(UsageError, match="no level 99"):
        read_predictions(stored_scores, shift="gaussian_noise", level=99)
    with pytest.raises(UsageError, match="outliers"):
        read_predictions(stored_scores, shift="uniform_noise")


@pytest.fixture
def stored_scores() -> Path:
    from tests.helpers.paths import FIXTURES

    return FIXTURES / "stored/run/runs/default/falcon/seed-0/scores.parquet"


PREDICTED = "row,label,confidence,entropy\n0,cat,0.8,0.5\n1,cat,0.6,0.6\n2,dog,0.9,0.3\n"


def test_labels_of_predict_are_predictions(tmp_path: Path) -> None:
    file, truth = tmp_path / "answers.csv", tmp_path / "truth.csv"
    file.write_text(PREDICTED)
    with pytest.raises(UsageError, match=r"'label' is the prediction: .*--truth"):
        read_predictions(file)
    truth.write_text("row,kind\n2,dog\n1,dog\n0,cat\n")
    read = read_predictions(file, truth=truth)
    assert isinstance(read.record, Scores)
    assert read.record.correct.tolist() == [True, False, True]


def test_the_probabilities_of_predict(tmp_path: Path) -> None:
    file = lines(
        tmp_path, "answers.csv", "row,label,confidence,entropy,p_cat,p_dog,truth",
        [[0, "cat", 0.8, 0.5, 0.8, 0.2, "cat"], [1, "cat", 0.6, 0.6, 0.6, 0.4, "dog"]],
    )  # fmt: skip
    read = read_predictions(file, labels="truth")
    assert read.classes == ("cat", "dog")
    assert read.predictions.labels.tolist() == [0, 1]
    assert read.predictions.scores().correct.tolist() == [True, False]


# several files


def test_classes_are_matched_by_name(tmp_path: Path) -> None:
    rows = [["cat", 0.9, 0.1], ["dog", 0.2, 0.8]]
    first = lines(tmp_path, "a.csv", "label,p_cat,p_dog", rows)
    second = lines(tmp_path, "b.csv", "label,p_dog,p_cat", [["cat", 0.3, 0.7], ["dog", 0.6, 0.4]])
    top = lines(
        tmp_path, "c.csv", "label,prediction,confidence", [["cat", "dog", 0.7], ["dog", "dog", 0.6]]
    )
    one, two, three = same_examples([read_predictions(file) for file in (first, second, top)])
    assert isinstance(one, Predictions)
    assert isinstance(two, Predictions)
    assert isinstance(three, Scores)
    assert two.probs.tolist() == [[0.7, 0.3], [0.4, 0.6]]
    assert one.labels.tolist() == two.labels.tolist() == three.label.tolist() == [0, 1]
    assert three.prediction.tolist() == [1, 1]


def others(change: Callable[[list[list[object]]], object], tmp_path: Path) -> list[PredictionFile]:
    rows: list[list[object]] = [[0, 0.9, 0.1], [1, 0.2, 0.8]]
    first = read_predictions(lines(tmp_path, "a.csv", "label,p_0,p_1", rows))
    change(rows)
    return [first, read_predictions(lines(tmp_path, "b.csv", "label,p_0,p_1", rows))]


def test_files_of_other_examples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"got 2 in .*a\.csv and 1 in .*b\.csv"):
        same_examples(others(lambda rows: rows.pop(), tmp_path))
    with pytest.raises(UserError, match=r"other labels in row 0"):
        same_examples(others(lambda rows: rows.reverse(), tmp_path))

"""Several processes with parts of a batch do what one does with the whole."""

import json
from dataclasses import replace
from pathlib import Path

import polars
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from falconcal import MNF, Falcon, L2Dropout
from falconcal.cli import app
from falconcal.core.distributed import settings_for_torchrun
from falconcal.core.method import innermost_method
from falconcal.errors import UsageError, UserError
from falconcal.models.predict import predict
from falconcal.studies.study import with_devices
from falconcal.training.batches import BatchSlices, accumulation_groups
from tests.helpers.evaluate_together import SIZES, loaders, scored
from tests.helpers.joined_training import found_by, plain_network, ten_steps, with_gan
from tests.helpers.paths import ROOT
from tests.helpers.run_together import run_together
from tests.helpers.small_data import small_network
from tests.helpers.stripes import TRUST, load_stripes, read_own_file

pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, torch.Tensor]]:
    """Return what each of two processes that torchrun started found in all trainings."""
    folder = tmp_path_factory.mktemp("trained")
    run_together(2, "-m", "tests.helpers.joined_training", str(folder))
    return [load_file(folder / str(rank)) for rank in range(2)]


def of_training(found: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    return {
        key.removeprefix(f"{name}/"): value
        for key, value in found.items()
        if key.startswith(f"{name}/")
    }


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("name", "of_weights", "of_terms"),
    [
        ("half_sum, shared", 1e-5, 1e-4),
        ("root, exact", 1e-5, 1e-4),
        ("uneven", 1e-12, 1e-12),  # a batch that does not divide, in double precision
    ],
)
def test_two_processes_are_one(
    trained: list[dict[str, torch.Tensor]], name: str, of_weights: float, of_terms: float
) -> None:
    alone, first, second = found_by(name, 1), *(of_training(found, name) for found in trained)
    assert alone.keys() == first.keys() == second.keys()
    for key, value in alone.items():
        assert torch.equal(first[key], second[key])
        atol, rtol = (of_terms, 0.0) if "/" in key else (of_weights, of_weights)
        torch.testing.assert_close(first[key], value, atol=atol, rtol=rtol)


@pytest.mark.end_to_end
def test_two_processes_train_a_gan_as_one(trained: list[dict[str, torch.Tensor]]) -> None:
    """The terms are those of what each process drew."""
    for found in trained:
        for name, weight in with_gan(1).named_parameters():
            torch.testing.assert_close(found[f"gan/{name}"], weight, atol=1e-4, rtol=1e-4)


@pytest.mark.end_to_end
def test_two_processes_share_the_divergence(trained: list[dict[str, torch.Tensor]]) -> None:
    """The auxiliary weights of MNF have their gradients too."""
    alone, together = found_by("flows", 1), of_training(trained[0], "flows")
    fresh = MNF(samples=3).build(small_network()).state_dict()
    for found in (alone, together):
        unmoved = [name for name, value in fresh.items() if torch.equal(value, found[name])]
        assert all(name.endswith("mask") for name in unmoved)
    # MNF estimates it with draws of each process
    torch.testing.assert_close(
        together["1/bound/divergence"], alone["1/bound/divergence"], rtol=0.05, atol=0
    )


@pytest.mark.end_to_end
def test_a_member_trains_in_two_processes(trained: list[dict[str, torch.Tensor]]) -> None:
    """Clean and moved batch in one step, with BatchNorm, which processes share."""
    for found in trained:  # 3 batches, each clean and moved
        assert found["members/members.0.3.num_batches_tracked"] == 6


@pytest.mark.end_to_end
def test_a_training_starts_its_processes_by_itself() -> None:
    alone, together = ten_steps(1), ten_steps(2)
    for one, two in zip(alone.parameters(), together.parameters(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, torch.Tensor]]:
    """Return what each of three processes found when they evaluated together."""
    folder = tmp_path_factory.mktemp("together")
    run_together(3, "-m", "tests.helpers.evaluate_together", str(folder))
    return [load_file(folder / str(rank)) for rank in range(3)]


@pytest.mark.end_to_end
@pytest.mark.parametrize("sizes", SIZES)
def test_every_process_has_the_table_of_one(
    together: list[dict[str, torch.Tensor]], sizes: str
) -> None:
    alone = scored(*SIZES[sizes])
    for found in together:
        assert torch.equal(found[sizes], alone)  # to the bit


@pytest.mark.end_to_end
def test_no_loader_makes_an_example_count_twice(together: list[dict[str, torch.Tensor]]) -> None:
    for name, loader in loaders().items():
        alone = predict(small_network(), loader)  # type: ignore[arg-type]
        for found in together:
            log_probs, labels = found[f"{name}/log_probs"], found[f"{name}/labels"]
            assert len(labels) == len(alone)
            if name == "shuffled":  # the same examples, in whatever order
                torch.testing.assert_close(log_probs.sort(0)[0], alone.log_probs.sort(0)[0])
            else:
                assert torch.equal(log_probs, alone.log_probs)
                assert torch.equal(labels, alone.labels)


@pytest.mark.end_to_end
def test_a_distributed_sampler_repeats_examples_that_are_left_out(
    together: list[dict[str, torch.Tensor]],
) -> None:
    for found in together:  # 29 examples, 30 of them in the samplers of three processes
        assert torch.equal(found["distributed/labels"], found["plain/labels"])
        torch.testing.assert_close(found["distributed/log_probs"], found["plain/log_probs"])


@pytest.mark.end_to_end
def test_a_process_may_predict_alone(together: list[dict[str, torch.Tensor]]) -> None:
    assert [len(found["alone"]) for found in together] == [4, 5, 6]


@pytest.mark.end_to_end
def test_all_stop_early_at_the_same_epoch_with_the_same_statistics(
    together: list[dict[str, torch.Tensor]],
) -> None:
    names = [name for name in together[0] if name.startswith("trained/")]
    assert "trained/1.running_mean" in names
    for found in together[1:]:
        assert all(torch.equal(found[name], together[0][name]) for name in names)


@pytest.mark.end_to_end
def test_a_mistake_in_a_process_is_told_as_if_it_had_happened_here() -> None:
    data = load_stripes()
    wrong = [(inputs, labels + 5) for inputs, labels in data.train.batches(18)]
    with pytest.raises(UserError, match="expected labels from 0 to 2") as caught:
        L2Dropout(epochs=1, devices=2, accelerator="cpu").fit(
            plain_network(), wrong, data.validation.batches()
        )
    assert "Traceback" not in str(caught.value)


SHORT = (
    "run",
    "tests/helpers/stripes.toml",
    *TRUST,
    "--set",
    "dropout.epochs=3",
    "--set",
    "falcon.epochs=3",
)
STEADY = ("--set", "dropout.dropout=0", "--set", "falcon.dropout=0")  # processes draw their own


@pytest.mark.end_to_end
def test_a_study_in_two_processes_has_the_rows_of_one(tmp_path: Path) -> None:
    alone = CliRunner().invoke(app, [*SHORT, *STEADY, "--out", str(tmp_path / "alone")])
    assert alone.exit_code == 0, alone.output
    words = [*SHORT, *STEADY, "--out", str(tmp_path / "together")]
    said = run_together(2, "-m", "falconcal", *words).stdout
    assert said.count("falcon, seed 0: measuring under shift") == 1
    assert said.count("Report: ") == 1
    rows, expected = (
        polars.read_parquet(tmp_path / folder / "rows.parquet") for folder in ("together", "alone")
    )
    assert rows.drop("value").equals(expected.drop("value"))
    assert rows["value"].to_list() == pytest.approx(expected["value"].to_list(), abs=1e-5)
    assert '"devices": 2' in (tmp_path / "together" / "study.json").read_text()
    # where it is computed does not bind: one process goes on where two have stopped
    again = CliRunner().invoke(app, [*SHORT, *STEADY, "--out", str(tmp_path / "together")])
    assert again.output.count("already complete") == 2


@pytest.mark.end_to_end
def test_a_process_that_fails_ends_all_with_one_message(tmp_path: Path) -> None:
    dataset = "dataset=tests.helpers.stripes:load_with_one_process_failing"
    words = [*SHORT, "--set", dataset, "--out", str(tmp_path / "out")]
    ended = run_together(2, "-m", "falconcal", *words, check=False)
    assert ended.returncode == 1
    assert ended.stderr.count("Error: the data of process 1 cannot be read.") == 1
    assert "RuntimeError" not in ended.stderr
    assert not (tmp_path / "out" / "rows.parquet").exists()


def test_devices_reach_every_training_of_a_study() -> None:
    study = read_own_file(
        ROOT / "tests" / "helpers" / "stripes.toml",
        ['methods.dropout.clip_norm="none"', "falcon.bounds=none"],
    )
    scaled = {"method": "temperature", "base": {"method": "falcon", "epochs": 1}}
    named = {"method": "temperature", "base": "falcon"}
    methods = {**study.methods, "scaled": scaled, "named": named}
    changed = with_devices(replace(study, methods=methods), {"devices": 2, "precision": None})
    for name in methods:
        trained = innermost_method(changed.method(name))
        assert isinstance(trained, L2Dropout | Falcon)
        assert (trained.devices, trained.precision) == (2, "32-true")
    falcon = changed.method("falcon")
    assert isinstance(falcon, Falcon)
    assert falcon.bounds is None
    assert "devices" not in methods["scaled"]["base"]


def test_torchrun_decides_how_many_processes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    started = {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    assert settings_for_torchrun({"strategy": "ddp"}) == {
        "strategy": "ddp",
        "devices": 2,
        "num_nodes": 2,
    }
    with pytest.raises(UsageError, match="for devices 2, not 3"):
        settings_for_torchrun({"devices": 3})


def test_parts_of_batches_are_the_whole() -> None:
    batches = load_stripes().train.batches(13)
    parts = [list(BatchSlices(batches, part, 3)) for part in range(3)]
    for inputs, labels in batches:
        mine = [part.pop(0) for part in parts if len(inputs) >= 3]
        if mine:
            assert torch.equal(torch.cat([labels for _, labels in mine]), labels)
    assert parts == [[], [], []]


def test_groups_hold_so_many_the_last_perhaps_fewer() -> None:
    batches = [(torch.tensor([number]), torch.tensor([0])) for number in range(5)]
    sizes = [len(group) for group in accumulation_groups(batches, 2)]
    assert json.dumps(sizes) == "[2, 2, 1]"

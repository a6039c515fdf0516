"""Several processes with parts of a batch do what one does with the whole."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import polars
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from typer.testing import CliRunner

from falconcal import Bounds, Falcon, L2Dropout
from falconcal.cli import app
from falconcal.core.distributed import settings_for_torchrun
from falconcal.core.method import innermost_method
from falconcal.errors import UsageError, UserError
from falconcal.models.predict import predict
from falconcal.studies.study import with_devices
from falconcal.training import History
from falconcal.training.batches import BatchSlices, accumulation_groups
from falconcal.training.losses import CalibrationForm
from tests.helpers.evaluate_together import SIZES, loaders, scored
from tests.helpers.joined_training import plain_network
from tests.helpers.paths import ROOT
from tests.helpers.small_data import small_network, stripes
from tests.helpers.stripes import TRUST, load_stripes, read_own_file

pytestmark = pytest.mark.filterwarnings("ignore::falconcal.training.CollapseWarning")


def ten_steps(
    devices: int,
    form: CalibrationForm = "half_sum",
    gradient: Literal["exact", "shared"] = "shared",
) -> tuple[History, nn.Module]:
    """Train ten steps of 18 examples, one epsilon for all."""
    data, history = load_stripes(), History()
    falcon = Falcon(
        epochs=2, devices=devices, accelerator="cpu", bounds=Bounds(0.0, 1.0), epsilons=(0.2,),
        calibration_weight=1.0, calibration_form=form, gradient=gradient,
    )  # fmt: skip
    with history.recording():
        model = falcon.fit(plain_network(), data.train.batches(18), data.validation.batches())
    return history, model


@pytest.mark.end_to_end
@pytest.mark.parametrize(("form", "gradient"), [("half_sum", "shared"), ("root", "exact")])
def test_two_processes_are_one(form: CalibrationForm, gradient: Literal["exact", "shared"]) -> None:
    alone, together = ten_steps(1, form, gradient), ten_steps(2, form, gradient)
    for one, two in zip(alone[1].parameters(), together[1].parameters(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)
    for first, second in zip(alone[0], together[0], strict=True):
        assert first.terms == pytest.approx(second.terms, abs=1e-4)


def uneven_steps(devices: int) -> tuple[History, nn.Module]:
    """Train on 80 examples in steps of two batches of 21, the last of 17, in double precision."""
    data, history = stripes(80), History()
    falcon = Falcon(
        epochs=2, devices=devices, accelerator="cpu", epsilons=(0.2,), calibration_weight=1.0,
        l2_weight=0.01, accumulate=2, precision="64-true",
    )  # fmt: skip
    with history.recording():
        model = falcon.fit(plain_network(), data.batches(21), data.batches())
    return history, model


@pytest.mark.end_to_end
def test_two_processes_are_one_where_a_batch_does_not_divide() -> None:
    alone, together = uneven_steps(1), uneven_steps(2)
    for one, two in zip(alone[1].parameters(), together[1].parameters(), strict=True):
        torch.testing.assert_close(one, two, atol=1e-12, rtol=1e-12)
    for first, second in zip(alone[0], together[0], strict=True):
        assert first.terms == pytest.approx(second.terms, abs=1e-12)


@pytest.mark.end_to_end
def test_torchrun_starts_them_too(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\n"
        "from safetensors.torch import save_file\n"
        "from tests.training.test_processes import ten_steps\n"
        "torch.set_num_threads(1)\n"
        "_, model = ten_steps(2)\n"
        f"save_file(model.state_dict(), r'{tmp_path}/' + __import__('os').environ['RANK'])\n"
    )
    run_together(2, str(script))
    first, second = load_file(tmp_path / "0"), load_file(tmp_path / "1")
    for name, weight in ten_steps(1)[1].state_dict().items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], weight, atol=1e-5, rtol=1e-5)


def run_together(count: int, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a module or script in processes that torchrun starts."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={count}",
               "--standalone", *words]  # fmt: skip
    for _ in range(3):
        done = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=120,
            cwd=ROOT,
        )  # fmt: skip
        if "address already in use" not in done.stderr.lower():
            break  # else another test took the free port that torchrun had found
    assert done.returncode == 0 or not check, done.stderr
    return done


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

"""What a sweep's runs leave behind, which of them go on, and what launchers are given that nobody gave."""

import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from nerf.cli import job, sweeps
from nerf.cli.sweeps import FAILED, FINISHED, RUNNING, STOPPED, Launch, Outcome, SweptRun, swept_runs, taken_up
from nerf.cli.train import TrainScriptConfig
from nerf.config.schema import DatasetConfig
from nerf.errors import UserError
from nerf.runs.archive import MODEL_FILE, PREVIOUS_FILE, RESUME_FILE

LAUNCH = Launch("now", "joblib")


def left(folder: Path, state: str, *files: str, **facts: object) -> Path:
    """A run's folder with its outcome and empty files."""
    folder.mkdir(parents=True, exist_ok=True)
    replace(Outcome("now", 0, ["seed=1"], state), **facts).write(folder)
    for name in files:
        (folder / name).touch()
    return folder


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path) -> None:
    outcome = Outcome("now", 3, ["seed=1", "dataset=lego"], FAILED, "no scene", "GPU-12")
    outcome.write(tmp_path)
    assert sweeps.read_outcome(tmp_path) == outcome and outcome.process == os.getpid()
    (tmp_path / sweeps.OUTCOME).write_text('{"launch": "now"')
    assert sweeps.read_outcome(tmp_path) is None


def test_a_run_that_is_done_is_not_done_again(tmp_path: Path) -> None:
    run = left(tmp_path, FINISHED, MODEL_FILE, RESUME_FILE, "metrics.json")
    assert taken_up(TrainScriptConfig(), run, ["seed=1", "hydra.launcher.n_jobs=3", "log=none"]) is None
    assert taken_up(replace(TrainScriptConfig(), overwrite=True), run, ["seed=1"]).resume is None


def test_a_run_that_was_not_scored_is_not_done(tmp_path: Path) -> None:
    run = left(tmp_path, FINISHED, MODEL_FILE, RESUME_FILE)
    assert taken_up(TrainScriptConfig(), run, ["seed=1"]).resume == str(run)


@pytest.mark.parametrize("kept", [RESUME_FILE, PREVIOUS_FILE])
@pytest.mark.parametrize("state", [RUNNING, STOPPED, FAILED])
def test_a_run_that_was_stopped_goes_on_from_its_checkpoint(tmp_path: Path, state: str, kept: str) -> None:
    run = left(tmp_path, state, MODEL_FILE, kept)
    assert taken_up(TrainScriptConfig(), run, ["seed=1"]).resume == str(run)


def test_a_run_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    config = taken_up(TrainScriptConfig(), left(tmp_path, STOPPED, MODEL_FILE), ["seed=1"])
    assert config.resume is None and config.overwrite
    assert not taken_up(TrainScriptConfig(), tmp_path / "new", ["seed=1"]).overwrite


def test_the_run_of_other_settings_is_kept(tmp_path: Path) -> None:
    run = left(tmp_path, FINISHED, MODEL_FILE, "metrics.json")
    with pytest.raises(UserError, match=r"contains the run of seed=1.*hydra\.sweep\.dir.*overwrite=true"):
        taken_up(TrainScriptConfig(), run, ["seed=2"])
    with pytest.raises(UserError, match="contains the run of seed=1"):
        taken_up(TrainScriptConfig(), run, ["seed=1", "field.num_voxels=1000"])
    (run / MODEL_FILE).unlink()
    assert taken_up(TrainScriptConfig(), run, ["seed=2"]).resume is None


def test_runs_are_told_by_their_outcomes_wherever_they_lie(tmp_path: Path) -> None:
    left(tmp_path / "a" / "b", FINISHED, number=1)
    left(tmp_path / "0", FAILED, problem="no scene")
    left(tmp_path / "2", RUNNING, number=2, process=2**22 + 1)
    left(tmp_path / "3", RUNNING, number=3)
    left(tmp_path / "4", FINISHED, number=4, launch="yesterday")
    left(tmp_path / "5", STOPPED, number=5)
    expected = [[f"seed={number}", "hydra.sweep.dir=x"] for number in range(5)]
    found = swept_runs(tmp_path, LAUNCH, expected)
    assert [run.folder.name for run in found] == ["0", "b", "2", "3", "4", "5"]
    assert found[0].problem == "no scene" and found[1].problem is None
    assert "ended without a word" in found[2].problem and f"process {os.getpid()}" in found[3].problem
    assert found[4] == SweptRun(tmp_path / "4", ["seed=4"], "it was not started")
    assert found[5].problem == STOPPED


def test_a_process_of_another_machine_is_not_taken_for_one_of_ours() -> None:
    own = Outcome("now", 0, [], RUNNING)
    assert own.is_alive and own.host == socket.gethostname()
    assert not replace(own, host="elsewhere").is_alive and not replace(own, state=FINISHED).is_alive


def test_a_launcher_needs_its_package_and_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sweeps.chosen_launcher(["seed=1,2"], True) == "basic"
    with pytest.raises(UserError, match="give -m too"):
        sweeps.chosen_launcher(["hydra/launcher=joblib"], False)

    def no_plugins(name: str) -> None:
        raise ModuleNotFoundError("No module named 'hydra_plugins'")

    for missing in (lambda name: None, no_plugins):
        monkeypatch.setattr("importlib.util.find_spec", missing)
        with pytest.raises(UserError, match=r"hydra-submitit-launcher.*pip install 'nerf-voxel\[sweep\]'"):
            sweeps.chosen_launcher(["hydra/launcher=submitit_slurm"], True)
    assert sweeps.chosen_launcher(["hydra/launcher=ray"], True) == "ray"


def test_as_many_runs_side_by_side_as_there_are_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "visible_gpus", lambda: ["2", "5"])
    launch, own, notes = sweeps.prepared("joblib", ["-m"])
    assert launch.gpus == ("2", "5") and "hydra.launcher.n_jobs=2" in own and not notes
    _, own, notes = sweeps.prepared("joblib", ["hydra.launcher.n_jobs=8"])
    assert not any("n_jobs" in setting for setting in own)
    assert "2 GPUs" in notes[0] and "wait for one" in notes[0]
    assert own == ["hydra.launcher.batch_size=1"], "a batch would wait behind its own runs while a GPU is free"
    assert not sweeps.prepared("joblib", ["hydra.launcher.n_jobs=2"])[2]
    assert not sweeps.prepared("joblib", ["hydra.launcher.batch_size=2", "hydra.launcher.n_jobs=2"])[1]
    launch, own, _ = sweeps.prepared("joblib", ["device=cpu"])
    assert not launch.gpus and not any("n_jobs" in setting for setting in own)


def test_slurm_is_asked_for_one_gpu_a_job_unless_the_user_asks() -> None:
    launch, own, _ = sweeps.prepared("submitit_slurm", [])
    assert not launch.gpus and own == ["hydra.launcher.gpus_per_node=1", "hydra.launcher.max_num_timeout=100"]
    for given in ("device=cpu", "hydra.launcher.gres=gpu:a100:1", "+hydra.launcher.gpus_per_task=1"):
        assert sweeps.prepared("submitit_slurm", [given])[1] == ["hydra.launcher.max_num_timeout=100"]


def test_a_start_is_stopped_for_its_own_runs_alone(tmp_path: Path) -> None:
    launch = replace(LAUNCH, folder=tmp_path / "sweep")
    assert launch.stopped_by is None
    assert launch.stop(signal.SIGTERM) == []
    left(tmp_path / "sweep" / "0", RUNNING)
    left(tmp_path / "sweep" / "1", STOPPED, number=1)
    assert launch.stop(signal.SIGTERM) == [os.getpid()] and launch.stopped_by == signal.SIGTERM
    assert replace(launch, name="later").stopped_by is None
    (launch.folder / sweeps.STOP).write_text("cut")
    assert launch.stopped_by is None


def test_a_run_that_no_signal_reached_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in a process that was not yet known when the signal went to the others."""
    monkeypatch.setattr(job, "SIGNAL_SECONDS", 0.0)
    monkeypatch.setattr(job, "_stopped", [])
    launch, begun = replace(LAUNCH, folder=tmp_path), []
    swept = job.SweptJob(TrainScriptConfig, lambda *given: begun.append(given), "train", launch)
    launch.stop(signal.SIGTERM)
    outcome = Outcome(launch.name, 0, ["dataset.scene=lego"], RUNNING)
    swept._to_the_end(OmegaConf.structured(TrainScriptConfig(dataset=DatasetConfig(scene="lego"))), tmp_path, outcome)
    assert not begun and sweeps.read_outcome(tmp_path).state == STOPPED

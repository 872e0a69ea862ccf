"""log=: figures and pictures of a run in a tracker; one that fails ends no run."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from script_runs import script_caller
from tiny_runs import STEPS, tiny_config, tiny_state

from nerf.cli import trackers
from nerf.cli.trackers import PICTURES_AT, Tracking
from nerf.errors import UserError
from nerf.runs.run_folder import TRACKED_FILE, forget_run
from nerf.training.loop import train


class Noted:
    """A tracker that keeps what it gets, until it breaks."""

    run_id = None

    def __init__(self, folder: Path, config: object, trained: int, before: str | None) -> None:
        self.values: dict[str, dict[int, float]] = {}
        self.pictures: list[tuple[str, tuple, int]] = []
        self.closed, self.full = False, False

    def scalars(self, values: dict[str, float], step: int) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        for name, value in values.items():
            self.values.setdefault(name, {})[step] = value

    def picture(self, name: str, image: np.ndarray, step: int) -> None:
        assert image.dtype == np.uint8
        self.pictures.append((name, image.shape, step))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def tracking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Tracking, Noted, list[str]]:
    monkeypatch.setitem(trackers.TRACKERS, "noted", Noted)
    notes: list[str] = []
    made = Tracking("noted", tmp_path, tiny_config("voxel_deferred"), notes.append)
    return made, made._tracker, notes


def test_each_loss_rate_and_figure_is_logged_with_pictures(tracking: tuple[Tracking, Noted, list[str]]) -> None:
    made, noted, notes = tracking
    config, state = tiny_state(tiny_config("voxel_deferred"))
    logged = {metrics.step: metrics for metrics in train(config, state, [made])}
    assert set(noted.values["train/psnr"]) == set(logged)
    assert noted.values["loss/photometric"][STEPS] == logged[STEPS].losses["photometric"]
    rates = noted.values["lr/density_grid"]
    assert rates[STEPS] < rates[1] and 0 < noted.values["train/occupied_fraction"][STEPS] < 1
    assert len({step for _, _, step in noted.pictures}) <= len(PICTURES_AT)
    assert {name for name, _, _ in noted.pictures} == {"train/color", "train/depth"}
    assert all(shape == (20, 20, 3) for _, shape, _ in noted.pictures)
    made.close()
    assert noted.closed and notes == []


def test_a_tracker_that_fails_is_said_once_and_the_run_goes_on(tracking: tuple[Tracking, Noted, list[str]]) -> None:
    made, noted, notes = tracking
    noted.full = True
    config, state = tiny_state(tiny_config("voxel_deferred"))
    assert [metrics.step for metrics in train(config, state, [made])][-1] == STEPS
    assert len(notes) == 1 and "No space left on device" in notes[0] and "training goes on" in notes[0]
    assert not noted.closed
    made.close()
    assert noted.closed and len(notes) == 1


@pytest.mark.parametrize("error", [UserError("no loss is finite"), OSError(5, "no disk")])
def test_a_run_that_fails_closes_its_tracker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception) -> None:
    """MLflow refuses the next run of a sweep while one is open."""
    made: list[Noted] = []

    def fails(*arguments: object) -> Iterator[None]:
        raise error
        yield

    monkeypatch.setitem(trackers.MODULES, "tensorboard", "json")  # whether or not it is installed
    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", lambda *given: made.append(Noted(*given)) or made[0])
    monkeypatch.setattr("nerf.cli.train.train", fails)
    call = script_caller(monkeypatch, tmp_path)
    assert call("train", "log=tensorboard", "train.steps=20", "dataset.downscale=8", "device=cpu") != 0
    assert made[0].closed


def test_mlflow_that_cannot_take_settings_leaves_no_run_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[str] = []

    def refuses(settings: dict) -> None:
        raise ValueError("too long")

    fake = ModuleType("mlflow")
    fake.set_experiment, fake.log_params = lambda name: None, refuses
    begun = SimpleNamespace(info=SimpleNamespace(run_id="r1"))
    fake.start_run, fake.end_run = lambda run_name: opened.append(run_name) or begun, opened.clear
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    with pytest.raises(UserError, match="log=mlflow cannot begin: too long"):
        Tracking("mlflow", tmp_path, tiny_config(), print)
    assert opened == []


def test_a_logged_run_is_the_same_run(tracking: tuple[Tracking, Noted, list[str]]) -> None:
    config, alone = tiny_state(tiny_config("voxel_deferred"))
    list(train(config, alone))
    config, state = tiny_state(tiny_config("voxel_deferred"))
    list(train(config, state, [tracking[0]]))
    expected = alone.field.state_dict()
    assert all(value.equal(expected[name]) for name, value in state.field.state_dict().items())


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_answered_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setitem(trackers.MODULES, name, f"no_{name}")
    call = script_caller(monkeypatch, tmp_path)
    assert call("train", f"log={name}", f"dataset.root={tmp_path / 'nowhere'}") == 2
    assert f"pip install no_{name}" in capsys.readouterr().err


def test_a_tracker_that_cannot_begin_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(folder: Path, config: object, trained: int, before: str | None) -> None:
        raise ValueError("not logged in.")

    monkeypatch.setitem(trackers.TRACKERS, "broken", broken)
    with pytest.raises(UserError, match="log=broken cannot begin: not logged in; .*log=none"):
        Tracking("broken", tmp_path, tiny_config(), print)


def test_a_tracker_that_nobody_named_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """log=auto takes TensorBoard where it is installed, whether or not it can be imported."""

    def broken(folder: Path, config: object, trained: int, before: str | None) -> None:
        raise ImportError("cannot import name 'runtime_version'")

    monkeypatch.setitem(trackers.TRACKERS, "broken", broken)
    notes: list[str] = []
    left_out = Tracking("broken", tmp_path, tiny_config(), notes.append, required=False)
    assert notes == [
        "no curves are logged, broken cannot begin: cannot import name 'runtime_version'; mend that, or give log=none."
    ]
    left_out.close()


def test_tensorboard_shows_each_step_of_a_resumed_run_once(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for trained, steps in ((0, (5, 10, 15)), (10, (15, 20))):  # saved after 10 steps, killed after 15
        tracker = trackers.TensorBoardTracker(tmp_path, tiny_config(), trained, None)
        for step in steps:
            tracker.scalars({"train/psnr": float(trained + step)}, step)
        tracker.close()
    events = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/psnr")] == [(5, 5), (10, 10), (15, 25), (20, 30)]


class Service:
    """Weights & Biases or MLflow as far as a tracker asks for them: runs by their names, each with its log."""

    def __init__(self, name: str) -> None:
        self.name, self.module = name, ModuleType(name)
        self.runs: dict[str, list[tuple[int, dict]]] = {}
        self.settings: dict[str, dict] = {}
        self._open: str | None = None
        for function in (self.init, self.set_experiment, self.start_run, self.log_params, self.log_metrics):
            setattr(self.module, function.__name__, function)
        self.module.end_run = self.finish

    def _begin(self, run: str | None) -> str:
        assert self._open is None, "one run at a time"
        self._open = run or f"{self.name}-{len(self.runs) + 1}"
        self.runs.setdefault(self._open, [])
        return self._open

    def finish(self) -> None:
        self._open = None

    def init(self, *, id: str | None = None, resume: str | None = None, **about: object) -> SimpleNamespace:
        assert (id is None) == (resume is None) and resume in (None, "allow")
        name = self._begin(id)
        begun = self.runs[name]
        first = begun[-1][0] + 1 if begun else 0

        def log(values: dict, step: int) -> None:
            if not begun or step >= begun[-1][0]:  # else it is dropped, as the service does
                begun.append((step, values))

        return SimpleNamespace(id=name, step=first, log=log, finish=self.finish)

    def set_experiment(self, name: str) -> None: ...

    def start_run(self, run_id: str | None = None, run_name: str | None = None) -> SimpleNamespace:
        if run_id is not None and run_id not in self.runs:
            raise ValueError(f"Run '{run_id}' not found")
        return SimpleNamespace(info=SimpleNamespace(run_id=self._begin(run_id)))

    def log_params(self, settings: dict[str, str]) -> None:
        if self.settings.setdefault(self._open, settings) != settings:
            raise ValueError("Changing param values is not allowed.")

    def log_metrics(self, values: dict[str, float], step: int) -> None:
        self.runs[self._open].append((step, values))


@pytest.fixture(params=["wandb", "mlflow"])
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Service:
    found = Service(request.param)
    monkeypatch.setitem(sys.modules, found.name, found.module)
    return found


def log_steps(name: str, folder: Path, *steps: int, trained: int = 0, seed: int = 0) -> list[str]:
    """Logs steps of a run in that folder, as a process of its own would; returns what the user is told."""
    notes: list[str] = []
    config = tiny_config()
    config.seed = seed
    made = Tracking(name, folder, config, notes.append, trained)
    for step in steps:
        made._send(lambda tracker, step=step: tracker.scalars({"train/psnr": float(step)}, step))
    made.close()
    return notes


def test_a_resumed_run_goes_on_in_its_trackers_run(service: Service, tmp_path: Path) -> None:
    assert log_steps(service.name, tmp_path, 5, 10) == []
    assert json.loads((tmp_path / TRACKED_FILE).read_text()) == {service.name: f"{service.name}-1"}
    assert log_steps(service.name, tmp_path, 15, trained=10, seed=1) == []  # settings may differ, as a longer run's do
    assert [step for step, _ in service.runs[f"{service.name}-1"]] == [5, 10, 15] and len(service.runs) == 1
    forget_run(tmp_path)  # overwrite=true
    assert log_steps(service.name, tmp_path, 5) == [] and len(service.runs) == 2


def test_scores_of_a_step_that_wandb_has_are_not_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run that was killed while it was scored."""
    wandb = Service("wandb")
    monkeypatch.setitem(sys.modules, "wandb", wandb.module)
    log_steps("wandb", tmp_path, 10, 20)
    log_steps("wandb", tmp_path, 20, trained=20)
    assert [step for step, _ in wandb.runs["wandb-1"]] == [10, 20, 21]


def test_a_trackers_run_that_is_gone_is_told_and_a_new_one_begun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mlflow = Service("mlflow")
    monkeypatch.setitem(sys.modules, "mlflow", mlflow.module)
    log_steps("mlflow", tmp_path, 5)
    mlflow.runs = {"of another": []}
    assert log_steps("mlflow", tmp_path, 10, trained=5) == [
        "mlflow cannot go on with its run mlflow-1: Run 'mlflow-1' not found; it begins a new one."
    ]
    assert json.loads((tmp_path / TRACKED_FILE).read_text()) == {"mlflow": "mlflow-2"}


@pytest.mark.parametrize("content", ["", "[1]", '{"wandb": 3, "mlflow": null, "other": "x"}', "\x00"])
def test_a_damaged_name_of_a_trackers_run_is_none(service: Service, tmp_path: Path, content: str) -> None:
    (tmp_path / TRACKED_FILE).write_text(content)
    assert log_steps(service.name, tmp_path, 5) == []
    assert json.loads((tmp_path / TRACKED_FILE).read_text()) == {service.name: f"{service.name}-1"}


def test_a_trackers_run_is_named_in_the_folder_that_a_run_is_rescued_to(service: Service, tmp_path: Path) -> None:
    made, rescued = Tracking(service.name, tmp_path, tiny_config(), print), tmp_path / "rescued"
    rescued.mkdir()
    made.describe(rescued)
    made.close()
    assert log_steps(service.name, rescued, 5) == [] and list(service.runs) == [f"{service.name}-1"]


@pytest.mark.slow
def test_a_run_that_is_resumed_names_its_trackers_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wandb = Service("wandb")
    wandb.module.Image = lambda image: image
    monkeypatch.setitem(sys.modules, "wandb", wandb.module)
    monkeypatch.setitem(trackers.MODULES, "wandb", "json")  # whether or not it is installed
    monkeypatch.setattr("nerf.cli.report.write_orbit", lambda *given: given[-1])
    call = script_caller(monkeypatch, tmp_path)
    settings = ("dataset.downscale=8", "evaluation.every=100", "device=cpu", "log=wandb")
    assert call("train", "train.steps=10", *settings, "hydra.run.dir=run") == 0
    assert call("train", "resume=run", "train.steps=20", "log=wandb") == 0
    assert list(wandb.runs) == ["wandb-1"] and wandb.runs["wandb-1"][-1][0] == 20
    assert call("train", "train.steps=10", *settings, "hydra.run.dir=run", "overwrite=true") == 0
    assert list(wandb.runs) == ["wandb-1", "wandb-2"]


def test_tensorboard_reads_what_a_run_logged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    call = script_caller(monkeypatch, tmp_path)
    settings = ("train.steps=20", "dataset.downscale=8", "evaluation.every=100", "device=cpu")
    assert call("train", "log=tensorboard", *settings, "hydra.run.dir=run") == 0
    events = accumulator.EventAccumulator("run", size_guidance={"images": 0})
    events.Reload()
    tags = events.Tags()
    assert {"train/psnr", "loss/photometric", "test/psnr", "lr/density_grid"} <= set(tags["scalars"])
    assert {"train/color", "test/views"} <= set(tags["images"])
    assert "config/text_summary" in tags["tensors"]


def test_wandb_and_mlflow_take_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    pytest.importorskip("mlflow")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the store that needs no database
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.chdir(tmp_path)
    for name in ("wandb", "mlflow"):
        notes: list[str] = []
        made = Tracking(name, tmp_path, tiny_config("voxel_deferred"), notes.append)
        config, state = tiny_state(tiny_config("voxel_deferred"))
        list(train(config, state, [made]))
        made.close()
        assert notes == []
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    import mlflow

    run = mlflow.search_runs(experiment_names=[trackers.PROJECT], output_format="list")[0]
    assert run.data.metrics["train/psnr"] > 0 and run.data.params["field.num_voxels"] == str(12**3)

"""Checkpoints: what is written is read again, nothing else is, and nothing that is read is executed."""

import errno
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import warm_python
from state_facts import differing, facts
from tiny_runs import STEPS, run_to, tiny_config, tiny_images, tiny_state

import nerf
from nerf.config.schema import Config
from nerf.errors import UserError
from nerf.images.pixel_runs import PixelRuns
from nerf.ops.backend import select
from nerf.rendering.render import render_image
from nerf.runs import checkpoint
from nerf.runs.packed_grids import inflated
from nerf.training.state import TrainState, make_sampler

FIELDS = ("voxel_sh", "voxel_mlp", "voxel_deferred")
LOADERS = {"model.pt": checkpoint.load, "resume.pt": checkpoint.load_resume}


def save_run(folder: Path, field: str = "voxel_sh", steps: int = 12) -> tuple[Config, TrainState]:
    """Trains a tiny run for some steps and saves it."""
    config, state = tiny_state(tiny_config(field))
    run_to(config, state, steps)
    checkpoint.save(folder, config, state, tiny_images().cameras)
    return config, state


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# There and back

LEVEL = 1 / 255


@pytest.mark.parametrize("field", FIELDS)
def test_state_config_and_cameras_return_unchanged(tmp_path: Path, field: str) -> None:
    config, state = save_run(tmp_path, field)
    content = checkpoint.load_resume(tmp_path)
    assert checkpoint.restore_config(content) == config
    again = checkpoint.restore_run(content, config, tiny_images(), select("native", "cpu"))
    assert differing(facts(state), facts(again)) == []
    assert again.clock.elapsed == state.clock.elapsed > 0
    cameras = checkpoint.restore_cameras(content)
    assert torch.equal(cameras.c2w, tiny_images().cameras.c2w)
    assert torch.equal(cameras.intrinsics, tiny_images().cameras.intrinsics)
    assert (cameras.width, cameras.height) == (20, 20)


@pytest.mark.parametrize("field", FIELDS)
def test_the_model_alone_renders_what_the_run_renders(tmp_path: Path, field: str) -> None:
    """Its values are in half precision: no pixel differs by an 8-bit level."""
    config, state = save_run(tmp_path, field)
    (tmp_path / "resume.pt").unlink()
    cameras, white, sampler = tiny_images().cameras, torch.ones(3), make_sampler(config, state)
    expected = [render_image(state.field, sampler, cameras, view, white) for view in range(len(cameras))]
    content = checkpoint.load(tmp_path / "model.pt")  # the file's own name will do
    assert checkpoint.restore_config(content) == config
    state.field, state.occupancy = checkpoint.restore_field(content, config, select("native", "cpu"))
    sampler = make_sampler(config, state)
    for view, (rgb, opacity, depth) in enumerate((e.rgb, e.opacity, e.depth) for e in expected):
        found = render_image(state.field, sampler, cameras, view, white)
        assert (found.rgb - rgb).abs().max() < LEVEL and (found.opacity - opacity).abs().max() < LEVEL
        torch.testing.assert_close(found.depth, depth, atol=5 * LEVEL, rtol=0)  # a few world units from the cameras


def test_the_resume_state_needs_no_model_and_the_model_no_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, state = save_run(tmp_path)
    (tmp_path / "model.pt").unlink()
    again = checkpoint.restore_run(checkpoint.load_resume(tmp_path), config, tiny_images(), select("native", "cpu"))
    assert differing(facts(state), facts(again)) == []
    model, of_step = checkpoint.load(tmp_path), f"{tmp_path}/resume.pt is used instead, of step 12"
    assert f"{tmp_path}/model.pt does not exist; {of_step}" in capsys.readouterr().err
    checkpoint.restore_field(model, config, select("native", "cpu"))

    checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    (tmp_path / "resume.pt").unlink(), (tmp_path / "resume.previous.pt").unlink()
    checkpoint.load(tmp_path)
    assert "resume state was removed" in complaint_of_folder(tmp_path, "resume.pt").replace("\n", " ")


def test_the_state_before_stands_in_for_a_damaged_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, state = save_run(tmp_path)
    run_to(config, state, 14)
    checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    newest, previous = tmp_path / "resume.pt", tmp_path / "resume.previous.pt"
    newest.write_bytes(newest.read_bytes()[:-100])
    assert checkpoint.load_resume(tmp_path)["step"] == 12
    said = capsys.readouterr().err
    assert (
        said.count("\n") == 1 and f"{newest} is damaged" in said and f"{previous} is used instead, of step 12" in said
    )
    checkpoint.drop_previous(tmp_path)
    assert previous.exists(), "it is the only good one"

    checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    checkpoint.drop_previous(tmp_path)
    assert names(tmp_path) == ["model.pt", "resume.pt"]


def test_a_damaged_state_without_another_leaves_the_model_and_says_so(tmp_path: Path) -> None:
    save_run(tmp_path)
    (tmp_path / "resume.pt").write_bytes(b"half")
    with pytest.raises(UserError) as caught:
        checkpoint.load_resume(tmp_path)
    assert all(
        word in str(caught.value) for word in (f"{tmp_path}/resume.pt", f"{tmp_path}/model.pt", "render.py run=")
    )
    (tmp_path / "model.pt").write_bytes(b"half")
    with pytest.raises(UserError, match="resume.pt is damaged .* Train again") as caught:
        checkpoint.load_resume(tmp_path)
    with pytest.raises(UserError, match="model.pt is damaged .* Train again") as caught:
        checkpoint.load(tmp_path)


def test_a_full_disk_gives_up_the_state_before_rather_than_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is as full as two states and a model make it."""
    config, state = save_run(tmp_path)
    run_to(config, state, 13)
    checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    run_to(config, state, 14)
    save = torch.save

    def with_little_room(content: dict, file: object) -> None:
        if content["format"] == checkpoint.FORMATS["resume.pt"] and (tmp_path / "resume.previous.pt").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        save(content, file)

    monkeypatch.setattr(torch, "save", with_little_room)
    checkpoint.save(tmp_path, config, state, tiny_images().cameras)
    assert checkpoint.load_resume(tmp_path)["step"] == checkpoint.load(tmp_path)["step"] == 14


def complaint_of_folder(folder: Path, name: str) -> str:
    with pytest.raises(UserError, match=f"{name} does not exist") as caught:
        LOADERS[name](folder)
    return str(caught.value)


def test_one_file_is_not_taken_for_the_other(tmp_path: Path) -> None:
    save_run(tmp_path, steps=1)
    with pytest.raises(UserError, match="it is a nerf-voxel-resume, expected a nerf-voxel-model"):
        checkpoint.load(tmp_path / "resume.pt")
    with pytest.raises(UserError, match="it is a nerf-voxel-model, expected a nerf-voxel-resume"):
        checkpoint.load_resume(tmp_path / "model.pt")


def test_a_run_is_not_resumed_on_other_images(tmp_path: Path) -> None:
    config, _ = save_run(tmp_path)
    content = checkpoint.load_resume(tmp_path)
    for wrong in (tiny_images("test"), replace(tiny_images(), cameras=tiny_images().cameras.resized(10, 10))):
        with pytest.raises(UserError, match="trained on 8 views 20x20; .*dataset.root"):
            checkpoint.restore_run(content, config, wrong, select("native", "cpu"))


def test_a_run_is_not_resumed_on_other_pixels(tmp_path: Path) -> None:
    """Of the same sizes and poses: photos that were developed anew, or other masks."""
    config, _ = save_run(tmp_path, steps=1)
    content, images = checkpoint.load_resume(tmp_path), tiny_images()
    backend = select("native", "cpu")
    brighter = replace(images, pixels=images.pixels.clamp(min=1))
    masked = replace(images, valid_pixels=PixelRuns.of_bounds(torch.tensor([[0, len(images.pixels) - 1]])))
    for wrong in (brighter, masked):
        with pytest.raises(UserError, match="images or their masks are not those .* trained on"):
            checkpoint.restore_run(content, config, wrong, backend)
    del content["images"]  # as older files, which do not say
    checkpoint.restore_run(content, config, brighter, backend)


def test_a_run_of_another_device_is_not_resumed_on_this_one(tmp_path: Path) -> None:
    config, _ = save_run(tmp_path, steps=1)
    content = checkpoint.load_resume(tmp_path)
    content["noise"] = content["noise"][:16]  # as a GPU's generator has it
    with pytest.raises(UserError, match=r"another device.* with device=cuda\."):
        checkpoint.restore_run(content, config, tiny_images(), select("native", "cpu"))


def test_a_run_from_before_there_was_a_choice_of_rays_has_one_per_pixel(tmp_path: Path) -> None:
    """It renders, and goes on to its end as it would have."""
    config, state = save_run(tmp_path)
    expected = nerf.load(tmp_path, device="cpu").render(tiny_images().cameras)
    for name in LOADERS:
        content = torch.load(tmp_path / name, weights_only=True)
        content.pop("rays_per_pixel", None)
        del content["config"]["sampler"]["rays_per_pixel"], content["config"]["train"]["antialias_start"]
        torch.save(content, tmp_path / name)
    opened = nerf.load(tmp_path, device="cpu")
    assert opened.sampler.rays_per_pixel == 1
    assert torch.equal(opened.render(tiny_images().cameras).rgb, expected.rgb)
    content = checkpoint.load_resume(tmp_path)
    old = checkpoint.restore_config(content)
    again = checkpoint.restore_run(content, old, tiny_images(), select("native", "cpu"))
    run_to(config, state, STEPS), run_to(old, again, STEPS)
    assert differing(facts(state), facts(again)) == []


def test_a_model_whose_grids_are_not_deflated_is_read(tmp_path: Path) -> None:
    """As version 4 wrote them."""
    save_run(tmp_path)
    expected, path = checkpoint.load(tmp_path)["field"], tmp_path / checkpoint.MODEL_FILE
    content = torch.load(path, weights_only=True)
    grids = {name: inflated(grid) for name, grid in content["grids"].items()}
    torch.save(content | {"version": 4, "grids": grids}, path)
    found = checkpoint.load(tmp_path)["field"]
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


# Writing


def test_left_overs_of_a_killed_writer_go_with_the_next_checkpoint(tmp_path: Path) -> None:
    (tmp_path / ".model.123-0123abcd.partial.pt").write_bytes(b"half")
    (tmp_path / ".resume.124-0123abcd.partial.pt").write_bytes(b"half")
    save_run(tmp_path, steps=1)
    assert names(tmp_path) == ["model.pt", "resume.pt"]


@pytest.mark.slow
@pytest.mark.parametrize("fits", ["nothing", "the model alone"])
def test_a_full_disk_leaves_the_files_before(tmp_path: Path, fits: str) -> None:
    """Not a full disk but, the same to the writer, a limit on the size of its files, in a process of its own."""
    save_run(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in LOADERS}
    # From every position on, or PyTorch's own message about a wrong one would come through.
    limit = 11_000 if fits == "nothing" else len(before["model.pt"]) + 4096
    assert limit < len(before["resume.pt"])
    program = (
        "import resource, sys; from pathlib import Path; from tiny_runs import tiny_images, run_to;"
        "from nerf.runs import checkpoint; from nerf.ops.backend import select;"
        "folder, limit = Path(sys.argv[1]), int(sys.argv[2]);"
        "content = checkpoint.load_resume(folder); config = checkpoint.restore_config(content);"
        "state = checkpoint.restore_run(content, config, tiny_images(), select('native', 'cpu'));"
        "run_to(config, state, 14); resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit));"
        "checkpoint.save(folder, config, state, tiny_images().cameras)"
    )
    found = warm_python.run(
        [sys.executable, "-c", program, str(tmp_path), str(limit)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    message = found.stderr.splitlines()[-1]
    assert message.startswith("nerf.runs.checkpoint.NotSaved: ") and "Free some space, or set hydra.run.dir" in message
    assert names(tmp_path) == ["model.pt", "resume.pt"]
    assert (tmp_path / "resume.pt").read_bytes() == before["resume.pt"]
    if fits == "nothing":
        assert f"{tmp_path}/model.pt cannot be written: [Errno 27] File too large" in message
        assert (tmp_path / "model.pt").read_bytes() == before["model.pt"]
    else:
        assert f"{tmp_path}/resume.pt cannot be written: [Errno 27] File too large" in message
        assert f"{tmp_path}/model.pt" in message
        assert checkpoint.load(tmp_path)["step"] == 14 and checkpoint.load_resume(tmp_path)["step"] == 12


@pytest.mark.slow
def test_a_run_killed_between_its_two_files_resumes_and_renders(tmp_path: Path) -> None:
    """A process resumes it and dies before it writes the model of its save."""
    config, state = save_run(tmp_path)
    program = (
        "import os, signal, sys; from pathlib import Path; from nerf.runs import checkpoint; "
        "from nerf.ops.backend import select; from tiny_runs import run_to, tiny_images; "
        "folder, write = Path(sys.argv[1]), checkpoint._write; content = checkpoint.load_resume(folder); "
        "config, native = checkpoint.restore_config(content), select('native', 'cpu'); "
        "state = checkpoint.restore_run(content, config, tiny_images(), native); run_to(config, state, 14); "
        "checkpoint._write = lambda path, content: write(path, content) if path.name == 'resume.pt' else "
        "os.kill(os.getpid(), signal.SIGKILL); checkpoint.save(folder, config, state, tiny_images().cameras)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = warm_python.run([sys.executable, "-c", program, str(tmp_path)], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    content = checkpoint.load_resume(tmp_path)
    assert (content["step"], checkpoint.load(tmp_path)["step"]) == (14, 12)
    checkpoint.restore_field(checkpoint.load(tmp_path), config, select("native", "cpu"))
    again = checkpoint.restore_run(content, config, tiny_images(), select("native", "cpu"))
    run_to(config, again, 16), run_to(config, state, 16)
    assert differing(facts(state), facts(again)) == []


def test_runs_of_before_the_sines_of_features_go_on_without_them(tmp_path: Path) -> None:
    """Whatever a recipe has: their network has never seen one."""
    save_run(tmp_path, "voxel_deferred")
    content = checkpoint.load_resume(tmp_path)
    del content["config"]["field"]["feature_sines"]
    assert checkpoint.restore_config(content).field.feature_sines is False


def test_runs_of_before_muon_go_on_with_adam(tmp_path: Path) -> None:
    """Whatever a recipe has: a run goes on as it began."""
    save_run(tmp_path, "voxel_deferred")
    content = checkpoint.load_resume(tmp_path)
    del content["config"]["field"]["lr_muon"]
    assert checkpoint.restore_config(content).field.lr_muon == 0.0


def test_runs_of_before_multi_view_consistency_go_on_without_it(tmp_path: Path) -> None:
    """Whatever a recipe has: a run goes on as it began."""
    save_run(tmp_path, "voxel_deferred")
    content = checkpoint.load_resume(tmp_path)
    del content["config"]["loss"]["multi_view"]
    assert checkpoint.restore_config(content).loss.multi_view == 0.0


def test_runs_of_before_moments_of_16_bits_go_on_with_32(tmp_path: Path) -> None:
    """Whatever a recipe has: a run goes on as it began."""
    save_run(tmp_path, "voxel_deferred")
    content = checkpoint.load_resume(tmp_path)
    del content["config"]["train"]["moments"]
    assert checkpoint.restore_config(content).train.moments == "float32"


def test_a_folder_that_is_gone_or_no_folder_is_named(tmp_path: Path) -> None:
    config, state = tiny_state(tiny_config())
    (tmp_path / "file").touch()
    for folder in (tmp_path / "gone", tmp_path / "file", Path("/proc")):
        expected = f"{folder}/model.pt cannot be written: .*hydra.run.dir"
        with pytest.raises(UserError, match=expected):
            checkpoint.save(folder, config, state, tiny_images().cameras)


def test_scores_of_a_model_that_was_trained_on_are_gone(tmp_path: Path) -> None:
    """Once an extended run that was interrupted was compared by the scores of its first end."""
    run = nerf.start(tiny_config("voxel_sh", steps=9), tiny_images(), select("native", "cpu"))
    run_to(run.config, run.state, 2)
    run.save(tmp_path)
    (tmp_path / "metrics.json").write_text('{"steps": 2, "psnr": {"mean": 20.0}}')
    run.save(tmp_path)
    assert (tmp_path / "metrics.json").is_file()
    run_to(run.config, run.state, 3)
    run.save(tmp_path)
    assert not (tmp_path / "metrics.json").exists()

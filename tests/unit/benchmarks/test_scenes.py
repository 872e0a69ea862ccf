"""Which scenes a folder holds, how each is read, and the table of their runs beside published figures."""

import json
from pathlib import Path

import pytest

from nerf.benchmarks.figures import SceneRun
from nerf.benchmarks.scene_sets import SETS, find_scenes
from nerf.benchmarks.scenes import check, dataset_of
from nerf.benchmarks.scenes_table import EMPTY, scenes_table
from nerf.config.schema import Config, DatasetConfig, TrainConfig
from nerf.errors import UserError

ROOT = Path(__file__).resolve().parents[3]


def place(folder: Path, *files: str) -> Path:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


COLMAP = ("sparse/0/cameras.bin", "sparse/0/images.bin", "sparse/0/points3D.bin")
BLENDER = ("transforms_train.json", "transforms_test.json")


def test_scenes_are_found_by_their_format_and_known_by_their_names(tmp_path: Path) -> None:
    place(tmp_path / "nerf_synthetic" / "lego", *BLENDER)
    place(tmp_path / "nerf_synthetic" / "lego" / "train" / "lego", *BLENDER)  # part of the scene
    place(tmp_path / "fern", "poses_bounds.npy", "images_4/a.png")
    place(tmp_path / "360_v2" / "bicycle", *COLMAP, "images_4/a.jpg", "images_2/a.jpg")
    place(tmp_path / "360_v2" / "kitchen", *COLMAP, "images_4/a.jpg", "images_2/a.jpg")
    place(tmp_path / "mine" / "cup", *COLMAP, "images/a.jpg")
    place(tmp_path / "bricks", *BLENDER)
    place(tmp_path / "notes", "a.txt")
    found = find_scenes([tmp_path], [])
    assert [(scene.set, scene.name, scene.images) for scene in found] == [
        ("blender", "lego", None),
        ("llff", "fern", "images_4"),
        ("mipnerf360", "bicycle", "images_4"),
        ("mipnerf360", "kitchen", "images_2"),
        ("captures", "bricks", None),
        ("captures", "cup", None),
    ]
    assert [scene.name for scene in find_scenes([tmp_path], ["cup", "blender/lego"])] == ["cup", "lego"]
    with pytest.raises(UserError, match=r"scenes=chair: there is no such scene.*found blender/lego"):
        find_scenes([tmp_path], ["chair"])
    with pytest.raises(UserError, match="no scene in a known format"):
        find_scenes([tmp_path / "notes"], [])


@pytest.mark.parametrize(("above", "photos", "expected"), [("a", 41, "llff"), ("a", 150, "mipnerf360")])
def test_the_two_rooms_are_told_apart(tmp_path: Path, above: str, photos: int, expected: str) -> None:
    place(tmp_path / above / "room", *COLMAP, *(f"images/{number}.jpg" for number in range(photos)))
    assert find_scenes([tmp_path], [])[0].set == expected
    (tmp_path / above).rename(tmp_path / "360_v2")
    assert find_scenes([tmp_path], [])[0].set == "mipnerf360"


def test_each_scene_is_read_by_its_sets_custom_unless_told(tmp_path: Path) -> None:
    scene = find_scenes([place(tmp_path / "bonsai", *COLMAP, "images_2/a.jpg")], [])[0]
    dataset = dataset_of(scene, DatasetConfig(scene="lego", downscale=4))
    assert (dataset.scene, dataset.images, dataset.downscale) == ("bonsai", "images_2", 4)
    assert dataset.root == str(tmp_path / "bonsai")
    assert dataset_of(scene, DatasetConfig(images="images_8")).images == "images_8"


@pytest.mark.parametrize(
    ("config", "budgets", "steps", "named"),
    [
        (Config(), [0.0], [], "budgets"),
        (Config(), [15], [0], "budget_steps"),
        (Config(), [], [], "leaves nothing"),
        (Config(train=TrainConfig(steps=3)), [15], [], "train.steps"),
    ],
)
def test_budgets_that_cannot_be_used_are_answered(config: Config, budgets: list, steps: list, named: str) -> None:
    with pytest.raises(UserError, match=named):
        check(config, budgets, steps)


def entry(scene: str, psnr: float, size: tuple[int, int] = (800, 800), **facts: object) -> SceneRun:
    scores = {"mean": psnr, "per_view": [psnr + 1, psnr - 1]}
    made = {"set": "blender", "scene": scene, "images": None, "image_size": list(size), "budget_seconds": 15.0}
    made |= {"budget_steps": None, "worst_view": {"name": "r_1", "psnr": psnr - 1, "picture": "a.png"}, "steps": 9}
    made |= {"psnr": scores, "ssim": {"mean": 0.9, "per_view": [0.9] * 2}, "peak_memory_bytes": 2**30}
    return made | {"device": "a GPU", "commit": "abc", "date": "2026-11-25T00:00:00"} | facts


def published() -> dict:
    return json.loads((ROOT / "docs" / "results" / "data" / "published_scenes.json").read_text())


def row(table: str, scene: str) -> list[str]:
    line = next(line for line in table.splitlines() if line.startswith(f"| {scene} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_scene_stands_beside_published_figures_of_the_same_images() -> None:
    runs = [entry("lego", 37.6), entry("chair", 36.0), entry("drums", 30.0, (100, 100))]
    table = scenes_table([published(), {"runs": runs}])
    assert row(table, "lego")[5] == "**37.60**" and "37.53" in row(table, "lego")
    assert row(table, "chair")[5] == "36.00" and row(table, "drums")[5] == "(30.00)"
    assert "| mean" not in table and "black" in table


def test_there_is_a_mean_only_where_all_scenes_of_a_set_are() -> None:
    runs = [entry(scene, 30.0 + number) for number, scene in enumerate(SETS["blender"].scenes)]
    table = scenes_table([published(), {"runs": runs}])
    assert row(table, "mean")[5] == "33.50" and row(table, "mean")[8:10] == ["chair", "29.00"]
    assert "34.64" in row(table, "mean")
    assert "| mean" not in scenes_table([published(), {"runs": runs[1:]}])
    other = [entry(scene, 30.0, budget_seconds=60.0) for scene in SETS["blender"].scenes[:1]]
    assert scenes_table([{"runs": runs + other}]).count("| mean") == 1


def test_scenes_of_ones_own_have_a_table_without_others_and_nothing_is_said_so() -> None:
    assert scenes_table([published()]) == scenes_table([]) == EMPTY
    table = scenes_table([{"runs": [entry("cup", 29.0, set="captures", peak_memory_bytes=None)]}])
    assert "Other captures" in table and row(table, "cup")[5] == "29.00"


def test_published_figures_are_of_known_sets_and_means_are_theirs() -> None:
    for name, found in published()["sets"].items():
        for method in found["methods"]:
            assert set(method["psnr"]) <= set(SETS[name].scenes) and method["trap"] and method["source"]
            if set(method["psnr"]) == set(SETS[name].scenes):
                mean = sum(method["psnr"].values()) / len(method["psnr"])
                assert abs(mean - method["mean"]) < 0.03, method["name"]

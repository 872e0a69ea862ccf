"""Hulls that tests carve once are those that are carved again and again."""

import torch
from carving import CPU, silhouettes_of
from hulls import carved_once
from tiny_runs import tiny_images

from nerf.scene import visual_hull
from nerf.scene.box import SceneBox


def test_a_copy_of_the_same_hull_and_another_one_of_anything_else(monkeypatch) -> None:
    images, carved = tiny_images(), []
    carve = visual_hull.carve
    monkeypatch.setattr(visual_hull, "carve", lambda *given: carved.append(given) or carve(*given))
    box = visual_hull.find_box(images.cameras, silhouettes_of(images), CPU)
    larger, outline = SceneBox(2 * box.aabb), silhouettes_of(images)
    outline.opaque[:200] = False
    asked = [(silhouettes_of(images), box, (9, 9, 9)), (silhouettes_of(images), box, (9, 9, 8))]
    asked += [(silhouettes_of(images), larger, (9, 9, 9)), (outline, box, (9, 9, 9))]
    with carved_once():
        first = [visual_hull.carve(*given) for given in asked]
        carved.clear()
        for given, hull in zip(asked, first):
            again = visual_hull.carve(*given)
            assert torch.equal(again.occupied, carve(*given).occupied) and not carved
            hull.occupied.zero_()
            assert visual_hull.carve(*given).occupied.any()
    visual_hull.carve(*asked[0])
    assert len(carved) == 1

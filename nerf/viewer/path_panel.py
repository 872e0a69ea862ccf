"""The part of a page in which a camera path is made: key frames, their times, and a preview."""

import dataclasses
import functools
import threading
from collections.abc import Callable

import viser

from nerf.cameras.key_frame_file import EditedPath
from nerf.cameras.key_frames import DEFAULT_SECONDS, LEAST_SECONDS, MOST_SECONDS, KeyFrame, KeyFramePath
from nerf.cameras.path_file import MAX_SIZE
from nerf.errors import UserError
from nerf.viewer.look import ViewCamera
from nerf.viewer.notices import errors_told
from nerf.viewer.path_drawing import PathDrawing
from nerf.viewer.preview import Preview
from nerf.viewer.scene import Scene
from nerf.viewer.steering import Orbit, move_client

FPS, MOST_FPS = 30.0, 120.0
MOST_FRAMES = 100_000  # a file of 50 MB
LEAST_SIZE = 16  # pixels along a side
NONE = "none yet"
GO, REPLACE, DELETE, EARLIER, LATER = "go to", "replace", "delete", "earlier", "later"
PREVIEW, STOP = "preview", "stop preview"


class PathPanel:
    """Key frames of one client, and which one is chosen. Only _set() alters them: page and scene show what they are."""

    def __init__(
        self, client: viser.ClientHandle, scene: Scene, reach: float, camera: Callable[[], ViewCamera]
    ) -> None:
        """reach: of the scene, world units. camera: where the client looks from now."""
        self._client, self._camera, gui = client, camera, client.gui
        self._lock, self._refreshing, self._closed = threading.RLock(), False, False
        self.path, self.chosen = KeyFramePath(), 0
        self._drawing = PathDrawing(client, reach, self._go_to)
        self._preview: Preview | None = None
        with gui.add_folder("Key frames"):
            self.add = gui.add_button("add key frame", hint="where the camera is now, after the chosen key frame")
            self.key = gui.add_dropdown("key frame", (NONE,))
            self.place = gui.add_button_group("chosen one", (GO, REPLACE, DELETE))
            self.order = gui.add_button_group("in the order", (EARLIER, LATER))
            limits = dict(min=LEAST_SECONDS, max=MOST_SECONDS, step=0.1)
            hint = "from the key frame before it; of the first one, in a loop, from the last"
            self.seconds = gui.add_number("seconds to it", DEFAULT_SECONDS, hint=hint, **limits)
            self.loop = gui.add_checkbox("loop", False, hint="from the last key frame on to the first")
            self.total = gui.add_number("total seconds", 0.0, min=0.0, step=0.1, hint="stretches all in proportion")
            self.fps = gui.add_number("frames a second", FPS, min=1.0, max=MOST_FPS, step=1.0)
            size = tuple(float(min(side, MAX_SIZE)) for side in scene.cameras.size(0))
            self.size = gui.add_vector2("frame size", size, min=(LEAST_SIZE,) * 2, max=(MAX_SIZE,) * 2, step=1.0)
            self.play = gui.add_button(PREVIEW)
        self.add.on_click(lambda _: self._add())
        self.key.on_update(lambda _: self._choose())
        self.place.on_click(lambda _: self._do(self.place.value))
        self.order.on_click(lambda _: self._do(self.order.value))
        self.seconds.on_update(lambda _: self._do("seconds"))
        self.loop.on_update(lambda _: self._set(dataclasses.replace(self.path, loop=self.loop.value)))
        self.total.on_update(lambda _: self._set(self.path.stretched(self.total.value)))
        self.size.on_update(lambda _: self._set(self.path))
        self.play.on_click(lambda _: self._toggle())
        self._set(self.path)

    def edited(self) -> EditedPath:
        """The path and how it is rendered. Raises UserError for fewer than 2 key frames, and for too many frames."""
        with self._lock:
            if len(self.path) < 2:
                raise UserError(
                    f"the path has {len(self.path)} key frames, expected at least 2; move the camera and press "
                    f"'{self.add.label}' for each."
                )
            fps = min(max(self.fps.value, 1.0), MOST_FPS)
            if fps * self.path.seconds > MOST_FRAMES:
                raise UserError(
                    f"{self.path.seconds:.0f} seconds at {fps:g} frames a second are more than {MOST_FRAMES} frames; "
                    "make the path shorter, or take fewer frames a second."
                )
            width, height = (int(min(max(side, LEAST_SIZE), MAX_SIZE)) for side in self.size.value)
            return EditedPath(self.path, fps, width, height)

    def take(self, edited: EditedPath) -> None:
        """Edits another path."""
        with self._lock:
            self.fps.value, self.size.value = edited.fps or FPS, (float(edited.width), float(edited.height))
            self._set(edited.path, 0)

    def close(self, timeout: float | None = None) -> None:
        """Ends the preview's thread, waiting at most timeout seconds for it. A click that comes later starts none."""
        with self._lock:
            self._closed, preview = True, self._preview
        if preview is not None:
            preview.close(timeout)

    def _set(self, path: KeyFramePath, chosen: int | None = None) -> None:
        with self._lock:
            if self._refreshing:  # a control that _refresh() has set
                return
            self.path = path
            self.chosen = max(0, min(self.chosen if chosen is None else chosen, len(path) - 1))
            self._refreshing = True
            try:
                self._refresh()
            finally:
                self._refreshing = False

    def _refresh(self) -> None:
        """Makes controls and drawing show the path; only _set() calls it."""
        starts = [sum(self.path.durations[:index]) for index in range(len(self.path))]
        self.key.options = [f"{index + 1}: at {start:.1f} s" for index, start in enumerate(starts)] or [NONE]
        self.key.value = self.key.options[self.chosen]
        self.loop.value, self.total.value = self.path.loop, round(self.path.seconds, 3)
        if self.path.keys:
            self.seconds.value = round(self.path.keys[self.chosen].seconds, 3)
        for control in (self.key, self.seconds):  # groups of buttons cannot be disabled
            control.disabled = not self.path.keys
        self.total.disabled = self.play.disabled = len(self.path) < 2
        width, height = self.size.value
        self._drawing.update(self.path, self.chosen, width / max(height, 1.0))

    def _add(self) -> None:
        with self._lock:
            after = self.chosen + 1 if self.path.keys else 0
            self._set(self.path.inserted(after, self._here()), after)

    def _choose(self) -> None:
        with self._lock:
            if self.path.keys and self.key.value in self.key.options:  # not one that has just gone
                self._set(self.path, self.key.options.index(self.key.value))

    def _do(self, action: str) -> None:
        """Something with the chosen key frame, if there is one."""
        with self._lock:
            path, chosen = self.path, self.chosen
            if not path.keys:
                return
            if action == GO:
                self._go_to(chosen)
            elif action == REPLACE:
                here = self._here().timed(path.keys[chosen].seconds)
                self._set(path.without(chosen).inserted(chosen, here))
            elif action == DELETE:
                self._set(path.without(chosen))
            elif action == "seconds":
                self._set(path.timed(chosen, self.seconds.value))
            else:
                to = max(0, min(chosen + (1 if action == LATER else -1), len(path) - 1))
                self._set(path.moved(chosen, to), to)

    def _here(self) -> KeyFrame:
        camera = self._camera()
        return KeyFrame(camera.c2w, camera.fov)

    def _go_to(self, index: int) -> None:
        """Chooses a key frame and moves the client there."""
        with self._lock:
            self._set(self.path, index)
            key = self.path.keys[index]
            move_client(self._client, Orbit.of(self._client), key.c2w, key.fov)

    def _toggle(self) -> None:
        """Starts the preview, or ends it."""
        with self._lock, errors_told(self._client):
            if self._preview is not None:
                self._preview.stop()
                return
            if self._closed:
                return
            path = self.edited().path
            self.play.label = STOP
            self._drawing.show(False)
            move = functools.partial(move_client, self._client, Orbit.of(self._client))
            self._preview = Preview(path, move, self._previewed)

    def _previewed(self) -> None:
        with self._lock:
            self._preview, self.play.label = None, PREVIEW
            self._drawing.show(True)

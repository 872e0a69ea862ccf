"""The part of a page that saves camera paths beside the run and opens them again."""

import tempfile
from pathlib import Path

import viser

from nerf.cameras.key_frame_file import read_key_frames, write_key_frames
from nerf.viewer.notices import errors_told
from nerf.viewer.path_folder import PathFolder
from nerf.viewer.path_panel import PathPanel

FIRST_NAME = "path"
NONE = "none saved yet"


class PathFilesPanel:
    """A name, and buttons to save, load and upload."""

    def __init__(self, client: viser.ClientHandle, folder: PathFolder, editor: PathPanel) -> None:
        self._client, self._folder, self._editor, gui = client, folder, editor, client.gui
        with gui.add_folder("File"):
            self.name = gui.add_text("name", FIRST_NAME, hint="of the path's file and of the video's")
            self.save = gui.add_button("save path", hint="nerfstudio's format; a file of this name is replaced")
            self.status = gui.add_markdown(f"files go to: `{folder.folder}`")
            self.saved = gui.add_dropdown("saved paths", folder.saved() or (NONE,))
            self.load = gui.add_button("load path", color="gray", hint="its key frames replace those of this page")
            self.upload = gui.add_upload_button("upload path", color="gray", mime_type="application/json")
        self.save.on_click(lambda _: self._save())
        self.load.on_click(lambda _: self._load())
        self.upload.on_upload(lambda _: self._take(self.upload.value))

    def _save(self) -> None:
        with errors_told(self._client):
            edited, file = self._editor.edited(), self._folder.file(self.name.value, ".json")
            with self._folder.writing(file):
                write_key_frames(file, edited.path, edited.fps, edited.width, edited.height)
            self.status.content = f"saved: `{file}`"
            self._list(file.stem)

    def _load(self) -> None:
        with errors_told(self._client):
            chosen = self.saved.value
            self._list(chosen)
            if chosen == NONE:
                chosen = self.saved.value  # what another page has saved since
            if chosen != NONE:
                self._editor.take(read_key_frames(self._folder.file(chosen, ".json")))
                self.name.value = chosen

    def _take(self, uploaded: viser.UploadedFile) -> None:
        """Opens a file of the client's machine."""
        with errors_told(self._client), tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "uploaded.json"  # whatever the client calls it
            file.write_bytes(uploaded.content)
            self._editor.take(read_key_frames(file))

    def _list(self, chosen: str) -> None:
        """Shows what is saved by now, also by other pages."""
        self.saved.options = self._folder.saved() or (NONE,)
        if chosen in self.saved.options:
            self.saved.value = chosen

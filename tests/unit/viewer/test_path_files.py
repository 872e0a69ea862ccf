"""The part of a page that opens saved camera paths, over a stand-in for the page's controls."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("viser")

from nerf.viewer import path_files
from nerf.viewer.path_files import NONE, PathFilesPanel
from nerf.viewer.path_folder import PathFolder


class Choice:
    """A list to choose from. As in viser, the first one is chosen where the chosen one is no longer listed."""

    def __init__(self, options: tuple[str, ...]) -> None:
        self.value, self.options = options[0], options

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "options" and self.value not in value:
            self.value = value[0]


class Controls:
    """What a page shows: buttons that can be pressed, and texts."""

    def add_folder(self, _: str) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def add_text(self, _: str, value: str, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(value=value)

    def add_markdown(self, content: str) -> SimpleNamespace:
        return SimpleNamespace(content=content)

    def add_dropdown(self, _: str, options: tuple[str, ...]) -> Choice:
        return Choice(tuple(options))

    def add_button(self, *_: Any, **__: Any) -> SimpleNamespace:
        button = SimpleNamespace(press=None)

        def on_click(do: Callable[[None], None]) -> None:
            button.press = lambda: do(None)

        button.on_click = button.on_upload = on_click
        return button

    add_upload_button = add_button


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    read = path_files.read_key_frames
    monkeypatch.setattr(path_files, "read_key_frames", lambda file: file.stem if file.exists() else read(file))
    opened, told = [], []
    client = SimpleNamespace(gui=Controls(), add_notification=lambda title, text, **_: told.append(text))
    (tmp_path / "paths").mkdir()
    panel = PathFilesPanel(client, PathFolder(tmp_path), SimpleNamespace(take=opened.append))
    return SimpleNamespace(panel=panel, opened=opened, told=told, folder=tmp_path / "paths")


def test_a_path_that_was_deleted_meanwhile_is_told_and_no_other_is_opened(page: SimpleNamespace) -> None:
    for name in ("a", "b"):
        (page.folder / f"{name}.json").touch()
    page.panel.load.press()
    page.panel.saved.value = "b"
    page.panel.load.press()
    assert page.opened == ["a", "b"] and page.told == []
    (page.folder / "b.json").unlink()
    page.panel.load.press()
    assert page.opened == ["a", "b"] and "b.json" in page.told[0]
    assert list(page.panel.saved.options) == ["a"]


def test_the_first_path_of_another_page_is_opened(page: SimpleNamespace) -> None:
    page.panel.load.press()
    assert page.panel.saved.value == NONE and page.opened == []
    (page.folder / "a.json").touch()
    page.panel.load.press()
    assert page.opened == ["a"] and page.panel.name.value == "a"

"""What --help says that open settings become, against what the recipes make of them."""

import dataclasses
import functools
import itertools
import re

import pytest

from nerf.cli.help_text import help_text, leaves
from nerf.cli.train import TrainScriptConfig
from nerf.config import recipe_words
from nerf.config.fields import field_settings, known_fields, settings_of
from nerf.config.recipe_words import DERIVED, DEVICES, POSES, defaults_in_words, shown
from nerf.config.recipes import BACKGROUNDS, KINDS, flat, resolve_config
from nerf.config.schema import Config, DatasetConfig, PosesConfig, TrainConfig

SECONDS = (2.0, 3.0, 5.0, 6.0, 8.0, 8.5, 10.0, 15.0, 20.0, 21.0, 60.0, 300.0)  # at and between the ends of recipes


@functools.cache
def words() -> dict[str, str]:
    """Made when a test asks for them: that takes longer than most files take to be collected."""
    return defaults_in_words()


def holds(condition: str, labels: tuple[str, ...], seconds: float) -> bool:
    """One condition of --help, read anew."""
    for word in condition.split(" or "):
        if found := re.fullmatch(r"up to ([\d.]+) s", word):
            met = seconds <= float(found[1])
        elif found := re.fullmatch(r"over ([\d.]+) s", word):
            met = seconds > float(found[1])
        elif found := re.fullmatch(r"([\d.]+) to ([\d.]+) s", word):
            met = float(found[1]) < seconds <= float(found[2])
        else:
            assert word in (*DEVICES, *KINDS, *POSES, *known_fields()), word
            met = word in labels
        if met:
            return True
    return False


def told(text: str, labels: tuple[str, ...], seconds: float) -> str:
    """The value that the words give in a case."""
    rules = re.findall(r"(\S+) \(([^)]*)\), ", text)
    met = {value for value, conditions in rules if all(holds(c, labels, seconds) for c in conditions.split(", "))}
    assert len(met) <= 1, (text, labels, seconds)
    return met.pop() if met else re.search(r"(?:else )?(\S+)$", text)[1]


@pytest.mark.parametrize("field", known_fields())
@pytest.mark.parametrize("device", DEVICES)
def test_help_says_what_the_recipes_fill_in(device: str, field: str) -> None:
    checked = set()
    for kind, poses, seconds in itertools.product(KINDS, POSES, SECONDS):
        given = Config(
            dataset=DatasetConfig(kind=kind),
            field=settings_of(field)(),
            poses=PosesConfig(**POSES[poses]),
            train=TrainConfig(max_seconds=seconds),
        )
        before, after = (flat(dataclasses.asdict(c)) for c in (given, resolve_config(given, DEVICES[device], kind)))
        for name in {
            name for name, value in before.items() if value is None and after[name] is not None
        } - DERIVED.keys():
            assert told(words()[name], (device, kind, poses, field), seconds) == shown(name, after[name]), name
            checked.add(name)
        assert told(words()["dataset.background"], (kind,), seconds) == after["dataset.background"] == BACKGROUNDS[kind]
    assert len(checked) >= 20


def test_help_shows_the_words_and_no_meaning_repeats_a_number_of_a_recipe() -> None:
    text = help_text(TrainScriptConfig, "")
    for field in field_settings():
        for name, f in leaves(TrainScriptConfig, field):
            if name in words():
                assert not re.search(r"\b(none|auto) = ", f.metadata["doc"]), f"{name}: its recipes tell that"
                assert name == "field.name" or f"= {words()[name]}\n" in text, name
    assert "0.05 (box, GPU, up to 8 s" in words()["field.lr_features"] or "up to 8 s" in words()["field.lr_features"]


def test_a_setting_that_depends_on_nothing_is_one_value() -> None:
    table = {(device, kind): "3" for device in ("GPU", "CPU") for kind in ("bounded", "forward_facing")}
    assert recipe_words._in_words(table) == "3"
    assert recipe_words._in_words(table | {("GPU", "bounded"): "4"}) == "4 (GPU, bounded), else 3"

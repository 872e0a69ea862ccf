"""Names that a package offers and imports from their modules only when they are first used."""

import importlib
from collections.abc import Callable, Mapping, Sequence


def exports(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """__getattr__, __dir__ and __all__ of a package.

    package: its __name__. homes: each module with the names that the package offers of it.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(importlib.import_module(home_of[name]), name)

    return find, lambda: sorted(home_of), sorted(home_of)

"""Lists of folders on the command line, as runs= and ensemble= take them."""

import pytest

from nerf.cli.open_run import listed


@pytest.mark.parametrize(
    ("given", "folders"),
    [
        ("outputs/A,outputs/B", ["outputs/A", "outputs/B"]),
        (" a , b ,", ["a", "b"]),
        ("'w a,b',c", ["w a,b", "c"]),
        ("a,\"b, c\" ,'d'", ["a", "b, c", "d"]),
        ("it's,b", ["it's", "b"]),
        (",", []),
    ],
)
def test_a_name_with_a_comma_is_quoted(given: str, folders: list[str]) -> None:
    assert listed(given) == folders

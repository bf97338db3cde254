import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "walkthrough.md"


def test_every_example_on_the_page_gives_the_answer_it_shows() -> None:
    tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried.attempted >= 12
    assert tried.failed == 0

"""With a path left for long enough every write completes exactly once with exactly its bytes,
whatever befalls the two hosts meanwhile.

What a play asks for is in play.py, what must hold at every moment of it in watch.py.
"""

from __future__ import annotations

from hypothesis import given

from tests.properties.play import ACTIONS, SETTINGS, Action, Setting, play
from tests.properties.profiles import QUICK


@QUICK
@given(SETTINGS, ACTIONS)
def test_whatever_befalls_them_every_write_arrives_once_and_every_path_comes_back(
    setting: Setting, actions: list[Action]
) -> None:
    play(setting, actions)

"""``mrcbed`` whose runs leave no figures, replay and report, for tests whose subject they are not:
``python -m tests.emulated.undrawn``."""

from __future__ import annotations

from mrcbed.start import main  # isort: skip  before anything large: it takes care of Ctrl-C

from pathlib import Path

from scenarios.show import html, plots, replay_page


def nothing(directory: Path) -> None:
    pass


if __name__ == "__main__":
    for module, name in ((plots, "draw_all"), (replay_page, "replay"), (html, "write_report")):
        assert hasattr(module, name)
        setattr(module, name, nothing)
    main()

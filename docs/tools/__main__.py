"""Check the Markdown files: ``python -m docs.tools [FILE...]``, in `make lint`. Exit status 1 if
something is named that does not exist.

Checked are links between files and to headings, figures, files and modules of this repository.
Links to other sites are not.
"""

from __future__ import annotations

import sys
from pathlib import Path

from docs.tools.check import ROOT, Tree, pages, troubles

if __name__ == "__main__":
    tree = Tree(ROOT)
    checked = [Path(name).resolve() for name in sys.argv[1:]] or pages(ROOT)
    found = [line for page in checked for line in troubles(page, tree)]
    print(
        "\n".join(
            [*found, f"docs: {len(checked)} pages, {len(found)} names of what does not exist"]
        )
    )
    sys.exit(1 if found else 0)

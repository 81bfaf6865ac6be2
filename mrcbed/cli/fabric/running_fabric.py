"""Access to the controller of a running fabric."""

from __future__ import annotations

import os

from testbed.controller.client import ControllerClient
from testbed.errors import UserError
from testbed.machine import running
from testbed.options import option

TOKEN = "MRCBED_TOKEN"  # noqa: S105
"""Environment variable: the token of --url's controller, for who is not root."""
WIDTH = 140  # columns where there is no terminal: enough for every table
url_option = option(
    "--url", metavar="URL", help="Address of the controller, as `status` at the prompt shows it."
)
json_option = option("--json", "as_json", is_flag=True, help="Print JSON.")


def reach(url: str | None) -> ControllerClient:
    """Return the controller that ``url`` names, or the one on this machine. Raises
    :class:`UserError`."""
    fabrics = running.find()
    if url is not None:
        token = next((r.token for r in fabrics if r.url == url.rstrip("/")), "")
        return ControllerClient(url, os.environ.get(TOKEN, "") or token)
    if not fabrics:
        hint = "" if os.geteuid() == 0 else " that this user may look into: use sudo, or"
        raise UserError(
            "no fabric with a controller is "
            f"up{hint or ': start one with mrcbed up or mrcbed run, or'} give --url"
        )
    if len(fabrics) > 1:
        raise UserError(
            f"{len(fabrics)} fabrics are up "
            f"({', '.join(f'{r.fabric} at {r.url}' for r in fabrics)}): choose with --url"
        )
    return ControllerClient(fabrics[0].url, fabrics[0].token)

"""Certificates of a sweep: both ends of every connection show one, and both check it against the same CA.

Dask's messages are pickles, so who may connect may run programs as the user of a worker. Hence a CA for one group of machines, made by the
``openssl`` program, and no connection without TLS, also on loopback, where other users of the machine are.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from testbed.errors import UserError
from testbed.machine.slowness import patient

DAYS = 825
"""How long certificates hold: the longest that common TLS software still accepts (CA/Browser Forum, ballot 193)."""
CA, CA_KEY, CERTIFICATE, KEY = "ca.pem", "ca.key", "cert.pem", "key.pem"
PORT = 8786
"""Dask's own for its scheduler."""
REACH_S = 5.0
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,62}")
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")


@dataclass(frozen=True)
class Identity:
    """A folder with ``ca.pem``, and a certificate of that CA: ``cert.pem`` with ``key.pem``."""

    folder: Path

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def context(self, server: bool = False) -> ssl.SSLContext:
        """Return a context that demands a certificate of the CA. Raises :class:`UserError` for files that are missing or do not fit."""
        for name in (CA, CERTIFICATE, KEY):
            if not os.access(self.folder / name, os.R_OK):
                raise UserError(f"--tls {self.folder}: {name} is missing or cannot be read: give a folder that mrcbed certs made")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # as Dask: the CA is the group's own, and who has its certificate belongs to it
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(self.file(CA))
            context.load_cert_chain(self.file(CERTIFICATE), self.file(KEY))
        except (OSError, ssl.SSLError) as error:
            raise UserError(f"--tls {self.folder}: {_reason(error)}: make it again with mrcbed certs") from None
        return context


def make_certificates(folder: Path, names: list[str]) -> list[Path]:
    """Make a CA in ``folder``, unless there is one, and below it a folder for each name. Return these. Raises :class:`UserError`."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise UserError(f"certs {name!r}: a name has letters, digits, '.', '_' and '-': give the machine's name")
        if (folder / name).exists():
            raise UserError(f"certs {name}: {folder / name} exists: give another name, or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (folder / CA).exists():
            _openssl(
                folder, "req", "-x509", *_CURVE, "-keyout", CA_KEY, "-out", CA, "-days", str(DAYS), "-subj", "/CN=mrcbed sweep CA",
                "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            )  # fmt: skip
        made = []
        for name in names:
            place = folder / name
            place.mkdir(mode=0o700)
            request, extensions = place / "request.pem", place / "extensions"
            extensions.write_text("basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n")
            _openssl(place, "req", "-new", *_CURVE, "-keyout", KEY, "-out", request.name, "-subj", f"/CN={name}")
            _openssl(
                place, "x509", "-req", "-in", request.name, "-CA", f"../{CA}", "-CAkey", f"../{CA_KEY}", "-set_serial",
                str(int.from_bytes(os.urandom(16), "big") >> 1), "-days", str(DAYS), "-extfile", extensions.name, "-out", CERTIFICATE,
            )  # fmt: skip
            for scrap in (request, extensions):
                scrap.unlink()
            (place / CA).write_bytes((folder / CA).read_bytes())
            made.append(place)
        return made
    except OSError as error:
        if error.filename is None:  # of no file: openssl could not be started
            raise
        raise UserError(f"certs: {error.filename}: {error.strerror}: give a folder that you may write") from None


def _openssl(folder: Path, *words: str) -> None:
    try:
        done = subprocess.run(
            ["openssl", *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patient(60), umask=0o077,
            check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise UserError("certificates need the openssl program: apt install openssl") from None
    if done.returncode != 0:
        line = (done.stderr.strip().splitlines() or ["failed"])[-1]
        raise UserError(f"certs: openssl {words[0]}: {line}: see whether the program is current")


def address_of(text: str, option: str) -> tuple[str, int]:
    """(host, port) of ``tls://host:port``. Raises :class:`UserError`."""
    example = f"write it like tls://head:{PORT}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise UserError(f"{option} {text}: {example}") from None
    if parts.scheme != "tls":
        raise UserError(f"{option} {text}: connections are encrypted: {example}")
    if not host or not host.isascii() or parts.path or parts.query:
        raise UserError(f"{option} {text}: {example}")
    return host, port or PORT


def reach(address: str, identity: Identity, option: str) -> str:
    """Try a connection to a head and return our own address on the way there. Raises :class:`UserError`: who does not answer, and why."""
    host, port = address_of(address, option)
    context = identity.context()
    try:
        with socket.create_connection((host, port), patient(REACH_S)) as plain:
            own = str(plain.getsockname()[0])
            with context.wrap_socket(plain) as encrypted:
                encrypted.recv(1)  # with TLS 1.3 a server that refuses our certificate says so here at the earliest
            return own
    except ssl.SSLError as error:
        raise UserError(f"{option} {address}: certificates do not fit ({_reason(error)}): make both with one CA, mrcbed certs") from None
    except (OSError, ValueError) as error:  # the second for a name that no DNS can have
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{option} {address}: nobody answers ({reason}): start mrcbed head there, and let port {port} through") from None


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError) and error.reason:
        with suppress(AttributeError):
            return error.reason.lower().replace("_", " ")
    return str(error)

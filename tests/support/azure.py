"""Azurite, Microsoft's emulator of Azure's blob storage, on the loopback."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path

import pytest

PACKAGE = "azurite@3.37.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and the key of every installation of Azurite."""
_VERSION = "2021-08-06"
_SECONDS_MAX = 30


@contextmanager
def emulator(folder: Path, installed: Path) -> Iterator[str]:
    """Run Azurite and yield its address, with the account.

    Args:
        folder: Folder of its data.
        installed: Folder in which npm installs it once. The test is skipped if that fails.
    """
    program = installed / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        if shutil.which("npm") is None:
            pytest.skip("Azurite needs Node.js with npm")
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(installed), PACKAGE]
        if subprocess.run(install, capture_output=True, check=False).returncode:
            pytest.skip(f"npm cannot install {PACKAGE}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address_options = [
        "--location",
        str(folder),
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
    ]
    command = [str(program), *address_options, "--silent", "--skipApiVersionCheck"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}/{ACCOUNT}"
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int) -> None:
    until = time.monotonic() + _SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def create_container(address: str, name: str) -> None:
    """Create a container by a request that the account's key signs.

    Source: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key.
    """
    host = address.removeprefix("http://").partition("/")[0]
    date, resource = formatdate(usegmt=True), f"/{ACCOUNT}/{name}"
    text = "PUT" + 12 * "\n" + f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n"
    text += f"/{ACCOUNT}{resource}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": _VERSION,
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
        "Content-Length": "0",
    }
    connection = HTTPConnection(host)
    connection.request("PUT", f"{resource}?restype=container", headers=headers)
    status = connection.getresponse().status
    connection.close()
    assert status == 201, status

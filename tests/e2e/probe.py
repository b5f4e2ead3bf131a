"""What a hostile repository tries inside a sandbox: `probe.py FOLDER TARGETS` writes one file for each try.

It runs there with nothing but the standard library, and notes what it got or why it got nothing.
"""

import glob
import json
import os
import pathlib
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

LIMIT = 200_000
SEARCH = (
    "timeout 5 grep -rsh spy-mark / --include=secret.txt --include='id_*' --include=.env "
    "--exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude-dir=.pyenv"
)


def shell(command: str) -> str:
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=30, check=False)
    return f"exit {done.returncode}\n{(done.stdout + done.stderr)[:LIMIT].decode('utf-8', 'replace')}"


def read(pattern: str) -> str:
    parts = []
    for name in sorted(glob.glob(pattern))[:200] or [pattern]:  # noqa: PTH207 - absolute patterns
        try:
            parts.append(f"{name}: {pathlib.Path(name).read_bytes()[:LIMIT]!r}")
        except OSError as error:
            parts.append(f"{name}: {error!r}")
    return "\n".join(parts)


def dial(family: int, address: Any) -> str:
    with socket.socket(family, socket.SOCK_STREAM) as link:
        link.settimeout(5)
        link.connect(address)
        link.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return f"connected: {link.recv(1000)!r}"


def fetch(url: str, proxy: str = "") -> str:
    handler = urllib.request.ProxyHandler({"http": proxy, "https": proxy} if proxy else {})
    try:
        with urllib.request.build_opener(handler).open(url, timeout=10) as answer:
            return f"{answer.status} {answer.read(1000)!r}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read(1000)!r}"


def connect(place: str) -> str:
    proxy = os.environ["HTTP_PROXY"].rpartition("/")[2].partition(":")
    with socket.create_connection((proxy[0], int(proxy[2])), timeout=10) as link:
        link.sendall(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        return repr(link.recv(1000))


def tries(to: dict[str, Any]) -> dict[str, Any]:
    """Name → what is tried. `to` names things of the host: files, ports and sockets."""
    port, proxy = to["port"], os.environ.get("HTTP_PROXY", "")
    return {
        "environment": lambda: "\n".join(f"{k}={v}" for k, v in os.environ.items()),
        "environment-of-pid-1": lambda: read("/proc/1/environ"),
        "environment-of-all": lambda: read("/proc/[0-9]*/environ"),
        "command-lines": lambda: read("/proc/[0-9]*/cmdline"),
        "root-of-pid-1": lambda: read(f"/proc/1/root{to['secret']}"),
        "passwords": lambda: read("/etc/shadow") + read("/etc/passwd"),
        "home-of-root": lambda: shell("ls -laR /root /home"),
        "home-of-the-operator": lambda: read(f"{to['home']}/*") + read(f"{to['home']}/.ssh/*"),
        "secret-file": lambda: read(to["secret"]),
        "state-of-the-factory": lambda: shell(f"cat '{to['state']}/ironworks.db' '{to['state']}/'*"),
        "configuration": lambda: shell(f"cat '{to['folder']}/operator.toml' '{to['folder']}/.env'"),
        "committed-link": lambda: read("link-to-secret") + read("link-to-home/*"),
        "parent-folders": lambda: read("../" * 12 + to["secret"].lstrip("/")),
        "search": lambda: shell(SEARCH),
        "host-name": lambda: shell("hostname; uname -a; cat /etc/host* /proc/sys/kernel/hostname"),
        "mount": lambda: shell("mkdir -p m; mount -t proc proc m; unshare -Ur true; nsenter -t 1 -a true"),
        "disks": lambda: shell("ls /dev/sd* /dev/vd* /dev/nvme* /dev/mem; dmesg; head -c9 /dev/mem"),
        "loopback": lambda: dial(socket.AF_INET, ("127.0.0.1", port)),
        "loopback-6": lambda: dial(socket.AF_INET6, ("::1", port)),
        "unix-socket": lambda: dial(socket.AF_UNIX, to["socket"]),
        "nameless-socket": lambda: dial(socket.AF_UNIX, "\0" + to["nameless"]),
        "proxy": lambda: fetch(f"http://127.0.0.1:{port}/", proxy),
        "proxy-by-name": lambda: fetch(f"http://localhost:{port}/", proxy),
        "proxy-by-number": lambda: fetch(f"http://2130706433:{port}/", proxy),
        "tunnel": lambda: connect(f"127.0.0.1:{port}"),
        "tunnel-by-name": lambda: connect(f"localhost:{port}"),
        "route": lambda: fetch(f"{proxy}/host/127.0.0.1:{port}/"),
        "name-look-up": lambda: repr(socket.getaddrinfo("registry.example", 443)),
    }


def main(folder: pathlib.Path, targets: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, attempt in tries(json.loads(targets.read_text())).items():
        try:
            got = attempt()
        except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
            got = repr(error)
        (folder / f"{name}.txt").write_text(f"tried\n{got}", "utf-8", errors="replace")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))

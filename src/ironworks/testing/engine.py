"""A Docker engine of a test's own, with an image made of this machine's packages: nothing is fetched."""

import contextlib
import ctypes
import io
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

IMAGE = "ironworks-test:base"
PACKAGES = """
base-files bash ca-certificates coreutils dash findutils git grep gzip libc-bin login mawk procps python3
python3-minimal sed tar util-linux
"""
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n",
    "etc/group": "root:x:0:\nagent:x:1000:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
SET_PARENT_DEATH_SIGNAL = 1
START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0


class MissingEngine(Exception):
    """Why no engine can be started here."""


@contextlib.contextmanager
def docker_engine() -> Iterator[str]:
    """The path of the socket of a new engine, which holds IMAGE, and ends with the block.

    MissingEngine where there is no dockerd, no Debian packages to make the image of, or no root.
    """
    if os.geteuid() != 0:
        raise MissingEngine("root, to start a container engine")
    dockerd = shutil.which("dockerd", path="/usr/sbin:/usr/bin")
    if dockerd is None or not Path("/usr/bin/dpkg-query").exists():
        raise MissingEngine("dockerd and dpkg: apt-get install docker.io")
    # Short: the socket's path must fit. Of its own: a data root on an overlay would make every layer a copy.
    with tempfile.TemporaryDirectory(prefix="iw-engine-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        address = str(root / "sock")
        with (root / "log").open("wb") as log:
            process = subprocess.Popen(
                [dockerd, "--data-root", str(root / "data"), "--exec-root", str(root / "exec"),
                 "--pidfile", str(root / "pid"), "--host", f"unix://{address}", "--bridge=none",
                 "--iptables=false", "--ip-masq=false"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, preexec_fn=_end_with_us,
            )  # fmt: skip
        try:
            _await(address, process, root / "log")
            _add_image(address)
            yield address
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT_S)
            process.kill()
            process.wait(END_TIMEOUT_S)


def _end_with_us() -> None:
    """The kernel ends the engine when the thread that started it ends, however that comes about."""
    ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def _await(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    from ironworks.sandbox.docker.address import answers

    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not answers(address):
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise MissingEngine(f"a container engine that starts: {log.read_text('utf-8', 'replace')[-300:]}")
        time.sleep(0.1)


def _add_image(address: str) -> None:
    import docker

    with tempfile.TemporaryFile() as archive:
        with tarfile.open(fileobj=archive, mode="w") as image:
            for path in sorted(_files(_needed(PACKAGES.split()))):
                with contextlib.suppress(OSError):
                    image.add(path, path.lstrip("/"), recursive=False)
            for name, target in LINKS.items():
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, target
                image.addfile(link)
            for name, text in FILES.items():
                file = tarfile.TarInfo(name)
                file.size = len(text)
                image.addfile(file, io.BytesIO(text.encode()))
        archive.seek(0)
        client = docker.APIClient(base_url=f"unix://{address}", version="auto", timeout=120)
        repository, _, tag = IMAGE.partition(":")
        chunks = iter(lambda: archive.read(1 << 20), b"")
        client.import_image_from_stream(chunks, repository=repository, tag=tag)
        client.close()


def _needed(packages: Sequence[str]) -> set[str]:
    """They, and what they depend on, of what is installed."""
    fields = "${Package}\t${Pre-Depends}, ${Depends}\t${Provides}\n"
    listing = subprocess.run(
        ["dpkg-query", "-W", "-f", fields], capture_output=True, text=True, check=True, timeout=60
    )
    depends: dict[str, list[str]] = {}
    provided: dict[str, str] = {}
    for line in listing.stdout.splitlines():
        name, wants, provides = line.split("\t")
        alternatives = [each.split("|") for each in wants.split(",")]
        depends[name] = [
            word.split()[0].partition(":")[0] for each in alternatives for word in each if word.strip()
        ]
        provided |= {each.split()[0]: name for each in provides.split(",") if each.strip()}
    found: set[str] = set()
    waiting = [name for name in packages if name in depends]
    while waiting:
        name = waiting.pop()
        name = name if name in depends else provided.get(name, "")
        if name and name not in found:
            found.add(name)
            waiting += depends[name]
    return found


def _files(packages: set[str]) -> set[str]:
    """Where they really lie: some packages still name /bin, which is a link to /usr/bin."""
    listing = subprocess.run(
        ["dpkg-query", "-L", *sorted(packages)], capture_output=True, text=True, check=True, timeout=60
    )
    found = set()
    for line in listing.stdout.splitlines():
        path = Path(line)
        if line.startswith("/") and path.parent != path and not line.startswith("/usr/share/doc/"):
            real = str(path.parent.resolve() / path.name)
            if real.strip("/") not in LINKS and os.path.lexists(real):
                found.add(real)
    return found | {str(path) for path in Path("/etc/alternatives").glob("*awk*")} | {"/usr/bin/awk"}

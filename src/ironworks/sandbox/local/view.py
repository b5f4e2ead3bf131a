"""What of the host a sandbox sees, read-only: listed system folders, toolchains, and an /etc made for it."""

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ironworks.core.errors import RefusedError
from ironworks.core.ports import Mount

SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "debian_version",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "os-release",
    "pki/ca-trust",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
ASKING = "nsswitch.dns"
RUNTIMES = ("python3", "node", "git", "ruby", "go", "cargo", "java", "gcc")
PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
"""Where systems keep the certificates they trust, in one file."""
TRUSTING = (
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
)
"""What makes clients that bring certificates of their own trust the host's too."""
CREDENTIALS = (
    ".npmrc",
    ".pypirc",
    ".netrc",
    "credentials",
    "credentials.toml",
    ".git-credentials",
    "pip.conf",
    ".ssh",
)


class View:
    """The host's part of every sandbox of one backend; found once."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made and holds every `/etc` that was made."""
        self._toolchains = toolchains()
        self._etc = made_etc(folder)

    def environment(self) -> dict[str, str]:
        path = [f"{root}/bin" for root in self._toolchains]
        return {
            "PATH": ":".join([*path, *PATH]),
            "HOME": "/home/agent",
            "USER": "agent",
            "LOGNAME": "agent",
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": "/tmp",
        } | authorities()

    def content(self) -> str:
        """Which system and toolchains are shown: their programs as they are now."""
        folders = [*(f"{root}/bin" for root in self._toolchains), "/usr/bin", "/usr/local/bin"]
        programs = [Path(folder, name) for folder in folders for name in RUNTIMES]
        facts = [(str(path.resolve()), path.stat().st_mtime_ns) for path in programs if path.exists()]
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]

    def arguments(self, *, names: bool = False) -> Iterator[str]:
        """For bubblewrap. `names`: programs ask a name server too, which is the sandbox's own 127.0.0.1."""
        yield from system_arguments()
        yield from ("--ro-bind", str(self._etc), "/etc")
        if names:
            yield from ("--ro-bind", str(self._etc / ASKING), "/etc/nsswitch.conf")
        for root in self._toolchains:
            yield from ("--ro-bind", root, root)


def shown() -> list[Path]:
    """Every place of the host that each sandbox sees."""
    return [Path(path) for path in ("/usr", *SYSTEM, *(f"/etc/{name}" for name in ETC), *toolchains())]


def system_arguments() -> Iterator[str]:
    """The programs and libraries of the host."""
    yield from ("--ro-bind", "/usr", "/usr")
    for path in map(Path, SYSTEM):
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        else:
            yield from ("--ro-bind-try", str(path), str(path))


def authorities() -> dict[str, str]:
    """Variables that name the host's certificates; none where it has no such file."""
    found = next((path for path in AUTHORITIES if Path(path).is_file()), None)
    return dict.fromkeys(TRUSTING, found) if found else {}


def made_etc(folder: Path) -> Path:
    """A copy of what is shown of the host's, with the made files, as it is now.

    One mount instead of twenty: bubblewrap takes a millisecond for each.
    """
    sources = [path for name in ETC if (path := Path("/etc", name)).exists()]
    facts = [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in sources]
    stamp = hashlib.sha256(repr((facts, made_files())).encode()).hexdigest()[:16]
    etc = folder / stamp
    if not etc.exists():
        folder.mkdir(exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder))
        partial.chmod(0o755)
        for path in sources:
            copy(path.resolve(), partial / path.relative_to("/etc"))
        for name, text in made_files().items():
            (partial / name).write_text(text, "utf-8")
        with contextlib.suppress(OSError):
            partial.rename(etc)  # unless another process was faster
        shutil.rmtree(partial, ignore_errors=True)
    return etc


def copy(source: Path, target: Path) -> None:
    """A file, or a folder with its links as they are; what may not be read is left out."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)


def made_files() -> dict[str, str]:
    uid, gid = os.getuid(), os.getgid()
    nobody = "nobody:x:65534:65534:nobody:/:/bin/false\n"
    return {
        "passwd": f"agent:x:{uid}:{gid}:agent:/home/agent:/bin/sh\n" + nobody,
        "group": f"agent:x:{gid}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "hostname": "sandbox\n",
        "resolv.conf": "",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        ASKING: "passwd: files\ngroup: files\nhosts: files dns\n",
    }


def toolchains() -> list[str]:
    """Roots outside /usr of our Python and of the node on the PATH; never one that holds credentials."""
    roots = [Path(sys.base_prefix)]
    if node := shutil.which("node"):
        roots.append(Path(node).resolve().parent.parent)
    return list(dict.fromkeys(str(root) for root in roots if is_toolchain(root)))


def is_toolchain(root: Path) -> bool:
    home = Path.home()
    if root.is_relative_to("/usr") or root == home or root in home.parents:
        return False
    if not os.access(root / "bin", os.R_OK | os.X_OK):
        return False
    return not any((root / name).exists() for name in CREDENTIALS)


def mount_arguments(mounts: tuple[Mount, ...]) -> Iterator[str]:
    for mount in mounts:
        if not (mount.host.startswith("/") and mount.inside.startswith("/")) or mount.inside == "/":
            raise RefusedError(f"a mount needs two absolute paths: {mount.host!r} at {mount.inside!r}")
        yield from ("--ro-bind", mount.host, mount.inside)

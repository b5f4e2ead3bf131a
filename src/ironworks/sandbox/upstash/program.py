"""What runs in a box for one command or file: pid 1's own way of starting them, without pid 1."""

from functools import cache
from pathlib import Path

from ironworks.sandbox import pid1

PYTHON = "/usr/bin/python3"
OWN = "|".join(
    [
        "(HTTPS?|ALL|NO)_PROXY",
        "SSL_CERT_(FILE|DIR)",
        "(REQUESTS|CURL)_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "GIT_SSL_CAINFO",
        "PIP_CERT",
    ]
)
"""Variables of the box itself that every command keeps: its way out, and whom to trust on it."""
MAIN = f"""
def with_own(words):
    import re
    own = re.compile(rb"{OWN}", re.IGNORECASE)
    kept = [name + b"=" + text for name, text in os.environb.items() if own.fullmatch(name)]
    given = 2 + int(words[1])
    return words[:given] + kept + words[given:]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.umask(0o022)
try:
    verb, *words = map(os.fsencode, sys.argv[1:])
    os._exit(perform(verb, with_own(words) if verb == b"exec" else words))
except BaseException as error:
    complain(f"{{type(error).__name__}}: {{error}}")
os._exit(NOT_RUNNABLE)
"""
EVERYTHING = """
import os, signal, sys
mine = {os.getpid(), os.getppid()}
def own(name):
    try: return os.stat(f"/proc/{name}").st_uid == os.getuid()
    except OSError: return False
def others():
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in mine | {1}:
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError: continue
            if own(name) and fields[0] != "Z": yield int(name), fields[0]
def send(pid, number):
    try: os.kill(pid, number)
    except OSError: pass
"""
KILL_ALL = (
    EVERYTHING
    + """
for _ in range(500):
    left = [pid for pid, _ in others()]
    if not left: break
    for pid in left: send(pid, signal.SIGKILL)
"""
)
PAUSE = (
    EVERYTHING
    + """
print(*(pid for pid, state in others() if state == "T"))
for pid, _ in others(): send(pid, signal.SIGSTOP)
"""
)
RESUME = (
    EVERYTHING
    + """
resting = set(map(int, sys.argv[1:]))
for pid, _ in others():
    if pid not in resting: send(pid, signal.SIGCONT)
"""
)
USAGE = (
    EVERYTHING
    + """
total = 0
for folder in ("/work", "/home/agent"):
    for path, folders, files in os.walk(folder):
        for name in files:
            try: total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except OSError: pass
print(total)
"""
)


@cache
def source() -> str:
    """For `python3 -I -S -c`, with a verb and its fields as arguments: see `pid1.perform`."""
    text = Path(pid1.__file__).read_text("utf-8")
    return text.partition('\nif __name__ == "__main__":')[0] + MAIN

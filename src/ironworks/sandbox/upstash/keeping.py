"""What runs in a box for a command that outlives its caller: a keeper each, and a folder on the disk.

order    {"argv", "timeout_s", "limit"}; `in` is its stdin
begun    a folder: whoever makes it starts the command, nobody else ever does
alive    locked as long as the keeper lives, whose id is in it
out, err the first `limit` bytes of each stream
code     {"code", "timed_out", "truncated"}: it is over
"""

FOLDER = "/home/agent/.ironworks/exec"
LIMIT_BYTES = 64_000_000
KEEPER = """
import fcntl, json, os, select, signal, subprocess, sys, time
os.chdir(sys.argv[1])
alive = os.open("alive", os.O_RDWR | os.O_CREAT, 0o600)
for _ in range(40):  # a follower holds it for a moment
    try: fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB); break
    except BlockingIOError: time.sleep(0.05)
else: sys.exit(0)
try: os.mkdir("begun")
except FileExistsError: sys.exit(0)
if os.fork(): os._exit(0)
os.setsid()
null = os.open(os.devnull, os.O_RDWR)
for target in range(3): os.dup2(null, target)
os.write(alive, b"%d" % os.getpid())

def tree(root):
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                found[int(name)] = file.read().rpartition(")")[2].split()
        except OSError: pass
    mine = {pid for pid, fields in found.items() if root in (pid, int(fields[3]))}
    while more := {pid for pid, fields in found.items() if int(fields[1]) in mine} - mine: mine |= more
    return [pid for pid in mine if found[pid][0] != "Z"]

def end(*_):
    global until_s
    until_s = 0

signal.signal(signal.SIGTERM, end)
with open("order", encoding="utf-8") as file: order = json.load(file)
until_s = time.monotonic() + order["timeout_s"]
with open("in", "rb") as given:
    pipes = {"stdin": given, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen(order["argv"], **pipes, start_new_session=True, cwd="/")
files = {pipe.fileno(): open(name, "ab", 0) for pipe, name in ((child.stdout, "out"), (child.stderr, "err"))}
left = dict.fromkeys(files, order["limit"])
rest_s, timed_out, truncated = None, False, False
while files and (rest_s is None or time.monotonic() < rest_s):
    if rest_s is None and child.poll() is not None: rest_s = time.monotonic() + 0.5
    if rest_s is None and time.monotonic() >= until_s:
        timed_out = True
        for _ in range(500):
            if not (members := tree(child.pid)): break
            for pid in members:
                try: os.kill(pid, signal.SIGKILL)
                except OSError: pass
    for pipe in select.select(list(files), [], [], 0.2)[0]:
        if not (data := os.read(pipe, 65536)): del files[pipe]
        elif kept := data[:left[pipe]]: left[pipe] -= len(kept)
        if data:
            truncated |= len(kept) < len(data)
            try: files[pipe].write(kept)
            except OSError: truncated = True
child.wait()
with open("code.new", "w") as file:
    code = None if timed_out else child.returncode
    json.dump({"code": code, "timed_out": timed_out, "truncated": truncated}, file)
os.rename("code.new", "code")
"""
LOCKED = """
import fcntl, os, sys, time
def locked(path):
    try: fd = os.open(path, os.O_RDWR)
    except OSError: return False
    try: fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError: return True
    finally: os.close(fd)
    return False
"""
FOLLOW = (
    LOCKED
    + """
os.chdir(sys.argv[1])
names = {"out": 1, "err": 2}
streams = [(os.open(name, os.O_RDONLY | os.O_CREAT, 0o600), target) for name, target in names.items()]
for (fd, _), start in zip(streams, sys.argv[2:]): os.lseek(fd, int(start), os.SEEK_SET)
def passed():
    some = False
    for fd, target in streams:
        data = os.read(fd, 65536)
        some |= bool(data)
        while data: data = data[os.write(target, data):]
    return some
over = False
while not over:
    over = os.path.exists("code") or not locked("alive")
    while passed(): pass
    if not over: time.sleep(0.1)
"""
)
END = """
import os, signal, sys, time
try:
    with open(sys.argv[1] + "/alive") as file: os.kill(int(file.read()), signal.SIGTERM)
except (OSError, ValueError): sys.exit(0)
for _ in range(100):
    if os.path.exists(sys.argv[1] + "/code"): break
    time.sleep(0.1)
"""
BEGUN = """
import os, sys
print(int(os.path.exists(sys.argv[1] + "/begun")))
"""
RUNNING = (
    LOCKED
    + """
try: names = os.listdir(sys.argv[1])
except OSError: names = []
print(sum(locked(f"{sys.argv[1]}/{name}/alive") for name in names))
"""
)

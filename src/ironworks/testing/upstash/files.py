"""The files of an emulated box, worked on from inside it: one JSON task on stdin, one JSON answer on stdout.

It runs as `python3 -I -S files.py ACTION` in the box, so no path in it can mean a file of the host. Contents
are base64. Anything outside the workspace is refused, also by way of a symbolic link.
"""

# It runs alone with the system's Python.
# ruff: noqa: PTH102, PTH103, PTH104, PTH106, PTH108, PTH112, PTH114
# ruff: noqa: PTH116, PTH118, PTH119, PTH120, PTH123, PTH208

import base64
import json
import os
import shutil
import stat
import sys
import time
from typing import Any

WORKSPACE = "/workspace/home"
MAX_READ = 8 << 20
Task = dict[str, Any]


class Refused(Exception):
    """An answer other than 200: status and text."""


def place(path: str, *, follow: bool = True) -> str:
    """An absolute path in the workspace; where `follow` is false the last name may be a link to anywhere."""
    whole = os.path.normpath(os.path.join(WORKSPACE, path))
    real = os.path.realpath(whole)
    if not follow and whole != WORKSPACE:
        real = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
    if real != WORKSPACE and not real.startswith(WORKSPACE + "/"):
        raise Refused(403, "permission_denied")
    return real


def read(task: Task) -> Task:
    path = regular(task["path"])
    offset, length = int(task.get("offset") or 0), task.get("length")
    if length is not None and int(length) > MAX_READ:
        raise Refused(400, f"at most {MAX_READ} bytes in one read")
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read() if length is None else file.read(int(length))
    return {"data": base64.b64encode(data).decode()}


def regular(path: str) -> str:
    real = place(path)
    if not stat.S_ISREG(os.stat(real).st_mode):
        raise Refused(400, f"not a file: {path}")
    return real


def write(task: Task) -> Task:
    path = place(task["path"])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(base64.b64decode(task["data"]))
    return {}


def describe(task: Task) -> Task:
    path = place(task["path"], follow=bool(task.get("follow")))
    found = os.stat(path) if task.get("follow") else os.lstat(path)
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
    return {
        "type": kinds.get(stat.S_IFMT(found.st_mode), "other"),
        "size": found.st_size,
        "mod_time": moment(found.st_mtime),
        "inode": found.st_ino,
        "version": f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}",
    }


def listing(task: Task) -> Task:
    asked = task.get("folder") or WORKSPACE
    folder = place(asked)
    files = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        found = os.lstat(path)
        files.append(
            {
                "name": name,
                "path": path,
                "size": found.st_size,
                "is_dir": os.path.isdir(path),
                "mod_time": moment(found.st_mtime),
            }
        )
    return {"files": files or None}


def make_folder(task: Task) -> Task:
    path = place(task["path"])
    if task.get("parents"):
        os.makedirs(path, exist_ok=True)
    else:
        os.mkdir(path)
    return {}


def rename(task: Task) -> Task:
    os.rename(place(task["from"], follow=False), place(task["to"], follow=False))
    return {}


def remove(task: Task) -> Task:
    path = place(task["path"], follow=False)
    if path == WORKSPACE:
        raise Refused(403, "permission_denied")
    if not os.path.isdir(path) or os.path.islink(path):
        os.unlink(path)
    elif task.get("recursive"):
        shutil.rmtree(path)
    else:
        os.rmdir(path)
    return {}


def moment(time_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_s))


ACTIONS = {
    "read": read,
    "write": write,
    "stat": describe,
    "list": listing,
    "mkdir": make_folder,
    "rename": rename,
    "remove": remove,
}


def answer(action: str, task: Task) -> tuple[int, Task]:
    try:
        return 200, ACTIONS[action](task)
    except Refused as refused:
        return refused.args[0], {"error": refused.args[1]}
    except FileNotFoundError:
        return 404, {"error": "file not found"}
    except PermissionError:
        return 403, {"error": "permission_denied"}
    except (OSError, ValueError) as error:
        return 400, {"error": str(error)}


def main() -> None:
    status, body = answer(sys.argv[1], json.load(sys.stdin))
    json.dump({"status": status, "body": body}, sys.stdout)


if __name__ == "__main__":
    main()

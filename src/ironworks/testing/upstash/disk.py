"""Routes of a box's files. The work is done inside the box, by `files.py`."""

import base64
import binascii
import json
from typing import Any

from ironworks.testing.upstash.http import multipart
from ironworks.testing.upstash.jail import PYTHON, WORKSPACE
from ironworks.testing.upstash.service import BOX, ApiError, Box, Call, Reply, Route, route
from ironworks.testing.upstash.thread import in_thread


async def ask(box: Box, action: str, task: dict[str, Any]) -> dict[str, Any]:
    argv = [PYTHON, "-I", "-S", "/run/box/files.py", action]
    async with box.work() as jail:
        outcome = await jail.run(argv, {}, "/", stdin=json.dumps(task).encode())
    try:
        answer = json.loads(outcome.stdout)
    except ValueError:
        raise ApiError(500, "the files of the box cannot be reached") from None
    if answer["status"] != 200:
        raise ApiError(answer["status"], answer["body"]["error"])
    return dict(answer["body"])


async def read(call: Call) -> Reply:
    query = call.request.query
    data = base64.b64decode((await ask(call.box, "read", dict(query)))["data"])
    if query.get("encoding") == "base64":
        return Reply({"content": base64.b64encode(data).decode()})
    return Reply({"content": data.decode("utf-8", "replace")})


async def download(call: Call) -> Reply:
    body = await ask(call.box, "read", {"path": call.request.query.get("folder", "")})
    return Reply(raw=base64.b64decode(body["data"]), headers={"content-type": "application/octet-stream"})


async def write(call: Call) -> Reply:
    body = call.request.json()
    content = str(body.get("content") or "")
    try:
        data = (
            base64.b64decode(content, validate=True) if body.get("encoding") == "base64" else content.encode()
        )
    except (binascii.Error, UnicodeEncodeError):
        raise ApiError(400, "the content cannot be decoded") from None
    await ask(call.box, "write", {"path": call.text("path"), "data": base64.b64encode(data).decode()})
    return Reply()


async def upload(call: Call) -> Reply:
    parts = await in_thread(multipart, call.request)
    paths = [data.decode("utf-8", "replace") for name, data in parts if name == "paths"]
    files = [data for name, data in parts if name == "files"]
    if not files or len(paths) != len(files):
        raise ApiError(400, "every file needs a path")
    for path, data in zip(paths, files, strict=True):
        await ask(call.box, "write", {"path": path, "data": base64.b64encode(data).decode()})
    return Reply()


async def stat(call: Call) -> Reply:
    follow = call.request.query.get("follow") == "true"
    return Reply(await ask(call.box, "stat", {"path": call.request.query.get("path", ""), "follow": follow}))


async def listing(call: Call) -> Reply:
    return Reply(await ask(call.box, "list", {"folder": call.request.query.get("folder") or WORKSPACE}))


async def mkdir(call: Call) -> Reply:
    return Reply(await ask(call.box, "mkdir", call.request.json()))


async def rename(call: Call) -> Reply:
    return Reply(await ask(call.box, "rename", call.request.json()))


async def remove(call: Call) -> Reply:
    return Reply(await ask(call.box, "remove", call.request.json()))


ROUTES: list[Route] = [
    route("GET", BOX + "/files/read", read),
    route("GET", BOX + "/files/download", download),
    route("GET", BOX + "/files/stat", stat),
    route("GET", BOX + "/files/list", listing),
    route("POST", BOX + "/files/write", write),
    route("POST", BOX + "/files/upload", upload),
    route("POST", BOX + "/files/mkdir", mkdir),
    route("POST", BOX + "/files/rename", rename),
    route("POST", BOX + "/files/remove", remove),
]

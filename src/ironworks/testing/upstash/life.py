"""Routes of a box's life: create, look, pause, resume, delete, snapshots."""

from typing import Any

from ironworks.testing.upstash.box import Snapshot
from ironworks.testing.upstash.service import BOX, ApiError, Call, Reply, Route, route


async def create(call: Call) -> Reply:
    body = call.request.json()
    box = await call.service.create(call.tenant, body, None)
    return Reply(await box.public(), 201)


async def restore(call: Call) -> Reply:
    body = call.request.json()
    taken = snapshot(call, str(body.pop("snapshot_id", "")))
    if taken.status != "ready":
        raise ApiError(409, f"the snapshot is {taken.status}")
    box = await call.service.create(call.tenant, body, taken)
    return Reply(await box.public(), 201)


def snapshot(call: Call, id: str) -> Snapshot:
    if id not in call.tenant.snapshots:
        raise ApiError(404, "snapshot not found")
    return call.tenant.snapshots[id]


async def show(call: Call) -> Reply:
    box = call.box
    box.look()
    return Reply(await box.public())


async def listing(call: Call) -> Reply:
    label = call.request.query.get("label")
    found = [box for box in call.tenant.boxes.values() if not label or label in box.labels]
    for box in found:
        box.settle()
    return Reply([await box.public() for box in found])


async def status(call: Call) -> Reply:
    box = call.box
    box.look()
    return Reply({"status": box.status})


async def delete(call: Call) -> Reply:
    await call.service.delete_box(call.tenant, call.box.id)
    return Reply()


async def delete_many(call: Call) -> Reply:
    """The trap of the real service: a list that names nothing means every box there is."""
    ids = call.request.json().get("ids") or list(call.tenant.boxes)
    for id in ids:
        if id in call.tenant.boxes:
            await call.service.delete_box(call.tenant, id)
    return Reply()


async def pause(call: Call) -> Reply:
    box = call.box
    if box.keep_alive:
        raise ApiError(400, "keep-alive boxes cannot be paused")
    if box.status not in {"idle", "running", "paused"}:
        raise ApiError(409, f"the box is {box.status}")
    if call.service.options.pause_s:
        box.later("paused", call.service.options.pause_s)
    else:
        await box.pause()
    return Reply()


async def resume(call: Call) -> Reply:
    box = call.box
    if call.service.options.resume_s and box.status == "paused":
        box.later("idle", call.service.options.resume_s)
    else:
        await box.resume()
    return Reply()


async def take_snapshot(call: Call) -> Reply:
    box = call.box
    if box.status not in {"idle", "running", "paused"}:
        raise ApiError(409, f"the box is {box.status}")
    taken = await call.service.snapshot(call.tenant, box, call.text("name", "snapshot"))
    taken.polls = call.service.options.snapshot_polls
    return Reply(taken.public(), 201)


async def list_snapshots(call: Call) -> Reply:
    box = call.box
    found = [taken for taken in call.tenant.snapshots.values() if taken.box_id == box.id]
    return Reply({"snapshots": [looked_at(taken) for taken in found]})


def looked_at(taken: Snapshot) -> dict[str, Any]:
    shown = taken.public()
    if taken.status == "ready" and taken.polls > 0:
        taken.polls -= 1
        shown["status"] = "creating"
    return shown


async def delete_snapshot(call: Call) -> Reply:
    await call.service.delete_snapshot(call.tenant, call.words[1])
    return Reply()


async def delete_snapshots(call: Call) -> Reply:
    everything = call.request.query.get("all") == "true"
    ids = list(call.tenant.snapshots) if everything else call.request.json().get("ids") or []
    gone = [id for id in ids if id in call.tenant.snapshots]
    for id in gone:
        await call.service.delete_snapshot(call.tenant, id)
    return Reply({"deleted": len(gone)})


ROUTES: list[Route] = [
    route("POST", "/v2/box", create),
    route("GET", "/v2/box", listing),
    route("DELETE", "/v2/box", delete_many),
    route("POST", "/v2/box/from-snapshot", restore),
    route("DELETE", "/v2/box/snapshots", delete_snapshots),
    route("GET", BOX, show),
    route("DELETE", BOX, delete),
    route("GET", BOX + "/status", status),
    route("POST", BOX + "/pause", pause),
    route("POST", BOX + "/resume", resume),
    route("POST", BOX + "/snapshots", take_snapshot),
    route("GET", BOX + "/snapshots", list_snapshots),
    route("DELETE", BOX + "/snapshots/([^/]+)", delete_snapshot),
]

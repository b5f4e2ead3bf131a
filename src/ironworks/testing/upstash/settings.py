"""Routes of what can be changed about a box and an account, and of what was recorded."""

import secrets
from typing import Any

from ironworks.testing.upstash.service import BOX, ApiError, Call, Reply, Route, check_labels, route

MODES = frozenset({"allow-all", "deny-all", "custom"})


async def set_git(call: Call) -> Reply:
    body, box = call.request.json(), call.box
    box.git |= {name: body[name] for name in box.git if body.get(name)}
    return Reply(dict(box.git))


async def set_model(call: Call) -> Reply:
    call.box.body["model"] = call.text("model")
    return Reply()


async def set_runner(call: Call) -> Reply:
    call.box.body["custom_runner"] = call.request.json().get("custom_runner")
    return Reply()


async def set_policy(call: Call) -> Reply:
    policy = call.request.json()
    if policy.get("mode") not in MODES:
        raise ApiError(400, "unknown network policy mode")
    call.box.policy = policy
    return Reply(policy)


async def add_label(call: Call) -> Reply:
    box, label = call.box, call.text("label")
    if label in box.labels:
        raise ApiError(409, "label already exists")
    check_labels([*box.labels, label])
    box.labels.append(label)
    return Reply({"message": "Label added", "labels": box.labels})


async def remove_label(call: Call) -> Reply:
    box, label = call.box, call.words[1]
    if label not in box.labels:
        raise ApiError(404, "label not found")
    box.labels.remove(label)
    return Reply({"message": "Label removed", "labels": box.labels})


async def add_skill(call: Call) -> Reply:
    box = call.box
    box.body["skills"] = [*(box.body.get("skills") or []), call.text("skill_id")]
    return Reply()


async def remove_skill(call: Call) -> Reply:
    box = call.box
    box.body["skills"] = [skill for skill in box.body.get("skills") or [] if skill != call.words[1]]
    return Reply()


async def startup(call: Call) -> Reply:
    """GET, PUT and DELETE of the command that runs whenever the box is started."""
    box = call.box
    if call.request.method == "PUT":
        box.init_command = call.text("init_command")
    elif call.request.method == "DELETE":
        box.init_command = ""
    return Reply({"init_command": box.init_command})


async def logs(call: Call) -> Reply:
    query = call.request.query
    first = number(query.get("offset"), 0)
    last = first + number(query.get("limit"), 100)
    return Reply({"logs": list(call.box.logs)[first:last]})


def number(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 9:
        raise ApiError(400, "not a number")
    return int(text)


async def runs(call: Call) -> Reply:
    return Reply({"runs": list(call.box.runs)})


async def cancel(call: Call) -> Reply:
    if not any(run["id"] == call.words[1] for run in call.box.runs):
        raise ApiError(404, "run not found")
    return Reply()


async def add_preview(call: Call) -> Reply:
    """The address is made up: nothing answers there."""
    box, body = call.box, call.request.json()
    port = body.get("port")
    if not isinstance(port, int) or not 0 < port < 65536:
        raise ApiError(400, "port is required")
    await box.resume()
    url = f"https://{box.id}-{port}.preview.box.invalid"
    box.previews[port] = {
        "id": f"{box.id}-{port}",
        "port": port,
        "url": url,
        "created_at": box.now(),
        "basic_auth": bool(body.get("basic_auth")),
        "bearer_token": bool(body.get("bearer_token")),
    }
    answer: dict[str, Any] = {"url": url, "port": port}
    if body.get("bearer_token"):
        answer["token"] = secrets.token_hex(16)
    if body.get("basic_auth"):
        answer |= {"username": "box", "password": secrets.token_hex(16)}
    return Reply(answer)


async def previews(call: Call) -> Reply:
    return Reply({"previews": list(call.box.previews.values())})


async def remove_preview(call: Call) -> Reply:
    call.box.previews.pop(number(call.words[1], 0), None)
    return Reply()


async def add_schedule(call: Call) -> Reply:
    """Kept and shown; it never fires."""
    box, body = call.box, call.request.json()
    id = f"schedule_{secrets.token_hex(6)}"
    kept: dict[str, Any] = {
        key: body[key] for key in ("command", "prompt", "folder", "model", "timeout") if key in body
    }
    box.schedules[id] = {
        **kept,
        "id": id,
        "box_id": box.id,
        "type": call.text("type"),
        "cron": call.text("cron"),
        "status": "active",
        "total_runs": 0,
        "total_failures": 0,
        "created_at": box.now(),
        "updated_at": box.now(),
    }
    return Reply(box.schedules[id], 201)


def schedule(call: Call) -> dict[str, Any]:
    found = call.box.schedules.get(call.words[1])
    if found is None:
        raise ApiError(404, "schedule not found")
    return found


async def schedules(call: Call) -> Reply:
    return Reply(list(call.box.schedules.values()))


async def show_schedule(call: Call) -> Reply:
    return Reply(schedule(call))


async def change_schedule(call: Call) -> Reply:
    found = schedule(call)
    found |= {
        key: value for key, value in call.request.json().items() if key not in {"id", "box_id", "status"}
    }
    return Reply(found)


async def remove_schedule(call: Call) -> Reply:
    del call.box.schedules[schedule(call)["id"]]
    return Reply()


async def pause_schedule(call: Call) -> Reply:
    schedule(call)["status"] = "paused"
    return Reply()


async def resume_schedule(call: Call) -> Reply:
    schedule(call)["status"] = "active"
    return Reply()


async def show_env(call: Call) -> Reply:
    return Reply({"env_vars": dict.fromkeys(call.tenant.env, "********")})


async def set_all_env(call: Call) -> Reply:
    asked = call.request.json().get("env_vars")
    if not isinstance(asked, dict):
        raise ApiError(400, "env_vars is required")
    call.tenant.env.clear()
    call.tenant.env |= {str(key): str(value) for key, value in asked.items()}
    return await show_env(call)


async def set_env(call: Call) -> Reply:
    call.tenant.env[call.words[0]] = str(call.request.json().get("value") or "")
    return await show_env(call)


async def remove_env(call: Call) -> Reply:
    call.tenant.env.pop(call.words[0], None)
    return await show_env(call)


ROUTES: list[Route] = [
    route("PUT", BOX + "/config/git", set_git),
    route("PUT", BOX + "/config/model", set_model),
    route("PUT", BOX + "/config/custom-runner", set_runner),
    route("PUT", BOX + "/config/network-policy", set_policy),
    route("POST", BOX + "/config/labels", add_label),
    route("DELETE", BOX + "/config/labels/(.+)", remove_label),
    route("POST", BOX + "/config/skills", add_skill),
    route("DELETE", BOX + "/config/skills/(.+)", remove_skill),
    route("GET", BOX + "/startup", startup),
    route("PUT", BOX + "/startup", startup),
    route("DELETE", BOX + "/startup", startup),
    route("GET", BOX + "/logs", logs),
    route("GET", BOX + "/runs", runs),
    route("POST", BOX + "/runs/([^/]+)/cancel", cancel),
    route("POST", BOX + "/preview", add_preview),
    route("GET", BOX + "/preview", previews),
    route("DELETE", BOX + "/preview/([^/]+)", remove_preview),
    route("POST", BOX + "/schedules", add_schedule),
    route("GET", BOX + "/schedules", schedules),
    route("GET", BOX + "/schedules/([^/]+)", show_schedule),
    route("PATCH", BOX + "/schedules/([^/]+)", change_schedule),
    route("DELETE", BOX + "/schedules/([^/]+)", remove_schedule),
    route("POST", BOX + "/schedules/([^/]+)/pause", pause_schedule),
    route("POST", BOX + "/schedules/([^/]+)/resume", resume_schedule),
    route("GET", "/v2/box/settings/env", show_env),
    route("PUT", "/v2/box/settings/env", set_all_env),
    route("PUT", "/v2/box/settings/env/([^/]+)", set_env),
    route("DELETE", "/v2/box/settings/env/([^/]+)", remove_env),
]

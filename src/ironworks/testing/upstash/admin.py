"""The emulator's own routes, `/emulator/…`, for tests that run it as another process. They need no key."""

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ironworks.testing.upstash.fault import Creation, Fault
from ironworks.testing.upstash.http import ApiError, Reply, Request

if TYPE_CHECKING:
    from ironworks.testing.upstash.emulator import UpstashEmulator


async def answer(emulator: "UpstashEmulator", request: Request) -> Reply:
    try:
        return Reply(await act(emulator, request))
    except ApiError as error:
        return Reply({"error": str(error)}, error.status)
    except (ValidationError, ValueError, TypeError) as error:
        return Reply({"error": str(error)}, 400)


async def act(emulator: "UpstashEmulator", request: Request) -> Any:
    action = f"{request.method} {request.path.removeprefix('/emulator/')}"
    if action == "GET boxes":
        return [{**await box.public(), "processes": await box.processes()} for box in emulator.boxes()]
    if action == "GET requests":
        return [vars(seen) for seen in emulator.requests]
    if action == "GET exchanges":
        return [seen._asdict() for seen in emulator.exchanges()]
    if action == "POST clock":
        await emulator.advance(float(request.json()["advance_s"]))
        return {"now": emulator.clock.now().isoformat()}
    if action == "POST faults":
        emulator.spoil(Fault.model_validate(request.json()))
        return {}
    if action == "DELETE faults":
        emulator.service.faults.clear()
        return {}
    if action == "POST creations":
        emulator.next_creation(Creation.model_validate(request.json()))
        return {}
    raise ApiError(404, f"no such action: {action}")

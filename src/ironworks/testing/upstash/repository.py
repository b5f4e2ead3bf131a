"""Routes of a box's git, over a real git inside the box."""

from ironworks.testing.upstash.jail import Outcome
from ironworks.testing.upstash.service import BOX, ApiError, Box, Call, Reply, Route, route
from ironworks.testing.upstash.work import place


async def git(box: Box, folder: object, *words: str) -> Outcome:
    identity = {
        "GIT_AUTHOR_NAME": box.git["git_user_name"],
        "GIT_AUTHOR_EMAIL": box.git["git_user_email"],
        "GIT_COMMITTER_NAME": box.git["git_user_name"],
        "GIT_COMMITTER_EMAIL": box.git["git_user_email"],
        "GIT_TERMINAL_PROMPT": "0",
    }
    async with box.work() as jail:
        return await jail.run(["git", *words], box.environment(identity), place(folder))


def text(outcome: Outcome) -> str:
    """What it printed; ApiError with what it complained of when it failed."""
    if outcome.ending.exit_code:
        raise ApiError(500, outcome.stderr.decode("utf-8", "replace").strip() or "git failed")
    return outcome.stdout.decode("utf-8", "replace")


def optional(call: Call, name: str) -> list[str]:
    value = call.request.json().get(name)
    return [str(value)] if value else []


async def clone(call: Call) -> Reply:
    body = call.request.json()
    words = ["clone", "--quiet"]
    words += ["--branch", str(body["branch"])] if body.get("branch") else []
    words += ["--depth", str(body["depth"])] if body.get("depth") else []
    text(await git(call.box, "", *words, "--", call.text("repo"), *optional(call, "folder")))
    return Reply()


async def diff(call: Call) -> Reply:
    return Reply({"diff": text(await git(call.box, call.request.query.get("folder"), "diff", "HEAD"))})


async def status(call: Call) -> Reply:
    return Reply(
        {"status": text(await git(call.box, call.request.query.get("folder"), "status", "--porcelain"))}
    )


async def commit(call: Call) -> Reply:
    body, box = call.request.json(), call.box
    folder = body.get("folder")
    author = []
    if body.get("author_name") or body.get("author_email"):
        name, email = body.get("author_name"), body.get("author_email")
        author = ["--author", f"{name or box.git['git_user_name']} <{email or box.git['git_user_email']}>"]
    text(await git(box, folder, "add", "--all"))
    text(await git(box, folder, "commit", "--quiet", *author, "-m", call.text("message")))
    sha = text(await git(box, folder, "rev-parse", "HEAD")).strip()
    return Reply({"sha": sha, "message": call.text("message")})


async def push(call: Call) -> Reply:
    folder = call.request.json().get("folder")
    branch = optional(call, "branch") or ["HEAD"]
    text(await git(call.box, folder, "push", "--quiet", "origin", *branch))
    return Reply()


async def checkout(call: Call) -> Reply:
    folder = call.request.json().get("folder")
    text(await git(call.box, folder, "checkout", "--quiet", call.text("branch")))
    return Reply()


async def execute(call: Call) -> Reply:
    body = call.request.json()
    words = body.get("args")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ApiError(400, "args must be a list of words")
    outcome = await git(call.box, body.get("folder"), *words)
    output = (outcome.stdout + outcome.stderr).decode("utf-8", "replace")
    return Reply({"output": output, "exit_code": outcome.ending.exit_code})


ROUTES: list[Route] = [
    route("POST", BOX + "/git/clone", clone),
    route("GET", BOX + "/git/diff", diff),
    route("GET", BOX + "/git/status", status),
    route("POST", BOX + "/git/commit", commit),
    route("POST", BOX + "/git/push", push),
    route("POST", BOX + "/git/checkout", checkout),
    route("POST", BOX + "/git/exec", execute),
]

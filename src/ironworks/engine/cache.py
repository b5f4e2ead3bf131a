"""What `prepare` has fetched stays in the base snapshot: agents can install it again with no network."""

import re
from collections.abc import Mapping, Sequence

from ironworks.core.ports import Sandbox
from ironworks.core.settings import Settings
from ironworks.sandbox.checkout import HOME

WHEELS = f"{HOME}/.cache/ironworks/wheels"
TIMEOUT_S = 1800
PIP = re.compile(r"\b(pip3?|uv|poetry|pipenv)\b")
INDEXES = frozenset({"pip", "uv"})
FETCH = f"""
mkdir -p {WHEELS}
for python in /work/*/bin/python /work/.*/bin/python {HOME}/*/bin/python {HOME}/.*/bin/python \\
    /usr/bin/python3; do
  [ -x "$python" ] || continue
  only=; [ "$python" = /usr/bin/python3 ] && only=--user
  "$python" -m pip freeze --exclude-editable $only 2>/dev/null | grep -E "^[A-Za-z0-9._-]+==" > /tmp/installed
  [ -s /tmp/installed ] || continue
  "$python" -m pip download -q --no-deps -d {WHEELS} -r /tmp/installed
  python3 -c "$BUILD_REQUIRES" > /tmp/builders
  "$python" -m pip download -q --prefer-binary -d {WHEELS} -r /tmp/builders
done
true
"""
BUILD_REQUIRES = """
import sys
found = ["setuptools", "wheel"]
try:
    import tomllib
    with open("pyproject.toml", "rb") as file:
        found += tomllib.load(file)["build-system"]["requires"]
except Exception:
    pass
print(*found, sep=chr(10))
"""


async def warm(sandbox: Sandbox, prepare: Sequence[str], env: Mapping[str, str]) -> None:
    """Keep the wheels of what `prepare` has installed, and of what builds the project itself.

    npm and uv keep by themselves what they fetched. What cannot be had again is simply not kept.
    """
    if uses_pip(prepare):
        more = {**env, "BUILD_REQUIRES": BUILD_REQUIRES}
        await sandbox.exec(["sh", "-c", FETCH], env=more, timeout_s=TIMEOUT_S)


def offline(settings: Settings) -> dict[str, str]:
    """What makes installers in an agent's sandbox use what is kept, and not wait for what is out of reach."""
    env = {"npm_config_prefer_offline": "true", "npm_config_audit": "false", "npm_config_fund": "false"}
    if uses_pip(settings.project.prepare):
        env |= {"PIP_FIND_LINKS": WHEELS, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        if not INDEXES & set(settings.network.allow):
            # It asks once all the same: that an agent wants something new is to be seen.
            env |= {"PIP_RETRIES": "0", "UV_OFFLINE": "1"}
    return env


def uses_pip(prepare: Sequence[str]) -> bool:
    return any(PIP.search(command) for command in prepare)

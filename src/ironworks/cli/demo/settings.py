"""What the operator of a demo's factories says."""

import json
import os

from ironworks.core.errors import ConfigError
from ironworks.sandbox.local.cgroup import Cgroups

SCRIPTED = """\
[agent]
use = "builtin"
model = "claude-sonnet-4-5"
silence_s = {silence_s}

[limits]
parallel = {parallel}
lease_s = 15

[network]
prepare = ["pip"]

[providers.scripted]
kind = "anthropic"
base_url = "{base_url}"
key = "env:DEMO_KEY"
"""
PIDS = """
[sandbox]
pids = 400
"""
LIVE = """\
[agent]
use = {agent}
model = {model}

[budget]
run_usd = {budget_usd}

[network]
prepare = ["pip"]

[providers.anthropic]
kind = "anthropic"
base_url = {base_url}
key = "env:ANTHROPIC_API_KEY"
"""
MODEL = "claude-sonnet-4-5"
PROVIDER = "https://api.anthropic.com"


def scripted_settings(base_url: str, parallel: int, *, chaos: bool) -> str:
    """Of a factory whose model is played at `base_url`."""
    settings = SCRIPTED.format(base_url=base_url, parallel=parallel, silence_s=12 if chaos else 120)
    limited = chaos and "pids_limit" in Cgroups("ironworks-demo").capabilities()
    return settings + (PIDS if limited else "")


def live_settings(agent: str, model: str, budget_usd: float) -> str:
    """Of a factory with a real model. ConfigError without a key."""
    if not os.environ.get("ANTHROPIC_API_KEY"):
        raise ConfigError(
            "--live needs a key for a real model, and ANTHROPIC_API_KEY is not set",
            hint="export ANTHROPIC_API_KEY=..., or leave --live out: the script needs no key",
        )
    words = (agent or "builtin", model or MODEL, os.environ.get("ANTHROPIC_BASE_URL") or PROVIDER)
    quoted = dict(zip(("agent", "model", "base_url"), map(json.dumps, words), strict=True))
    return LIVE.format(**quoted, budget_usd=budget_usd)

"""The builtin agent, as it runs inside a sandbox: stdlib only, packed into one file for `python3 -I`.

It talks to the Messages API until the model hands off, keeps the conversation on disk after every message,
and tells what happens as JSON lines on stdout. Exit codes: 0 handed off, 1 the provider refuses or fails,
3 no handoff, 4 in a loop. Its modules import one another relatively: nothing else of the project is there.
"""

"""One module per coding agent, the prompts, and the tools inside the sandbox."""

"""The durable pipeline: one flow per issue, its stages, scheduling, recovery. The only importer of dbos."""

"""The sandbox backend on a container engine: Docker's, or Podman's socket."""

from ironworks.sandbox.docker.backend import DockerBackend

__all__ = ["DockerBackend"]

"""Every error the factory raises, as one tree.

IronworksError                 code, hint, retry
├── ConfigError        (ValueError)    config           what the operator wrote cannot be used
│   ├── UsageError                     usage            the command line asks for something impossible
│   └── TrustError                     untrusted        a repository asks for what only an operator may grant
├── MissingError       (LookupError)   missing          a thing named does not exist
├── ConflictError                      conflict         somebody else changed it first
│   ├── BusyError                      busy             another process holds this state directory or lease
│   └── FencedError                    fenced           our claim was lost: nothing more may be written for it
├── RefusedError       (ValueError)    refused          input that is hostile, broken or over a limit
├── GitError           (RuntimeError)  git              the git binary failed
├── SandboxError       (RuntimeError)  sandbox          a sandbox could not be made or died
│   └── CapabilityError                capability       this host cannot do what was asked
├── ProviderError      (RuntimeError)  provider         a model provider is unreachable or refuses us
└── StoreError         (RuntimeError)  store            the database cannot be used

Expected outcomes (tests failed, claim lost in a race, budget spent) are values, never errors.
"""

from typing import ClassVar, Literal

Retry = Literal["never", "now", "later"]


class IronworksError(Exception):
    """Root of the tree.

    `code` is stable and names the error in the documentation; `hint` says what to do next;
    `retry` says whether the same call may succeed: never, now, or later.
    """

    code: ClassVar[str] = "error"
    retry: ClassVar[Retry] = "never"
    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class ConfigError(IronworksError, ValueError):
    code = "config"
    exit_code = 2


class UsageError(ConfigError):
    code = "usage"


class TrustError(ConfigError):
    code = "untrusted"


class MissingError(IronworksError, LookupError):
    code = "missing"
    exit_code = 2


class ConflictError(IronworksError):
    code = "conflict"
    retry: ClassVar[Retry] = "now"


class BusyError(ConflictError):
    code = "busy"
    retry: ClassVar[Retry] = "later"
    exit_code = 2


class FencedError(ConflictError):
    code = "fenced"
    retry: ClassVar[Retry] = "never"


class RefusedError(IronworksError, ValueError):
    code = "refused"


class GitError(IronworksError, RuntimeError):
    code = "git"


class SandboxError(IronworksError, RuntimeError):
    code = "sandbox"
    retry: ClassVar[Retry] = "now"


class CapabilityError(SandboxError):
    code = "capability"
    retry: ClassVar[Retry] = "never"


class ProviderError(IronworksError, RuntimeError):
    code = "provider"
    retry: ClassVar[Retry] = "later"


class StoreError(IronworksError, RuntimeError):
    code = "store"

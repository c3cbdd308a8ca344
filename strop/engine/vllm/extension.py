"""What vLLM's workers get from `--worker-extension-cls`: one method, that lends them to a judge."""

from __future__ import annotations

import importlib
import os

__all__ = ["WorkerExtension"]


def _users_own() -> type:
    """Return the extension class that the user's command named, which ours then builds on."""
    name = os.environ.get("STROP_USER_EXTENSION", "")
    if not name:
        return object
    module, _, attribute = name.rpartition(".")
    found: type = getattr(importlib.import_module(module), attribute)
    return found


class WorkerExtension(_users_own()):  # type: ignore[misc]
    """Added by vLLM to the bases of its worker class."""

    def strop_serve(self, path: str) -> str:
        """Serve the judge that listens on a Unix socket until it hangs up; see `session`.

        Returns:
            The id of the version that is live now.
        """
        from strop.engine.vllm import session

        return session.serve(self, path)

"""What the tests of whole searches share with the fast ones."""

from ...bisect.conftest import bisect, history

__all__ = ["bisect", "history"]

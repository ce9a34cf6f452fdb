"""What a command gets to see of the environment: everything but secrets."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["SECRETS", "scrub"]

SECRETS: tuple[str, ...] = (
    "*SECRET*", "*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*CREDENTIAL*", "*TOKEN*",
    "*API_KEY*", "*APIKEY*", "*ACCESS_KEY*", "*PRIVATE_KEY*", "*_KEY", "*_PAT", "*_DSN",
    "*_AUTH", "DATABASE_URL", "*_CONNECTION_STRING", "*COOKIE*",
)  # fmt: skip
"""Names that usually hold secrets, as shell patterns; upper and lower case are the same."""


def scrub(
    environment: Mapping[str, str],
    *,
    secrets: Iterable[str] = SECRETS,
    allow: Iterable[str] = (),
) -> dict[str, str]:
    """Return an environment without the variables whose names look like secrets.

    Parameters:
        environment: by name.
        secrets: patterns of names that are left out.
        allow: patterns of names that stay, whatever they look like.
    """
    hidden = [pattern.upper() for pattern in secrets]
    allowed = [pattern.upper() for pattern in allow]

    def stays(name: str) -> bool:
        upper = name.upper()
        if any(fnmatch.fnmatchcase(upper, pattern) for pattern in allowed):
            return True
        return not any(fnmatch.fnmatchcase(upper, pattern) for pattern in hidden)

    return {name: value for name, value in environment.items() if stays(name)}

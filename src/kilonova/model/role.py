"""Roles of API tokens: each role includes the permissions of those before it."""

from __future__ import annotations

import enum


class Role(enum.Enum):
    """Role that a token grants."""

    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"

    def may(self, needed: Role) -> bool:
        """Return whether this role includes the permissions of another.

        >>> Role.OPERATE.may(Role.READ), Role.OPERATE.may(Role.ADMIN)
        (True, False)
        """
        order = list(Role)
        return order.index(self) >= order.index(needed)

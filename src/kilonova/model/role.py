"""A role says what somebody may do from outside: each may do what those before it may."""

from __future__ import annotations

import enum


class Role(enum.Enum):
    """What a token is good for."""

    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"

    def may(self, needed: Role) -> bool:
        """Whether this role may do what another one is needed for.

        >>> Role.OPERATE.may(Role.READ), Role.OPERATE.may(Role.ADMIN)
        (True, False)
        """
        order = list(Role)
        return order.index(self) >= order.index(needed)

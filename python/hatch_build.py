"""Puts the shaver program into a wheel, which then has the tag of the program's platform."""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProgramHook(BuildHookInterface):  # type: ignore[type-arg,unused-ignore,misc]
    """Reads two environment variables, which "make wheels" sets.

    SHAVER_WHEEL_PROGRAM is the path of the program, and SHAVER_WHEEL_PLATFORM the platform tag.
    Without them the wheel has no program and fits every platform.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        program = os.environ.get("SHAVER_WHEEL_PROGRAM")
        if not program or version == "editable":
            return
        build_data["force_include"][program] = "shaver/bin/" + os.path.basename(program)
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + os.environ["SHAVER_WHEEL_PLATFORM"]

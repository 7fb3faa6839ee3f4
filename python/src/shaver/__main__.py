"""Runs the shaver program: ``python -m shaver ARGUMENTS``."""

import os
import subprocess
import sys

from ._binary import binary
from ._errors import Error


def main() -> int:
    try:
        program = binary()
    except Error as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if os.name == "nt":
        return subprocess.call([program, *sys.argv[1:]])
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())

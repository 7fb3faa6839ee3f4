"""Builds the wheels of all platforms and the source distribution: wheels.py [--only PLATFORM] [--programs FOLDER] OUT.

Each wheel has the program for one platform, which Go cross-compiles unless it is in FOLDER. The
script needs Go, and the Python packages build and hatchling. The same source and packages give
the same bytes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# GOOS/GOARCH, and the platform tag of the wheel. Go 1.26 needs macOS 12. The program is static,
# so it needs no version of a C library.
PLATFORMS = {
    "linux/amd64": "manylinux_2_17_x86_64.manylinux2014_x86_64",
    "linux/arm64": "manylinux_2_17_aarch64.manylinux2014_aarch64",
    "darwin/amd64": "macosx_12_0_x86_64",
    "darwin/arm64": "macosx_12_0_arm64",
    "windows/amd64": "win_amd64",
}

HERE = Path(__file__).resolve().parent


def version() -> str:
    """Returns the version of the package."""
    return subprocess.check_output([sys.executable, "-m", "hatchling", "version"], cwd=HERE, text=True).strip()


def build(kind: str, source: Path, out: Path, environment: dict[str, str]) -> None:
    """Builds a wheel or an sdist of the package in source into out."""
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(out), str(source)],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def program(platform: str, folder: Path) -> Path:
    """Returns the program for a platform in folder/PLATFORM. It is compiled unless it is there."""
    system, processor = platform.split("/")
    path = folder / platform / ("shaver.exe" if system == "windows" else "shaver")
    if path.exists():
        return path
    subprocess.run(
        ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", str(path), "./cmd/shaver"],
        cwd=HERE.parent,
        env={**os.environ, "CGO_ENABLED": "0", "GOOS": system, "GOARCH": processor},
        check=True,
    )
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="folder for the files")
    parser.add_argument("--only", choices=sorted(PLATFORMS), help="build one wheel, and no source distribution")
    parser.add_argument("--programs", type=Path, help="folder with built programs, such as linux/amd64/shaver")
    options = parser.parse_args()
    release = version()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The wheels are built from the source distribution, which also has the licence and the notices.
        build("sdist", HERE, folder, {})
        archive = folder / f"shaver-{release}.tar.gz"
        shutil.unpack_archive(archive, folder)
        for platform in [options.only] if options.only else PLATFORMS:
            compiled = program(platform, options.programs.resolve() if options.programs else folder)
            environment = {"SHAVER_WHEEL_PROGRAM": str(compiled), "SHAVER_WHEEL_PLATFORM": PLATFORMS[platform]}
            build("wheel", folder / f"shaver-{release}", options.out, environment)
        if not options.only:
            shutil.copy(archive, options.out)
    for path in sorted(options.out.glob(f"shaver-{release}*")):
        print(f"{path.stat().st_size / 1e6:6.1f} MB  {path.name}")


if __name__ == "__main__":
    main()

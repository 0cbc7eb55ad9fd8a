"""maturin, with the command `terrace` inside the wheel: `pip install` puts it on the PATH."""

import contextlib
import fcntl
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import *  # noqa: F403: the hooks that need nothing of ours.

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "terrace.data" / "scripts"

# maturin asks for the folder before anything is built.
SCRIPTS.mkdir(parents=True, exist_ok=True)


def _profile() -> str:
    """The profile that maturin is asked for: `MATURIN_PEP517_ARGS="--profile verify"`."""
    words = shlex.split(os.environ.get("MATURIN_PEP517_ARGS", ""))
    return words[words.index("--profile") + 1] if "--profile" in words else "release"


def _target() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target"))


@contextlib.contextmanager
def _alone():
    """One wheel at a time: maturin moves the library that cargo built through a folder which all builds share."""
    target = _target()
    target.mkdir(parents=True, exist_ok=True)
    with open(target / "wheel.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _add_command() -> None:
    profile = _profile()
    build = ["cargo", "build", "--locked", "--package", "terrace", "--bin", "terrace", "--profile", profile]
    subprocess.run(build, cwd=HERE.parent, check=True)
    folder = {"dev": "debug", "test": "debug", "bench": "release"}.get(profile, profile)
    shutil.copy2(_target() / folder / "terrace", SCRIPTS / "terrace")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with _alone():
        _add_command()
        return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with _alone():
        _add_command()
        return maturin.build_editable(wheel_directory, config_settings, metadata_directory)

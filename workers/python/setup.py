"""Makes the modules of the .proto files before a build; a source distribution takes the files
along."""

import pathlib
import shutil
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = pathlib.Path(__file__).resolve().parent
PROTOS = HERE.parent.parent / "proto" / "saga"


class BuildPy(build_py):
    def run(self):
        subprocess.run([str(HERE / "generate.sh"), sys.executable], check=True)
        super().run()


class Sdist(sdist):
    def run(self):
        if PROTOS.is_dir():
            shutil.copytree(PROTOS, HERE / "proto" / "saga", dirs_exist_ok=True)
        super().run()


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})

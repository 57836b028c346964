"""The frameworks that jobs name with --exec-start, and what each is here."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.models import DefinitionVersion
from experiments.wmla import answers

Distributed = DefinitionVersion.Distributed


@dataclass(frozen=True)
class Framework:
    """`name` and `app_name` are WMLA's; `distributed` is what a training definition says. `backend` is what clients are told: what is
    trained is what the script makes."""

    name: str
    app_name: str
    distributed: str
    about: str
    backend: str = "pytorch"

    @property
    def one_process(self) -> bool:
        return self.distributed == Distributed.SINGLE

    def described(self) -> dict[str, object]:
        start = f"$ python dlicmd.py --exec-start {self.name} <connection-options>"
        return {
            "name": self.name,
            "description": "",
            "desc": [
                self.about,
                "Examples:",
                f"{start} --cs-datastore-meta type=fs,data_path=mnist --model-main main.py --model-dir model",
            ],
            "deployMode": "cluster",
            "hasTask0": "",
            "execMode": "single" if self.one_process else "distributed",
            "appName": self.app_name,
            "workerMemory": "",
            "frameworkCmdGenerator": "",
            "backend": self.backend,
            "prebuiltModelMain": "",
            "prebuiltModelDir": "",
            "frameworkVersion": "",
        }


ALL = (
    Framework("edtPyTorch", "ElasticPyTorchTrain", Distributed.ELASTIC, "PyTorch - Elastic Distributed Training (FabricModel)"),
    Framework(
        "distPyTorch", "DistributePyTorchTrain", Distributed.TORCHRUN, "PyTorch - a script for torch.distributed, as torchrun runs it"
    ),
    Framework("PyTorch", "SingleNodePytorchTrain", Distributed.SINGLE, "PyTorch - a script as one process"),
    Framework("edtTensorflow", "ElasticTensorflow1xTrain", Distributed.ELASTIC, "tf.keras - Elastic Distributed Training", "tensorflow"),
    Framework("edtKeras", "ElasticKerasTrain", Distributed.ELASTIC, "Keras - Elastic Distributed Training", "keras"),
    Framework("tensorflow", "SingleNodeTensorflowTrain", Distributed.SINGLE, "TensorFlow - a script as one process", "tensorflow"),
    Framework("keras", "SingleNodeKerasTrain", Distributed.SINGLE, "Keras - a script as one process", "keras"),
    Framework("XGboost", "dlicmdXGboost", Distributed.SINGLE, "XGBoost - a script as one process, with a requirements.txt", "xgboost"),
)


def named(name: str) -> Framework:
    """Capitals do not count. Raises Refused."""
    found = next((each for each in ALL if each.name.lower() == name.lower()), None)
    if found is None:
        there = ", ".join(each.name for each in ALL)
        answers.refuse(f"Framework {name[:64]} is not available here: name one of {there} with --exec-start.")
    return found


def of(distributed: str) -> Framework:
    """That of a run that was started on the pages. Nothing there was like torchrun elastic: it reads as what is the nearest to it."""
    if distributed == Distributed.TORCHRUN_ELASTIC:
        distributed = Distributed.TORCHRUN
    return next(each for each in ALL if each.distributed == distributed)


def submitted(name: str, distributed: str) -> Framework:
    """The one that was named with a submission."""
    return next((each for each in ALL if each.name == name), of(distributed))

"""What is stored. Models answer questions about themselves; services, scheduling, fleet and ingest write (one writer per fact)."""

from experiments.models.accounts import EndedToken, Identity, LoginFailure
from experiments.models.capacity import Pilot, PilotPool
from experiments.models.checkpoints import DroppedCheckpoint
from experiments.models.cluster import (
    ClusterChange,
    ClusterRules,
    DriverMeeting,
    Grant,
    Lease,
    Node,
    PastGrant,
    RemoteAgent,
    Slot,
    SlotDeath,
    SlotPrice,
)
from experiments.models.comments import RunComment
from experiments.models.data import DataAsset, DataSeries, DataUpload
from experiments.models.definitions import Bundle, DefinitionVersion, TrainingDefinition
from experiments.models.drafts import ModelDraft
from experiments.models.environments import Environment, EnvironmentBuild
from experiments.models.experiments import Experiment, ExperimentDefinition
from experiments.models.history import (
    GenerationRecord,
    JournalCursor,
    LatestUtilization,
    LoggedFacts,
    Metric,
    MetricRollup,
    MetricSeries,
    RunEvent,
    RunTransition,
    StateDigest,
    UtilizationSample,
)
from experiments.models.installation import Installation, Tombstone
from experiments.models.joining import NodeToken
from experiments.models.named_environments import NamedEnvironment, NamedVersion
from experiments.models.notifications import Delivery, ExperimentWatch, MetricWatch, Notification, NotificationKind, Webhook
from experiments.models.projects import Membership, Permit, Project, Role, User
from experiments.models.registry import ModelAlias, ModelEvent, ModelFile, ModelVersion, RegisteredModel
from experiments.models.run_values import RunColumn, RunValue, SavedView
from experiments.models.runs import RunState, TrainingRun
from experiments.models.searches import Search, SearchTrial
from experiments.models.sessions import BrowserSession
from experiments.models.store import StoreCopy, StoreState
from experiments.models.submissions import Submission
from experiments.models.tokens import ApiToken, Scope
from experiments.models.transfers import ProjectImport
from experiments.models.triggers import Trigger, TriggerDelivery
from experiments.models.variables import EnvironmentVariable

__all__ = [
    "ApiToken",
    "BrowserSession",
    "Bundle",
    "ClusterChange",
    "ClusterRules",
    "DataAsset",
    "DataSeries",
    "DataUpload",
    "DefinitionVersion",
    "Delivery",
    "DriverMeeting",
    "DroppedCheckpoint",
    "EndedToken",
    "Environment",
    "EnvironmentBuild",
    "EnvironmentVariable",
    "Experiment",
    "ExperimentDefinition",
    "ExperimentWatch",
    "GenerationRecord",
    "Grant",
    "Identity",
    "Installation",
    "JournalCursor",
    "LatestUtilization",
    "Lease",
    "LoggedFacts",
    "LoginFailure",
    "Membership",
    "Metric",
    "MetricRollup",
    "MetricSeries",
    "MetricWatch",
    "ModelAlias",
    "ModelDraft",
    "ModelEvent",
    "ModelFile",
    "ModelVersion",
    "NamedEnvironment",
    "NamedVersion",
    "Node",
    "NodeToken",
    "Notification",
    "NotificationKind",
    "PastGrant",
    "Permit",
    "Pilot",
    "PilotPool",
    "Project",
    "ProjectImport",
    "RegisteredModel",
    "RemoteAgent",
    "Role",
    "RunColumn",
    "RunComment",
    "RunEvent",
    "RunState",
    "RunTransition",
    "RunValue",
    "SavedView",
    "Scope",
    "Search",
    "SearchTrial",
    "Slot",
    "SlotDeath",
    "SlotPrice",
    "StateDigest",
    "StoreCopy",
    "StoreState",
    "Submission",
    "Tombstone",
    "TrainingDefinition",
    "TrainingRun",
    "Trigger",
    "TriggerDelivery",
    "User",
    "UtilizationSample",
    "Webhook",
]

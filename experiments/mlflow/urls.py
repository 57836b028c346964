"""The addresses, as MLflow's client builds them."""

from django.urls import path, re_path

from experiments.mlflow import views

urlpatterns = [
    path("api/2.0/mlflow-artifacts/artifacts", views.artifacts, name="mlflow_artifacts"),
    path("api/2.0/mlflow-artifacts/artifacts/<path:path>", views.artifact, name="mlflow_artifact"),
    re_path("^api/[23].0/mlflow/(?P<what>.*)$", views.call, name="mlflow_call"),
]

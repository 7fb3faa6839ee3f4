"""A night in a real MLflow server, read back by MLflow's own client."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Planted, command

pytestmark = pytest.mark.mlflow
pytest.importorskip("mlflow")

NIGHTS = """\
model: {planted.model}
days: days
out: nights
score: {{estimator: multilinear, baseline: codebook}}
prune: {{sparsity: 0.5}}
check: {{max-auc-drop: 0.5, max-logloss-rise: 5}}
tracking: {{mlflow: "{server}", experiment: clicks}}
metrics:
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    flags = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    flags += ["--backend-store-uri", f"sqlite:///{tmp_path}/runs.db", "--artifacts-destination", str(tmp_path / "files")]
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "mlflow", "server", *flags], stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 300  # it takes more than a minute on a busy machine
        while True:
            try:
                urllib.request.urlopen(url + "/health", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "server.log").read_text()
                time.sleep(0.1)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the server has workers, and nothing to keep
        process.wait(30)


def test_night(planted: Planted, server: str, tmp_path: Path) -> None:
    import mlflow

    shutil.copytree(planted.dataset, tmp_path / "days" / "2026-11-22")
    config = tmp_path / "nightly.yaml"
    config.write_text(NIGHTS.format(planted=planted, server=server))
    command("nightly", "--config", config)

    client = mlflow.MlflowClient(server)
    experiment = client.get_experiment_by_name("clicks")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.tags["shaver.outcome"] == "published"
    assert run.data.params["prune.sparsity"] == "0.5"
    current = tmp_path / "nights" / "current"
    evaluated = command("evaluate", "--model", current / "pruned.safetensors", "--dataset", planted.dataset, "--split", "test")
    assert f"{run.data.metrics['pruned_auc']:.6f}" in evaluated
    stored = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"report.html", "history.html", "check.json"} <= stored
    page = client.download_artifacts(run.info.run_id, "history.html", str(tmp_path))
    assert Path(page).read_bytes() == (tmp_path / "nights" / "history.html").read_bytes()

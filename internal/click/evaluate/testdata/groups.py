"""Compares the metrics of groups with scikit-learn: python3 groups.py SHAVER MODEL DATASET FIELD [OTHER]

SHAVER is the program. It measures MODEL on the split test of DATASET, with --group FIELD. GAUC is computed again from
sklearn.metrics.roc_auc_score of each group, and NDCG from sklearn.metrics.ndcg_score. OTHER is a model of the same fields: the
differences are compared too, and their intervals with those of 2,000 bootstrap samples of the groups.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from sklearn.metrics import ndcg_score, roc_auc_score

TOP = 3


def measured(program, model, data, field, folder, *more):
    """Returns the document of evaluate, and the logits and labels of the rows."""
    file = pathlib.Path(folder) / "predictions.parquet"
    command = [program, "evaluate", "--model", model, "--dataset", data, "--group", field, "--top", str(TOP), "--predictions", str(file), "--force", "-o", "json", *more]
    document = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    rows = pyarrow.parquet.read_table(file)
    return document, rows["logit"].to_numpy(), rows["label"].to_numpy()


def figures(logits, labels, groups):
    """Returns for each group: its rows, AUC, NDCG and recall."""
    members = defaultdict(list)
    for i, g in enumerate(groups):
        members[g].append(i)
    found = []
    for rows in members.values():
        y, z = labels[rows], logits[rows]
        auc = roc_auc_score(y, z) if 0 < y.sum() < len(y) else np.nan
        ndcg = recall = np.nan
        if y.sum() > 0:
            # scikit-learn does not define the NDCG of one row, which is 1.
            ndcg = ndcg_score([y], [z], k=TOP) if len(y) > 1 else 1.0
            above = (z[:, None] < z[None, :]).sum(axis=1)  # rows with a higher logit
            equal = (z[:, None] == z[None, :]).sum(axis=1)
            recall = (y * np.clip((TOP - above) / equal, 0, 1)).sum() / y.sum()
        found.append((len(rows), auc, ndcg, recall))
    return np.array(found)


def mean(of, metric):
    """Returns the mean over the groups that have the metric, weighted by rows if it is GAUC."""
    has = ~np.isnan(of[:, metric])
    return np.average(of[has, metric], weights=of[has, 0] if metric == 1 else None)


program, model, data, field, *other = sys.argv[1:]
table = pa.ipc.open_file(f"{data}/test.arrow").read_all()[field].to_numpy()
with tempfile.TemporaryDirectory() as folder:
    document, logits, labels = measured(program, model, data, field, folder, *(["--against", other[0]] if other else []))
    if other:
        _, rival, _ = measured(program, other[0], data, field, folder)
if document["group"]["out"]:
    manifest = json.load(open(f"{data}/dataset.json"))
    about = next(f for f in manifest["fields"] if f["name"] == field)
    inside = table != about.get("oov", about["size"] - 1)  # the others have no id of their own
    assert (~inside).sum() == document["group"]["out"]
else:
    inside = np.full(len(table), True)
own = figures(logits[inside], labels[inside], table[inside])
worst = 0.0
for metric, name in enumerate(("gauc", "ndcg", "recall"), 1):
    worst = max(worst, abs(document[name] - mean(own, metric)))
print(f"{data}, {field}: {len(own)} groups, {len(table)} rows, largest difference from scikit-learn {worst:.1e}")
assert worst < 1e-12
if other:
    against = figures(rival[inside], labels[inside], table[inside])
    draw = np.random.default_rng(1)
    for metric, name in enumerate(("gauc", "ndcg", "recall"), 1):
        interval = document["against"][f"{name}_difference"]
        assert abs(interval["value"] - (mean(own, metric) - mean(against, metric))) < 1e-12
        samples = []
        for _ in range(2000):
            some = draw.integers(0, len(own), len(own))
            samples.append(mean(own[some], metric) - mean(against[some], metric))
        print(f"  {name} {interval['value']:+.5f} [{interval['low']:+.5f}, {interval['high']:+.5f}], bootstrap [{np.quantile(samples, 0.025):+.5f}, {np.quantile(samples, 0.975):+.5f}]")

"""Writes the log of one table in several forms, into the folders of this folder. Usage: make.py, with pyarrow."""
import datetime
import json
import pathlib
import shutil

import pyarrow as pa
import pyarrow.parquet as pq

here = pathlib.Path(__file__).parent
fields = [("x", "long"), ("y", "string"), ("z", "double"), ("at", "timestamp"), ("day", "date")]
schema = {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields]}
features = ["deletionVectors", "v2Checkpoint"]
head = [
    {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}},
    {"metaData": {"id": "the-id", "format": {"provider": "parquet"}, "schemaString": json.dumps(schema), "partitionColumns": ["day"], "configuration": {"k": "v"}}},
]
adds = []
for i in range(6):
    add = {"path": f"part%20{i}.parquet", "partitionValues": {"day": f"2026-11-{28 + i % 2}" if i else None}, "size": 100 + i}
    least, most = {"x": i, "y": f"a{i}", "z": i / 2, "at": f"2026-11-28T00:00:0{i}.123Z"}, {"x": i + 1, "y": f"b{i}", "z": i + 0.5, "at": f"2026-11-28T00:00:0{i}.456Z"}
    if i != 4:
        add["stats"] = {"numRecords": 9, "minValues": least, "maxValues": most, "nullCount": {"x": 0, "y": 1, "z": 0, "at": 0}}
    if i == 5:  # Delta's own example, of the rows 3, 4, 7, 11, 18 and 29
        vector = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
        add["deletionVector"] = {"storageType": "i", "pathOrInlineDv": vector, "sizeInBytes": 44, "cardinality": 6}
    adds.append({"add": add})
removes = [{"remove": {"path": "gone", "deletionTimestamp": 1}}]


def structure(**kinds):
    return pa.struct(list(kinds.items()))


string, integer, strings, texts = pa.string(), pa.int64(), pa.list_(pa.string()), pa.map_(pa.string(), pa.string())
bounds = structure(x=integer, y=string, z=pa.float64(), at=pa.timestamp("us", "UTC"))
stats = structure(numRecords=integer, minValues=bounds, maxValues=bounds, nullCount=structure(x=integer, y=integer, z=integer, at=integer))
vector = structure(storageType=string, pathOrInlineDv=string, offset=pa.int32(), sizeInBytes=pa.int32(), cardinality=integer)
kinds = {
    "add": structure(path=string, partitionValues=texts, size=integer, deletionVector=vector, stats=string, stats_parsed=stats),
    "remove": structure(path=string, deletionTimestamp=integer),
    "metaData": structure(id=string, format=structure(provider=string), schemaString=string, partitionColumns=strings, configuration=texts),
    "protocol": structure(minReaderVersion=pa.int32(), minWriterVersion=pa.int32(), readerFeatures=strings, writerFeatures=strings),
    "sidecar": structure(path=string, sizeInBytes=integer),
}


def log(form, name):
    path = here / form / "_delta_log" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def text(action):
    if "stats" in action.get("add", {}):
        action = {"add": {**action["add"], "stats": json.dumps(action["add"]["stats"])}}
    return action


def parsed(action):
    """Returns an action with statistics as structures."""
    action = json.loads(json.dumps(action))
    if found := action.get("add", {}).pop("stats", None):
        for kind in ("minValues", "maxValues"):
            found[kind]["at"] = datetime.datetime.fromisoformat(found[kind]["at"].replace("Z", "+00:00"))
        action["add"]["stats_parsed"] = found
    return action


def parquet(form, name, actions, columns):
    pairs = [{kind: {k: list(v.items()) if k in ("partitionValues", "configuration") else v for k, v in of.items()} for kind, of in a.items()} for a in actions]
    table = pa.Table.from_pylist(pairs, pa.schema({c: kinds[c] for c in columns}))
    pq.write_table(table, log(form, name), store_schema=False, compression="zstd", write_statistics=False)


def lines(form, name, actions):
    log(form, name).write_text("".join(json.dumps(a) + "\n" for a in actions))


for form in ("commit", "classic", "parts", "sidecars", "mixed"):
    shutil.rmtree(here / form, ignore_errors=True)
version, uuid = f"{7:020}", "80a083e8-7026-4e79-81be-64bd76c43a11"
lines("commit", f"{0:020}.json", head + [text(a) for a in adds])
flat = ["add", "remove", "metaData", "protocol"]
parquet("classic", f"{version}.checkpoint.parquet", [text(a) for a in removes + adds + head], flat)
parquet("parts", f"{version}.checkpoint.0000000001.0000000002.parquet", [parsed(a) for a in adds[::2] + head[:1]], flat)
parquet("parts", f"{version}.checkpoint.0000000002.0000000002.parquet", [parsed(a) for a in head[1:] + adds[1::2] + removes], flat)
sidecars = [{"sidecar": {"path": f"side-{i}.parquet", "sizeInBytes": 1}} for i in range(2)]
for i in range(2):
    parquet("sidecars", f"_sidecars/side-{i}.parquet", [parsed(a) for a in adds[i::2]], ["add", "remove"])
parquet("sidecars", f"{version}.checkpoint.{uuid}.parquet", head + sidecars, ["metaData", "protocol", "sidecar"])
parquet("mixed", "_sidecars/side-0.parquet", [text(a) for a in adds], ["add", "remove"])
lines("mixed", f"{version}.checkpoint.{uuid}.json", [{"checkpointMetadata": {"version": 7}}, *head, sidecars[0]])

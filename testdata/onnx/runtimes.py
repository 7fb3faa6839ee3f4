#!/usr/bin/env python3
"""Runs an .onnx file in several runtimes, and compares them with shaver.

    runtimes.py SHAVER MODEL.onnx DATASET [--web FOLDER]

SHAVER is the program. The rows are the first 4,096 of the split test of DATASET, with what the graph's inputs read. The graph
must take batches of any size. The runtimes are onnxruntime and OpenVINO and, with --web, onnxruntime-web in chromium. FOLDER
has its node_modules. Each has one thread, a process of its own and float32 arithmetic. A line for each says

    how far its logits are from those of shaver evaluate
    how large the file is
    how long it takes to load, and to run batches of 1, 64 and 1,024 rows, which are medians
    how much memory the process had before it loaded the file, at most until then, and at most until all rows had run in
    batches of 1,024; for the web, this is the memory of WebAssembly

A difference above 1e-5 of the logit, or above 1e-5 if that is below 1, is an error.

It needs Linux, numpy, onnx 1.23.2, onnxruntime 1.32.0, openvino 2026.4.1 and pyarrow, and onnxruntime-web 1.30.0 with chromium.
"""

import concurrent.futures
import functools
import http.server
import json
import multiprocessing
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pruned

TOLERANCE = 1e-5
ROWS, BATCHES, REPEATS, LOADS = 4096, (1, 64, 1024), 101, 11

# The page posts what measure returns. A browser counts time finely for a page that is isolated.
PAGE = """<!DOCTYPE html><script type="module">
let memory, before
const Memory = WebAssembly.Memory
WebAssembly.Memory = class extends Memory { constructor(...a) { super(...a); memory = this; before = this.buffer.byteLength } }
const post = text => fetch("/result", {method: "POST", body: text})
try {
  const ort = await import("/dist/ort.wasm.min.mjs")
  const {inputs, output, rows, batches, repeats, loads} = await (await fetch("/task.json")).json()
  const model = new Uint8Array(await (await fetch("/model.onnx")).arrayBuffer())
  const kinds = {int64: BigInt64Array, int32: Int32Array, float32: Float32Array}
  for (const i of inputs) {
    i.values = new kinds[i.kind](await (await fetch("/" + i.file)).arrayBuffer())
    i.width = i.values.length / rows
  }
  ort.env.wasm.numThreads = 1
  ort.env.wasm.wasmPaths = "/dist/"
  const median = all => all.sort((a, b) => a - b)[all.length >> 1]
  const load = () => ort.InferenceSession.create(model)
  let session = await load() // also loads WebAssembly
  await session.release()
  session = await load()
  const run = async (first, count) => {
    const feeds = {}
    for (const i of inputs)
      feeds[i.name] = new ort.Tensor(i.kind, i.values.slice(first * i.width, (first + count) * i.width), [count, ...i.tail])
    const start = performance.now()
    const out = await session.run(feeds, [output])
    return [performance.now() - start, Array.from(out[output].data)]
  }
  const loaded = memory.buffer.byteLength, values = [], largest = Math.max(...batches)
  for (let first = 0; first < rows; first += largest) values.push(...(await run(first, largest))[1])
  const peak = memory.buffer.byteLength
  const times = []
  for (const count of batches) {
    const all = []
    for (let k = 0; k < repeats; k++) all.push((await run(k * count % rows, count))[0])
    times.push(median(all))
  }
  const all = []
  for (let k = 0; k < loads; k++) {
    await session.release()
    const start = performance.now()
    session = await load()
    all.push(performance.now() - start)
  }
  await post(JSON.stringify({version: ort.env.versions.web, values, times, load: median(all), memory: [before, loaded, peak]}))
} catch (e) { await post(JSON.stringify({error: String(e)})) }
</script>"""


def status(key):
    """Returns an amount of memory of this process in bytes."""
    return 1024 * int(re.search(key + r":\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])


def onnxruntime(model, output):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3

    def load():
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return lambda feed: session.run([output], feed)[0]

    return onnxruntime.__version__, load


def openvino(model, output):
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}

    def load():
        request = core.compile_model(model, "CPU", settings).create_infer_request()
        return lambda feed: request.infer(feed)[output]

    return openvino.__version__.split("-")[0], load


def measure(runtime, model, feed, output):
    """Runs the rows in a runtime of Python."""
    version, load = runtime(model, output)
    memory = [status("VmRSS")]
    run = load()
    memory.append(status("VmHWM"))

    def parts(count, repeats):
        return [{name: v[k : k + count] for name, v in feed.items()} for k in (i * count % ROWS for i in range(repeats))]

    values = [v for part in parts(BATCHES[-1], ROWS // BATCHES[-1]) for v in run(part).ravel().tolist()]
    memory.append(status("VmHWM"))
    times = [median_time(run, parts(count, REPEATS)) for count in BATCHES]
    load_time = median_time(lambda _: load(), range(LOADS))
    return {"version": version, "values": values, "times": times, "load": load_time, "memory": memory}


def median_time(run, arguments):
    """Returns the median time of a call, in milliseconds."""
    times = []
    for a in arguments:
        start = time.perf_counter()
        run(a)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def web(folder, model, feed, output):
    """Runs the rows in chromium, as measure does."""
    inputs = [{"name": name, "file": f"input{i}", "kind": str(v.dtype), "tail": v.shape[1:]} for i, (name, v) in enumerate(feed.items())]
    task = {"inputs": inputs, "output": output, "rows": ROWS, "batches": BATCHES, "repeats": REPEATS, "loads": LOADS}
    files = {"/": PAGE.encode(), "/task.json": json.dumps(task).encode(), "/model.onnx": pathlib.Path(model).read_bytes()}
    files |= {"/" + i["file"]: feed[i["name"]].tobytes() for i in inputs}
    found = concurrent.futures.Future()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.path not in files:
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if self.path == "/" else "application/octet-stream")
            self.end_headers()
            self.wfile.write(files[self.path])

        def do_POST(self):
            found.set_result(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def end_headers(self):
            self.send_header("Cross-Origin-Opener-Policy", "same-origin")
            self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
            super().end_headers()

        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=pathlib.Path(folder) / "node_modules" / "onnxruntime-web")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [shutil.which("chromium"), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
        browser = subprocess.Popen([*command, f"--user-data-dir={profile}", f"http://127.0.0.1:{server.server_port}/"], stderr=subprocess.DEVNULL)
        try:
            return found.result(300)
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()


def inputs(model, dataset, facts):
    """Returns what the inputs of the graph are for the rows."""
    import onnxruntime
    from pyarrow import ipc

    file = next(s["file"] for s in json.loads((dataset / "dataset.json").read_text())["splits"] if s["name"] == "test")
    table = ipc.open_file(dataset / file).read_all().slice(0, ROWS).drop_columns("label")
    fields, dense = facts["fields"], facts.get("dense") or []
    if {f["name"] for f in fields + dense} <= set(table.column_names):
        table = table.select([f["name"] for f in fields + dense])
    columns = [np.array(c.to_pylist()).reshape(len(table), -1) for c in table.columns]
    ids, values = (np.concatenate([np.zeros((len(table), 0), int), *part], 1) for part in (columns[: len(fields)], columns[len(fields) :]))
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return next(pruned.feeds(session, {"batch": None, "fields": fields, "dense": dense, "ids": ids, "values": values}))


def main():
    model, dataset, *options = sys.argv[2:]
    facts = json.loads(pruned.run(pruned.SHAVER, "model", "inspect", model, "-o", "json"))
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        (at / "data").symlink_to(pathlib.Path(dataset).resolve())
        want = pruned.evaluate(at, pathlib.Path(model).resolve())
    feed = inputs(model, pathlib.Path(dataset), facts)
    feed = {name: np.resize(v, (ROWS, *v.shape[1:])) for name, v in feed.items()}
    want, size, failed = np.resize(want, ROWS), pathlib.Path(model).stat().st_size, 0
    calls = {"onnxruntime": (measure, onnxruntime), "OpenVINO": (measure, openvino)}
    if options[:1] == ["--web"]:
        calls["onnxruntime-web"] = (web, options[1])
    for name, (call, how) in calls.items():
        try:
            with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                r = process.submit(call, how, model, feed, facts["output"]).result()
        except Exception as e:
            r = {"error": f"{type(e).__name__}: {e}"}
        if "error" in r:
            print(f"{name}: FAILED: {r['error']}", flush=True)
            failed += 1
            continue
        got = np.array(r["values"]).reshape(ROWS, -1)[:, -1]
        if not facts["logit"].startswith("the output"):
            got = np.log(got) - np.log1p(-got)
        difference, worst = np.abs(got - want).max(), (np.abs(got - want) / np.maximum(1, np.abs(want))).max()
        bad = not worst <= TOLERANCE
        failed += bad
        times, memory = ", ".join(f"{t:.3g}" for t in r["times"]), ", ".join(f"{m / 1e6:.0f}" for m in r["memory"])
        print(
            f"{name} {r['version']}: {'FAILED: ' if bad else ''}logits within {difference:.1e}, {size} bytes, load {r['load']:.3g} ms, "
            f"batches {times} ms, memory {memory} MB",
            flush=True,
        )
    if failed:
        sys.exit(f"{failed} failed")


if __name__ == "__main__":
    main()

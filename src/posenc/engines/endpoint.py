"""An engine's server over HTTP: completions in OpenAI's form, as vLLM, SGLang and llama.cpp's servers have them.

    POST /v1/completions   prompt, max_tokens, temperature 0; echo and logprobs for the probabilities of the prompt
    GET  /v1/models        the model's name, and in vLLM and SGLang max_model_len
    GET  /props            llama-server: the context of one slot (default_generation_settings.n_ctx)

Requests are counted and bounded in time, and an answer in size; nothing else of the server is used.

Source: vLLM 0.33, entrypoints/openai (prompt_logprobs next to echo); llama.cpp, tools/server/README.md;
    llama_cpp_python 0.3.36, server/types.py.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from posenc.arguments import check_number, check_whole, shown
from posenc.input_files import printable

_ANSWER_BYTES = 2**26  # probabilities of a prompt of 131,072 tokens take some 20 MB of JSON


class RefusedError(ValueError):
    """The server understood a request and refused it; the text is what it said."""


class BudgetError(ValueError):
    """The requests or the seconds of a probe are used up."""


@dataclass
class Endpoint:
    """A server and what may be asked of it.

    Attributes:
        url: its root, or the root with ``/v1``.
        model: the model's name in requests; "" for the first model that the server lists.
        api_key: sent as a bearer token if given.
        most_requests: the limit on requests.
        seconds: of all requests together; a single one is cut off when they end.
    """

    url: str
    model: str = ""
    api_key: str = ""
    most_requests: int = 40
    seconds: float = 1800.0
    requests: int = field(default=0, init=False)
    _began: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"endpoint must be an address such as http://localhost:8000, got {shown(self.url)}")
        check_whole("requests", self.most_requests)
        check_number("seconds", self.seconds, above=0)
        self.url = self.url.rstrip("/").removesuffix("/v1")

    def get(self, path: str) -> Any:
        """What a GET answers; None where the server has no such path."""
        try:
            return self._send(urllib.request.Request(self.url + path, headers=self._headers()))
        except RefusedError:
            return None

    def complete(self, prompt: str, max_tokens: int, *, echo: bool = False) -> dict[str, Any]:
        """The first choice of a greedy completion, with the server's count of tokens under "usage".

        Raises:
            RefusedError: if the server refuses the prompt, for example because it is too long.
            BudgetError: if no request is left.
            OSError: if the server cannot be reached.
        """
        body: dict[str, Any] = {
            "model": self.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "seed": 0,
        }  # fmt: skip
        if echo:
            body |= {"echo": True, "logprobs": 5}
        data = json.dumps(body).encode()
        answer = self._send(urllib.request.Request(f"{self.url}/v1/completions", data, self._headers(), method="POST"))
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise RefusedError(f"no completion in the answer {shown(answer)}")
        return {**choices[0], "usage": answer.get("usage") or {}}

    def _headers(self) -> dict[str, str]:
        key = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        return {"Content-Type": "application/json", **key}

    def _send(self, request: urllib.request.Request) -> Any:
        left = self.seconds - (time.monotonic() - self._began)
        if self.requests >= self.most_requests or left <= 0:
            raise BudgetError(f"{self.requests} requests in {self.seconds - left:.0f} s: no more are sent")
        self.requests += 1
        try:
            with urllib.request.urlopen(request, timeout=left) as response:  # the scheme is checked
                content = response.read(_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            text = error.read(2000).decode("utf-8", "replace")
            if error.code >= 500 and "context" not in text and "token" not in text:
                raise OSError(f"{self.url}: the server failed with {error.code}: {printable(text[:300])}") from error
            raise RefusedError(f"{error.code}: {printable(text[:300])}") from error
        except TimeoutError as error:
            raise BudgetError(f"no answer within the {self.seconds:.0f} s of this probe") from error
        except urllib.error.URLError as error:
            raise OSError(f"{self.url} cannot be reached: {error.reason}") from error
        if len(content) > _ANSWER_BYTES:
            raise OSError(f"{self.url}: an answer of more than {_ANSWER_BYTES:,} bytes")
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise OSError(
                f"{self.url}: the answer is no JSON: {printable(content[:80].decode('utf-8', 'replace'))}"
            ) from error

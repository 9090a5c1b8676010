"""A headless Chromium, driven through its debugging pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
KEYS = {
    "ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39, "Enter": 13, "Tab": 9,
    "Home": 36, "End": 35,
}  # fmt: skip


class Browser:
    """One page in a browser of its own, without network."""

    def __init__(self, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        assert CHROMIUM is not None
        to_child, self._to = os.pipe()
        self._from, from_child = os.pipe()
        # The child speaks on 3 and 4, whatever the numbers of the pipes are here.
        moved = f'exec 3<&{to_child} 4>&{from_child}; exec "$@"'
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
            "--hide-scrollbars", "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--no-first-run", "about:blank",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            ["bash", "-c", moved, "bash", *command],
            pass_fds=(to_child, from_child),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            received = os.read(self._from, 1 << 20)
            assert received, "the browser ended"
            self._buffer += received
        text, self._buffer = self._buffer.split(b"\0", 1)
        found: dict[str, Any] = json.loads(text)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(parameters["exceptionDetails"]))
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.errors.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                if not url.startswith(("file:", "data:", "about:")):
                    self.errors.append(f"asks for {url}")

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone,
        )  # fmt: skip

    def open(self, path: Path) -> float:
        """Show a page, and give the seconds until it is drawn."""
        began = time.perf_counter()
        self.call("Page.navigate", url=path.as_uri())
        self.until("document.readyState === 'complete'")
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        return time.perf_counter() - began

    def evaluate(self, script: str) -> Any:
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        end = time.monotonic() + 30
        while not self.evaluate(condition):
            assert time.monotonic() < end, condition
            time.sleep(0.01)

    def press(self, key: str) -> None:
        code = KEYS.get(key, 0)
        text = {"text": "\r"} if key == "Enter" else {} if len(key) > 1 else {"text": key}
        for kind in ("keyDown", "keyUp"):
            more = text if kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent",
                type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more,
            )  # fmt: skip

    def picture(self, path: Path, of: str = "") -> None:
        """Keep what is seen; `of`: scroll to this element before."""
        if of:
            self.evaluate(f"document.querySelector({of!r}).scrollIntoView({{block: 'start'}})")
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 60)))")
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

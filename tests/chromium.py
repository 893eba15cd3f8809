"""A headless Chromium, driven by the DevTools protocol over two pipes: JSON, each message ended by a NUL. Standard library only.

    with chromium.Browser() as browser:
        page = browser.page(width=390, height=844, dark=True)
        page.open(pathlib.Path("report.html"))
        page.js("document.title")
"""
import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

WAIT_S = 120  # for one answer; a loaded machine is slow, not broken
KEYS = {"Tab": ("Tab", 9, ""), "Enter": ("Enter", 13, "\r"), "Space": (" ", 32, " "), "ArrowDown": ("ArrowDown", 40, "")}


def find():
    """The program, or None."""
    return os.environ.get("KFIT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="kfit-chromium-", ignore_cleanup_errors=True)
        # The browser reads descriptor 3 and writes 4: ours are kept away from these numbers.
        theirs_in, self.to = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in os.pipe()]
        self.back, theirs_out = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in os.pipe()]
        self.log = open(pathlib.Path(self.profile.name) / "stderr", "w+")

        def in_child():
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        # --no-sandbox: containers and root have none to offer, and the only page is one of ours
        self.process = subprocess.Popen(
            [find(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
             "--force-color-profile=srgb", "--lang=en", f"--user-data-dir={self.profile.name}/profile", "about:blank"],
            preexec_fn=in_child, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.log,
            env={**os.environ, "HOME": self.profile.name})
        os.close(theirs_in)
        os.close(theirs_out)
        self.number, self.buffer, self.answers, self.events = 0, b"", {}, []
        try:
            self.call("Browser.getVersion")
        except Exception:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.process.kill()
        self.process.wait()
        for fd in (self.to, self.back):
            os.close(fd)
        self.log.close()
        self.profile.cleanup()

    def receive(self):
        """Reads at least one message."""
        while b"\0" not in self.buffer:
            if not select.select([self.back], [], [], WAIT_S)[0]:
                raise TimeoutError("chromium does not answer")
            got = os.read(self.back, 1 << 20)
            if not got:
                self.log.seek(0)
                raise EOFError("chromium ended: " + self.log.read()[-2000:])
            self.buffer += got
        *whole, self.buffer = self.buffer.split(b"\0")
        for message in map(json.loads, whole):
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.events.append(message)

    def call(self, method, session=None, **params):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while number not in self.answers:
            self.receive()
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def page(self, **how):
        return Page(self, **how)


class Page:
    """One tab. dark, touch, script: as a reader's machine has them."""

    def __init__(self, browser, width=1280, height=800, dark=False, script=True):
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility", "DOM"):
            self.call(domain + ".enable")
        self.size(width, height)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def open(self, path):
        """Loads a file and waits until it is there."""
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        limit = time.monotonic() + WAIT_S
        while not any(e["method"] == "Page.loadEventFired" and e.get("sessionId") == self.session for e in self.browser.events):
            if time.monotonic() > limit:
                raise TimeoutError(f"{path} does not load")
            self.browser.receive()

    def happened(self, *methods):
        return [e["params"] for e in self.browser.events if e["method"] in methods and e.get("sessionId") == self.session]

    def complaints(self):
        """What the console and the browser's own log hold."""
        self.js("0")  # what was said before has arrived when this is answered
        said = [d.get("exception", {}).get("description", d["text"])
                for d in (e["exceptionDetails"] for e in self.happened("Runtime.exceptionThrown"))]
        said += [str(e["args"]) for e in self.happened("Runtime.consoleAPICalled")]
        return said + [e["entry"]["text"] for e in self.happened("Log.entryAdded")]

    def requests(self):
        return [e["request"]["url"] for e in self.happened("Network.requestWillBeSent")]

    def js(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise RuntimeError(got["exceptionDetails"]["exception"].get("description", str(got)))
        return got["result"].get("value")

    def press(self, name):
        key, code, text = KEYS[name]
        common = {"key": key, "code": name, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def roles(self):
        """(role, name) of all that a screen reader is told, in its order."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n.get("ignored")]

    def picture(self, path, whole=False):
        got = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        pathlib.Path(path).write_bytes(base64.b64decode(got["data"]))

    def paper(self, path):
        """As it is printed."""
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))

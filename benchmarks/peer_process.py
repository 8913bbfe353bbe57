"""benchmarks/torch_peer.py as a child: lines of JSON, each waited for with a limit; a child that is late or dead is a failure
with a sentence, never a wait for ever."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Optional

PEER = Path(__file__).resolve().parent / "torch_peer.py"


class PeerProcess:
    def __init__(self, work: str, implementations: list[str], folder: Path, device: str, dtype: str, seconds: float, env: dict[str, str]):
        self.work, self.implementations = work, implementations
        self.ready: dict[str, dict] = {}
        self.failures: dict[str, str] = {}
        self.notes: list[str] = []
        self.prepared = False
        self.log = folder / f"{work.replace(':', '_')}.{implementations[0]}.log"
        command = [sys.executable, str(PEER), work, "--implementations", ",".join(implementations), "--device", device,
                   "--dtype", dtype, "--seconds", str(seconds), "--reference", str(folder / f"{work.replace(':', '_')}.pt")]
        self.stderr = self.log.open("w")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr, text=True, env=env)
        self.lines: queue.Queue = queue.Queue()
        threading.Thread(target=self.pump, daemon=True).start()

    def pump(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def receive(self, seconds: float) -> Optional[dict]:
        """The next line that is JSON; None at the limit or when the child has ended."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return None
            if line is None:
                self.lines.put(None)
                return None
            try:
                message = json.loads(line)
            except ValueError:
                continue  # a library's own words
            if isinstance(message, dict):
                return message

    def poll(self) -> None:
        """Takes what has come of its preparations."""
        while not self.prepared and (message := self.receive(0)) is not None:
            if "ready" in message:
                self.ready[message["ready"]] = message
            elif "failed" in message:
                self.failures[message["failed"]] = message["why"]
            elif "note" in message:
                self.notes.append(message["note"])
            self.prepared = bool(message.get("prepared"))
        if not self.prepared and self.process.poll() is not None and self.lines.queue and self.lines.queue[0] is None:
            self.give_up(f"ended with exit code {self.process.returncode}: {self.last_words()}")

    def last_words(self) -> str:
        words = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return words[-1][:200] if words else "no message"

    def give_up(self, why: str) -> None:
        """Ends a child that is not prepared; all that it was to prepare is a failure for this reason."""
        for name in self.implementations:
            self.failures.setdefault(name, why)
        self.ready.clear()
        self.process.kill()
        self.close()
        self.prepared = True

    def measure(self, name: str, count: int, seconds: float) -> Optional[dict]:
        """None where it failed; failures says why."""
        if name not in self.ready or self.process.poll() is not None:
            self.failures.setdefault(name, f"the process has ended: {self.last_words()}")
            return None
        try:
            self.process.stdin.write(f"{name} {count}\n")
            self.process.stdin.flush()
        except (OSError, ValueError):  # it has ended: the answer says so
            pass
        answer = self.receive(seconds)
        if answer is None:
            ended = bool(self.lines.queue)
            self.close(2.0 if ended else 0.0)
            self.failures[name] = (f"ended with exit code {self.process.returncode}: {self.last_words()}" if ended
                                   else f"no answer within {seconds:.0f} s")
            return None
        if "failed" in answer:
            self.failures[name] = answer["why"]
            return None
        return answer

    def close(self, seconds: float = 3.0) -> None:
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.stderr.close() if not self.stderr.closed else None

#!/usr/bin/env python3
"""Usage: loop.py PK-BASH [OPTION]...

Drives `pk-bash --loop` from Python. One request, one answer, in order: answers
to requests that are made at once have to be matched by their ids."""

import json
import subprocess
import sys


class Shell:
    """A conversation with pk-bash, for as long as an agent lives. One that
    cannot be had, or has ended, is an OSError."""

    def __init__(self, argv):
        self.process = subprocess.Popen(
            argv + ["--loop"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, /, **request):
        line = json.dumps(request) + "\n"
        self.process.stdin.write(line.encode("ascii"))
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise OSError("pk-bash has ended")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()  # the end of input ends the loop
        return self.process.wait()


def main():
    shell = Shell(sys.argv[1:])
    for request in (
        {"id": "uname", "command": "uname"},
        {"id": "fails", "command": "exit 3"},
        {"id": "slow", "command": "echo begun; sleep 60", "timeout": 1},
        {"id": "bad"},
        # A job runs beside the commands that follow, until it is told to end.
        {"id": "start", "op": "start", "command": "until test -e go; do sleep 0.01; done; echo gone; sleep 60"},
        {"id": "beside", "command": "touch go; echo beside it"},
        {"id": "read", "op": "read", "job": "j1", "wait_ms": 60000},
        {"id": "kill", "op": "kill", "job": "j1"},
    ):
        answer = shell.run(**request)
        text = answer.get("error", answer.get("output", "")).rstrip("\n")
        print(f"{answer['id']}: {answer['outcome']} {answer.get('exit_status', '-')}: {text}")
    return shell.close()


if __name__ == "__main__":
    sys.exit(main())

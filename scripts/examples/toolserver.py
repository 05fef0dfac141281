#!/usr/bin/env python3
"""Usage: toolserver.py PK-BASH [OPTION]...

A tool server over standard input and output, as the Model Context Protocol has
it: JSON-RPC 2.0, a message a line. Its one tool, `bash`, runs a command through
`pk-bash --loop`. What the options allow is all that a client can get:

    toolserver.py pk-bash -y -C ~/src/app --net none --session tools

The client is meant to ask its user; who wants pk-bash to ask leaves -y out."""

import json
import sys

from loop import Shell

# The newest first. A client that knows none of them is told the newest, and may
# go away.
VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]

BASH = {
    "name": "bash",
    "description": "Run one bash command in the project, fenced in. "
    "Nothing outside the project can be seen or changed.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "timeout": {"type": "integer", "minimum": 1, "maximum": 600},
            "description": {"type": "string"},
        },
        "required": ["command"],
        "additionalProperties": False,
    },
}


class Refused(Exception):
    """An error of the protocol: a code and a message."""


def initialize(params, _):
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "pk-bash", "version": "1"},
    }


def call(params, shell):
    if params.get("name") != "bash":
        raise Refused(-32602, f"there is no tool {params.get('name')!r}")
    request = params.get("arguments", {})
    if not isinstance(request, dict) or "id" in request:
        raise Refused(-32602, "the arguments are not those of bash")
    # pk-bash checks the rest, and what is wrong is for the model to read.
    answer = shell.run(**request)
    text = answer.get("output", "")
    if answer["outcome"] != "exited":
        text += f"{answer['outcome']}: {answer.get('error', '')}\n"
    text += f"exit status: {answer['exit_status']}"
    failed = answer["exit_status"] != 0
    return {"content": [{"type": "text", "text": text}], "isError": failed}


METHODS = {
    "initialize": initialize,
    "ping": lambda *_: {},
    "tools/list": lambda *_: {"tools": [BASH]},
    "tools/call": call,
}


def respond(line, shell):
    """The response to a line, or None where there is none to be given."""
    message_id = None
    try:
        message = json.loads(line)
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            raise Refused(-32600, "this is no request of JSON-RPC 2.0")
        if "id" not in message:
            return None  # a notification
        message_id, method = message["id"], message.get("method")
        if method not in METHODS:
            raise Refused(-32601, f"there is no method {method!r}")
        params = message.get("params", {})
        if not isinstance(params, dict):
            raise Refused(-32602, "the parameters are not an object")
        result = {"result": METHODS[method](params, shell)}
    except ValueError:
        result = {"error": {"code": -32700, "message": "the line is not JSON"}}
    except Refused as error:
        result = {"error": dict(zip(("code", "message"), error.args))}
    return {"jsonrpc": "2.0", "id": message_id, **result}


def main():
    if len(sys.argv) < 2:
        sys.exit("toolserver: say how to call pk-bash: toolserver.py pk-bash -y")
    try:
        shell = Shell(sys.argv[1:])
        for line in sys.stdin.buffer:
            response = respond(line, shell)
            if response is not None:
                print(json.dumps(response), flush=True)
        return shell.close()
    except OSError as error:
        sys.exit(f"toolserver: {error}")


if __name__ == "__main__":
    sys.exit(main())

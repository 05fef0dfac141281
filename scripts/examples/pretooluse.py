#!/usr/bin/env python3
"""Usage: pretooluse.py [--allow] [PK-BASH [OPTION]...]

A PreToolUse hook for coding agents with a shell tool of their own, such as
Claude Code: the tool runs the command of each call through pk-bash. In the
user's settings (~/.claude/settings.json), not in those of a project, which
whatever runs there could change:

    {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [
        {"type": "command", "command": "/path/to/pretooluse.py"}]}]}}

The answer is to ask the user, who then sees the fenced command. With --allow
nobody is asked. Try first whether the agent honours a changed command: versions
are known that do not, and would run the one without a fence. Have it run

    echo "fenced: $PK_BASH"

A hook that cannot be started, for want of Python, stops nothing either. Each
command starts anew: what `cd` and `export` did is gone with it."""

import json
import math
import os
import shlex
import sys

MOST_SECONDS = 600  # what pk-bash allows


def fenced(call, pk_bash):
    """The tool's input with a fenced command, and all else as it was."""
    given = call["tool_input"]
    command, here = given["command"], os.path.abspath(call.get("cwd") or ".")
    if not isinstance(command, str) or "\0" in command:
        raise ValueError("the command is not one that a shell can run")
    project = os.path.abspath(os.environ.get("CLAUDE_PROJECT_DIR") or here)
    if here != project:
        command = f"cd -- {shlex.quote(here)} || exit\n{command}"
    words = [*pk_bash, "-y", "--raw", "-C", project, "--protect", ".claude"]
    if "timeout" in given:
        seconds = math.ceil(given["timeout"] / 1000)
        words += ["--timeout", str(min(max(seconds, 1), MOST_SECONDS))]
    return {**given, "command": shlex.join([*words, "-c", command])}


def main(args):
    decision = "ask"
    if args[:1] == ["--allow"]:
        decision, args = "allow", args[1:]
    try:
        call = json.load(sys.stdin)
        if call["tool_name"] != "Bash":
            return 0  # no opinion
        changed = fenced(call, args or ["pk-bash"])
    except Exception as error:
        # Status 2 stops the call; with any other, it would run as it is.
        print(f"pretooluse: cannot fence this call: {error!r}", file=sys.stderr)
        return 2
    answer = {
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": "runs in the fence of pk-bash",
        "updatedInput": changed,
    }
    print(json.dumps({"hookSpecificOutput": answer}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

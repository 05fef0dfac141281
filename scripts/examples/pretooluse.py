#!/usr/bin/env python3
"""Usage: pretooluse.py [--allow] [--strict] [PK-BASH [OPTION]...]

A PreToolUse hook for coding agents with a shell tool of their own, such as
Claude Code: the tool runs the command of each call through pk-bash. In the
user's settings (~/.claude/settings.json), not in those of a project, which
whatever runs there could change:

    {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [
        {"type": "command", "command": "/path/to/pretooluse.py"}]}]}}

Bash and Monitor, which both run a command, are fenced; PowerShell is denied.
With --strict every other tool is denied too, except those that run nothing and
change nothing (READS below): name there what you let through. Without it the
matcher "Bash|Monitor|PowerShell" is enough.

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
FENCED = ("Bash", "Monitor")
READS = ("Read", "Glob", "Grep", "LS", "TodoWrite")


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
    if given.get("run_in_background"):
        words += ["--timeout", str(MOST_SECONDS)]
    elif "timeout" in given:
        seconds = math.ceil(given["timeout"] / 1000)
        words += ["--timeout", str(min(max(seconds, 1), MOST_SECONDS))]
    return {**given, "command": shlex.join([*words, "-c", command])}


def main(args):
    decision, strict = "ask", False
    while args[:1] in (["--allow"], ["--strict"]):
        if args[0] == "--allow":
            decision = "allow"
        else:
            strict = True
        args = args[1:]
    try:
        call = json.load(sys.stdin)
        tool = call["tool_name"]
        if tool not in FENCED:
            if tool == "PowerShell" or strict and tool not in READS:
                say("deny", f"{tool} is not fenced: use Bash")
            return 0  # else no opinion
        changed = fenced(call, args or ["pk-bash"])
    except Exception as error:
        # Status 2 stops the call; with any other, it would run as it is.
        print(f"pretooluse: cannot fence this call: {error!r}", file=sys.stderr)
        return 2
    say(decision, "runs in the fence of pk-bash", updatedInput=changed)
    return 0


def say(decision, reason, **more):
    answer = {
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": reason,
        **more,
    }
    print(json.dumps({"hookSpecificOutput": answer}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

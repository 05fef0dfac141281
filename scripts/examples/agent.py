#!/usr/bin/env python3
"""Usage: agent.py TASK PK-BASH [OPTION]...

An agent in small: the model proposes a command, pk-bash runs it, the model sees
what came of it, until it has nothing more to run. The model here is a script;
put yours in the place of `model`, which gets the whole conversation."""

import json
import sys

from loop import Shell

MOST_TURNS = 20  # a model that never ends costs time and money


def model(messages):
    """Runs the tests, mends what they complain of, runs them again. Then it starts
    a server, fetches a file from it in the next command, and ends it."""
    seen = [m["content"] for m in messages if m["role"] == "tool"]
    if len(seen) == 0:
        return {"command": "sh test.sh", "description": "run the tests"}
    if len(seen) == 1 and "is wrong" in seen[0]:
        return {"command": "sed -i 's/helo/hello/' greeting", "description": "mend it"}
    if len(seen) == 2:
        return {"command": "sh test.sh", "description": "run the tests again"}
    if len(seen) == 4:
        return {"command": "curl -s --retry 9 --retry-connrefused localhost:8000/greeting"}
    if len(seen) < 6 and "exit status: 0" not in seen[-1]:
        return {"say": "I give up."}
    if len(seen) == 3:
        return {"op": "start", "command": "python3 -u -m http.server 8000", "wait_ms": 1000}
    if len(seen) == 5:
        return {"op": "kill", "job": "j1"}
    return {"say": "The tests pass, and the server serves."}


def observation(answer):
    """What the model gets to see. pk-bash has bounded and escaped the output."""
    text = answer.get("output", "")
    if text and not text.endswith("\n"):
        text += "\n"
    if answer["outcome"] == "running":
        return f"{text}still running: {answer['job']}"
    if answer["outcome"] != "exited":
        text += f"{answer['outcome']}: {answer.get('error', 'no result')}\n"
    return f"{text}exit status: {answer['exit_status']}"


def agent(task, shell):
    messages = [{"role": "user", "content": task}]
    for turn in range(MOST_TURNS):
        proposal = model(messages)
        if "say" in proposal:
            return proposal["say"]
        messages.append({"role": "assistant", "content": json.dumps(proposal)})
        # The model's words are data: pk-bash checks them, nothing else reads them.
        seen = observation(shell.run(**{**proposal, "id": turn}))
        messages.append({"role": "tool", "content": seen})
        print(f"{proposal.get('description', proposal.get('op', 'run'))}: {seen!r}")
    return f"Stopped after {MOST_TURNS} turns."


def main():
    if len(sys.argv) < 3:
        sys.exit("agent: give a task, and how to call pk-bash")
    try:
        shell = Shell(sys.argv[2:])
        print(agent(sys.argv[1], shell))
        return shell.close()
    except OSError as error:
        sys.exit(f"agent: {error}")


if __name__ == "__main__":
    sys.exit(main())

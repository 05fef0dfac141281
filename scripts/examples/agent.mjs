#!/usr/bin/env node
// Usage: agent.mjs TASK PK-BASH [OPTION]...
//
// An agent in small: the model proposes a command, pk-bash runs it, the model
// sees what came of it, until it has nothing more to run. The model here is a
// script; put yours in the place of `model`, which gets the whole conversation.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const mostTurns = 20; // a model that never ends costs time and money

// Runs the tests, mends what they complain of, runs them again. Then it starts a
// server, fetches a file from it in the next command, and ends it.
async function model(messages) {
  const seen = messages.filter((m) => m.role === 'tool').map((m) => m.content);
  if (seen.length === 0) return { command: 'sh test.sh', description: 'run the tests' };
  if (seen.length === 1 && seen[0].includes('is wrong'))
    return { command: "sed -i 's/helo/hello/' greeting", description: 'mend it' };
  if (seen.length === 2) return { command: 'sh test.sh', description: 'run the tests again' };
  if (seen.length === 4)
    return { command: 'curl -s --retry 9 --retry-connrefused localhost:8000/greeting' };
  if (!seen.at(-1).includes('exit status: 0') && seen.length < 6) return { say: 'I give up.' };
  if (seen.length === 3)
    return { op: 'start', command: 'python3 -u -m http.server 8000', wait_ms: 1000 };
  if (seen.length === 5) return { op: 'kill', job: 'j1' };
  return { say: 'The tests pass, and the server serves.' };
}

// What the model gets to see. pk-bash has bounded and escaped the output.
function observation({ outcome, output = '', error = 'no result', exit_status, job }) {
  if (output && !output.endsWith('\n')) output += '\n';
  if (outcome === 'running') return `${output}still running: ${job}`;
  const trouble = outcome === 'exited' ? '' : `${outcome}: ${error}\n`;
  return `${output}${trouble}exit status: ${exit_status}`;
}

// start gives a function that has pk-bash run one request after the other.
function start([program, ...options]) {
  const child = spawn(program, [...options, '--loop'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = new Promise((resolve, reject) => child.once('error', reject).once('exit', resolve));
  child.stdin.on('error', () => {}); // it has ended; `run` says so
  const answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const run = async (request) => {
    child.stdin.write(JSON.stringify(request) + '\n');
    const { value, done } = await Promise.race([answers.next(), ended.then(() => answers.next())]);
    if (done) throw new Error('pk-bash has ended');
    return JSON.parse(value);
  };
  const close = () => (child.stdin.end(), ended); // the end of input ends the loop
  return { run, close };
}

async function agent(task, shell) {
  const messages = [{ role: 'user', content: task }];
  for (let turn = 0; turn < mostTurns; turn++) {
    const proposal = await model(messages);
    if (proposal.say) return proposal.say;
    messages.push({ role: 'assistant', content: JSON.stringify(proposal) });
    // The model's words are data: pk-bash checks them, nothing else reads them.
    const seen = observation(await shell.run({ ...proposal, id: turn }));
    messages.push({ role: 'tool', content: seen });
    console.log(`${proposal.description ?? proposal.op ?? 'run'}: ${JSON.stringify(seen)}`);
  }
  return `Stopped after ${mostTurns} turns.`;
}

const [task, ...pkBash] = process.argv.slice(2);
if (pkBash.length === 0) {
  console.error('agent: give a task, and how to call pk-bash');
  process.exit(1);
}
try {
  const shell = start(pkBash);
  console.log(await agent(task, shell));
  process.exitCode = await shell.close();
} catch (error) {
  console.error(`agent: ${error.message}`);
  process.exitCode = 1;
}

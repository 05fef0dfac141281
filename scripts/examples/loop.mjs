#!/usr/bin/env node
// Usage: loop.mjs PK-BASH [OPTION]...
//
// Drives `pk-bash --loop` from Node. Requests may be made at once: answers are
// matched by their ids.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const [program, ...options] = process.argv.slice(2);
const shell = spawn(program, [...options, '--loop'], { stdio: ['pipe', 'pipe', 'inherit'] });
const waiting = new Map();
createInterface({ input: shell.stdout }).on('line', (line) => {
  const answer = JSON.parse(line);
  waiting.get(answer.id)?.(answer);
  waiting.delete(answer.id);
});

const run = (request) =>
  new Promise((answered) => {
    waiting.set(request.id, answered);
    shell.stdin.write(JSON.stringify(request) + '\n');
  });

const answers = await Promise.all([
  run({ id: 'uname', command: 'uname' }),
  run({ id: 'fails', command: 'exit 3' }),
  run({ id: 'slow', command: 'echo begun; sleep 60', timeout: 1 }),
  run({ id: 'bad' }),
]);
// A job runs beside the commands that follow, until it is told to end.
const wait = 'until test -e go; do sleep 0.01; done; echo gone; sleep 60';
answers.push(await run({ id: 'start', op: 'start', command: wait }));
answers.push(await run({ id: 'beside', command: 'touch go; echo beside it' }));
answers.push(await run({ id: 'read', op: 'read', job: 'j1', wait_ms: 60000 }));
answers.push(await run({ id: 'kill', op: 'kill', job: 'j1' }));
for (const { id, outcome, exit_status = '-', output, error } of answers) {
  console.log(`${id}: ${outcome} ${exit_status}: ${(error ?? output ?? '').trimEnd()}`);
}
shell.stdin.end(); // the end of input ends the loop

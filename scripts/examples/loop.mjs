#!/usr/bin/env node
// Usage: loop.mjs PK-BASH [OPTION]...
//
// Drives `pk-bash --loop` from Node. Requests may be made at once: the answers
// come in their order.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

const [program, ...options] = process.argv.slice(2);
const shell = spawn(program, [...options, '--loop'], { stdio: ['pipe', 'pipe', 'inherit'] });
const waiting = [];
createInterface({ input: shell.stdout }).on('line', (line) => waiting.shift()(JSON.parse(line)));

const run = (request) =>
  new Promise((answered) => {
    waiting.push(answered);
    shell.stdin.write(JSON.stringify(request) + '\n');
  });

const answers = await Promise.all([
  run({ id: 'uname', command: 'uname' }),
  run({ id: 'fails', command: 'exit 3' }),
  run({ id: 'slow', command: 'echo begun; sleep 60', timeout: 1 }),
  run({ id: 'bad' }),
]);
for (const { id, outcome, exit_status, output, error } of answers) {
  console.log(`${id}: ${outcome} ${exit_status}: ${(error ?? output ?? '').trimEnd()}`);
}
shell.stdin.end(); // the end of input ends the loop

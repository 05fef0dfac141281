// Usage: node clients.mjs MODULES COMMAND [ARG]...
//
// Drives a server by the official TypeScript clients that are installed in the
// directory MODULES: @modelcontextprotocol/sdk 1.x, and @modelcontextprotocol/client
// 2.x in each of its ways to find the version. Prints a line for each, and exits with 1
// if one of them got something wrong.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, command, ...args] = process.argv.slice(2);
const require = createRequire(pathToFileURL(modules + "/x.js"));
const load = (name) => import(pathToFileURL(require.resolve(name)));

async function drive(name, Client, Stdio, options, elicited, schema = []) {
  const asked = [];
  const client = new Client({ name: "test", version: "1" }, { capabilities: { elicitation: {} }, ...options });
  elicited(client, (request) => {
    asked.push(request.params);
    return { action: request.params.message.includes("forbidden") ? "decline" : "accept" };
  });
  const transport = new Stdio({ command, args: [...args, "--ask"], stderr: "inherit" });
  await client.connect(transport);
  const call = (name, args, options) => client.callTool({ name, arguments: args }, ...schema, options);
  const text = (result) => result.content[0].text;

  const { tools } = await client.listTools();
  assert.equal(tools.length, 11);
  assert.match(text(await call("bash", { command: "echo hi; exit 3" })), /^hi\n\n(.*\n)*exit status: 3\n$/);
  assert.equal(asked.length, 1);
  assert.match(text(await call("bash", { command: ": forbidden" })), /declined/);
  assert.match(text(await call("write", { path: "/tmp/x", content: "y\n" })), /2 bytes/);
  assert.match(text(await call("bash", { command: "cat /tmp/x" })), /^y\n/);
  assert.equal((await call("read", { path: "/nonesuch" })).isError, true);

  const lines = [];
  await call("bash", { command: "echo a; sleep 0.3; echo b" }, { onprogress: (p) => lines.push(p.message) });
  assert.deepEqual(lines.filter((line) => line.length === 1), ["a", "b"]); // client 2 tells of its questions, too

  const stop = new AbortController();
  const cancelled = call("bash", { command: "sleep 100" }, { signal: stop.signal });
  setTimeout(() => stop.abort(), 300);
  await assert.rejects(cancelled);
  const deadline = Date.now() + 20000;
  while (text(await call("bash_list", {})) !== "no jobs\n") assert.ok(Date.now() < deadline, "the command runs on");

  const parallel = await Promise.all([..."abcdefgh"].map((c) => call("bash", { command: `echo ${c}` })));
  assert.deepEqual(parallel.map((r) => text(r)[0]).join(""), "abcdefgh");
  await client.close();
  console.log(`${name}: ok`);
}

const v1 = await load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
const { ElicitRequestSchema } = await load("@modelcontextprotocol/sdk/types.js");
await drive("sdk 1", v1.Client, StdioClientTransport, {}, (c, f) => c.setRequestHandler(ElicitRequestSchema, f), [undefined]);

const v2 = await load("@modelcontextprotocol/client");
const stdio = await load("@modelcontextprotocol/client/stdio");
for (const mode of ["legacy", "auto"])
  await drive(`client 2, ${mode}`, v2.Client, stdio.StdioClientTransport, { versionNegotiation: { mode } }, (c, f) =>
    c.setRequestHandler("elicitation/create", f));

// An MCP client made with the TypeScript SDK. It calls a tool that only reads until it gets SIGTERM, and lists the tools
// whenever it is told that they changed. See ../doc.go for what it prints.
//
//   node client.mjs URL
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { setTimeout as sleep } from "node:timers/promises";

const emit = (event) => process.stdout.write(JSON.stringify(event) + "\n");

let told = 0;
let stopped = false;
process.on("SIGTERM", () => { stopped = true; });

const client = new Client({ name: "typescript", version: "1" });
client.onerror = (error) => { if (!stopped) emit({ event: "error", error: String(error) }); };
client.onclose = () => { if (!stopped) emit({ event: "error", error: "the connection was closed" }); };
client.setNotificationHandler(ToolListChangedNotificationSchema, () => {
  told++;
  emit({ event: "told" });
});

async function list() {
  const names = [];
  for (let cursor, first = true; first || cursor !== undefined; first = false) {
    const page = await client.listTools(cursor === undefined ? undefined : { cursor });
    names.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
  }
  emit({ event: "tools", tools: names });
}

async function call(account) {
  try {
    const result = await client.callTool({ name: "balance", arguments: { account } });
    if (result.isError || !result.content[0]?.text.includes(account)) throw new Error(JSON.stringify(result));
    emit({ event: "call" });
  } catch (error) {
    emit({ event: "call", error: String(error) });
  }
}

const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]));
await client.connect(transport);
emit({ event: "connected", protocol: transport.protocolVersion });
await list();
for (let n = 0, listed = 0; !stopped; n++) {
  await call(`account-${n}`);
  if (told !== listed) {
    listed = told;
    await list();
  }
  await sleep(100);
}
await list();
await transport.terminateSession();
await client.close();
emit({ event: "done" });

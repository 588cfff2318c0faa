// An MCP server made with the TypeScript SDK, whose tools depend on its version.
//
//   node backend.mjs --listen HOST:PORT --version v1|v2 [--stateless]
//
// Like the SDK's examples it answers 400 for a session that it doesn't know.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { parseArgs } from "node:util";
import { z } from "zod";

const { values: options } = parseArgs({
  options: { listen: { type: "string" }, version: { type: "string" }, stateless: { type: "boolean" } },
});

function newServer() {
  const server = new McpServer({ name: "typescript", version: options.version });
  const text = (s) => ({ content: [{ type: "text", text: s }] });
  server.registerTool("balance",
    { description: "Reads a balance.", inputSchema: { account: z.string() }, annotations: { readOnlyHint: true } },
    ({ account }) => text(account));
  if (options.version === "v1") {
    server.registerTool("count", { description: "Counts its calls." }, () => text("1"));
  } else {
    server.registerTool("multiply", { description: "Multiplies two numbers.", inputSchema: { a: z.number(), b: z.number() } },
      ({ a, b }) => text(String(a * b)));
  }
  return server;
}

const sessions = new Map(); // transports by id

function refuse(res, status, message) {
  res.writeHead(status, { "Content-Type": "application/json" });
  res.end(JSON.stringify({ jsonrpc: "2.0", error: { code: -32000, message }, id: null }));
}

async function serve(req, res) {
  if (new URL(req.url, "http://localhost").pathname !== "/mcp") {
    res.writeHead(404).end();
    return;
  }
  let body;
  if (req.method === "POST") {
    const chunks = [];
    for await (const chunk of req) chunks.push(chunk);
    body = JSON.parse(Buffer.concat(chunks));
  }
  if (options.stateless) {
    if (req.method !== "POST") {
      refuse(res, 405, "Method not allowed.");
      return;
    }
    const server = newServer();
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    res.on("close", () => { transport.close(); server.close(); });
    await server.connect(transport);
    await transport.handleRequest(req, res, body);
    return;
  }
  let transport = sessions.get(req.headers["mcp-session-id"]);
  if (!transport) {
    if (body?.method !== "initialize" || req.headers["mcp-session-id"]) {
      refuse(res, 400, "Bad Request: No valid session ID provided");
      return;
    }
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => { sessions.set(id, transport); },
      onsessionclosed: (id) => { sessions.delete(id); },
    });
    await newServer().connect(transport);
  }
  await transport.handleRequest(req, res, body);
}

const http = createServer((req, res) => {
  serve(req, res).catch((error) => {
    console.error(error);
    if (!res.headersSent) refuse(res, 500, "Internal server error");
  });
});
process.on("SIGTERM", () => {
  http.close(() => process.exit(0));
  for (const transport of sessions.values()) transport.close();
  sessions.clear();
  setTimeout(() => http.closeAllConnections(), 300); // calls may finish; streams never do by themselves
});
const [host, port] = options.listen.split(":");
http.listen(Number(port), host);

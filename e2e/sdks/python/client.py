"""An MCP client made with FastMCP, of version 3 or 4.

It calls a tool that only reads until it gets SIGTERM, and lists the tools whenever it is told that they changed. See
../doc.go for what it prints.

    python client.py [--mode legacy|auto] URL     (the mode is for version 4)
"""

import argparse
import asyncio
import json
import signal

import fastmcp
from fastmcp.client.messages import MessageHandler


def emit(event, **more):
    print(json.dumps({"event": event, **more}), flush=True)


class Told(MessageHandler):
    """Counts the notices. Listing here would wait for an answer that the caller of this handler has to read."""

    def __init__(self):
        self.times = 0

    async def on_tool_list_changed(self, message):
        self.times += 1
        emit("told")

    async def on_exception(self, message):
        emit("error", error=repr(message))


async def listen(client, ready):
    """Subscribes as revision 2026-07-28 has it, which FastMCP leaves to the MCP package.

    The message handler gets the notices, too.
    """
    from mcp.client.subscriptions import listen

    try:
        async with listen(client.session, tools_list_changed=True) as subscription:
            ready.set()
            async for _ in subscription:
                pass
        emit("error", error="the subscription ended")
    except Exception as error:
        emit("error", error=f"listening: {error!r}")
        ready.set()


async def tools(client):
    emit("tools", tools=[tool.name for tool in await client.list_tools()])


async def call(client, account):
    try:
        result = await client.call_tool("balance", {"account": account})
        if account not in result.content[0].text:
            raise ValueError(repr(result))
        emit("call")
    except Exception as error:
        emit("call", error=repr(error))


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode")
    parser.add_argument("url")
    args = parser.parse_args()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    told = Told()
    options = {"mode": args.mode} if args.mode else {}
    async with fastmcp.Client(args.url, message_handler=told, **options) as client:
        if hasattr(client, "protocol_version"):
            protocol = client.protocol_version
        else:
            protocol = client.initialize_result.protocolVersion
        emit("connected", protocol=protocol)
        listening = None
        if protocol >= "2026":
            ready = asyncio.Event()
            listening = asyncio.create_task(listen(client, ready))
            await ready.wait()
        await tools(client)
        n, listed = 0, 0
        while not stop.is_set():
            await call(client, f"account-{n}")
            n += 1
            if told.times != listed:
                listed = told.times
                await tools(client)
            await asyncio.sleep(0.1)
        await tools(client)
        if listening:
            listening.cancel()
    emit("done")


asyncio.run(main())

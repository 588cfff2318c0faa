"""Adds POST /api/conversations/{id}/refresh_mcp_tools to an agent server that was released without it.

Only for tests: it does what is proposed for the agent server, by means that are not its API. It is imported before the
server is (agent-server --import-modules refresh_action).
"""

import asyncio
from uuid import UUID

from fastapi import Depends, HTTPException, status
from mcp.shared.exceptions import McpError
from openhands.agent_server.conversation_router import conversation_router
from openhands.agent_server.conversation_service import ConversationService
from openhands.agent_server.dependencies import get_conversation_service
from openhands.agent_server.models import Success
from openhands.sdk.mcp.tool import MCPToolExecutor
from openhands.sdk.mcp.utils import _refresh_tools

TIMEOUT = 30  # seconds, for each client


async def reconnect(client):
    await client.close()
    await client.connect()


async def refresh(client):
    """Lists the tools of a client, on a new connection if need be, and gives them to the agent."""
    handler = client._session_kwargs["message_handler"]
    async with handler._refresh_lock:  # not while a notice is followed
        if not client.is_connected():
            await reconnect(client)
        try:
            await _refresh_tools(client)
        except McpError:
            await reconnect(client)
            await _refresh_tools(client)
        # Also if nothing has changed.
        client._tools_reconciled_callback(client, client.tools)


def refresh_all(conversation):
    if not conversation._agent_ready:
        conversation._ensure_agent_ready()
        return
    executors = [tool.executor for tool in conversation.agent.tools_map.values()]
    clients = {id(e.client): e.client for e in executors if isinstance(e, MCPToolExecutor)}
    failures = []
    for client in clients.values():
        try:
            client.call_async_from_sync(refresh, client, timeout=TIMEOUT)
        except Exception as failure:
            failures.append(failure)
    if failures:
        raise ExceptionGroup("Failed to refresh MCP tools", failures)


@conversation_router.post("/{conversation_id}/refresh_mcp_tools")
async def refresh_mcp_tools(
    conversation_id: UUID,
    conversation_service: ConversationService = Depends(get_conversation_service),
) -> Success:
    event_service = await conversation_service.get_event_service(conversation_id)
    if event_service is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND)
    await asyncio.to_thread(refresh_all, event_service.get_conversation())
    return Success()

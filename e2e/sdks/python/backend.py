"""An MCP server made with FastMCP, of version 3 or 4, whose tools depend on its version.

    python backend.py --listen HOST:PORT --version v1|v2 [--stateless]
"""

import argparse

from fastmcp import FastMCP

parser = argparse.ArgumentParser()
parser.add_argument("--listen")
parser.add_argument("--version")
parser.add_argument("--stateless", action="store_true")
args = parser.parse_args()

mcp = FastMCP("fastmcp", version=args.version)


@mcp.tool(annotations={"readOnlyHint": True})
def balance(account: str) -> str:
    """Reads a balance."""
    return account


if args.version == "v1":

    @mcp.tool
    def count() -> int:
        """Counts its calls."""
        return 1

else:

    @mcp.tool
    def multiply(a: float, b: float) -> float:
        """Multiplies two numbers."""
        return a * b


host, port = args.listen.split(":")
mcp.run(
    transport="http",
    host=host,
    port=int(port),
    stateless_http=args.stateless,
    show_banner=False,
    log_level="WARNING",
)

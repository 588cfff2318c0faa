"""An MCP server whose tools depend on its version.

    python backend.py --listen HOST:PORT --version v1|v2 --kind sdk|fastmcp [--stateless]

It is made with the FastMCP of the MCP SDK 1 (sdk) or with the one that became a project of its own (fastmcp), of any
version.
"""

import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--listen", required=True)
parser.add_argument("--version", choices=["v1", "v2"], required=True)
parser.add_argument("--kind", choices=["sdk", "fastmcp"], required=True)
parser.add_argument("--stateless", action="store_true")
args = parser.parse_args()
host, port = args.listen.split(":")

if args.kind == "sdk":
    from mcp.server.fastmcp import FastMCP
    from mcp.types import ToolAnnotations

    mcp = FastMCP("backend", host=host, port=int(port), stateless_http=args.stateless, log_level="WARNING")
    run = {"transport": "streamable-http"}
    reads = ToolAnnotations(readOnlyHint=True)
else:
    from fastmcp import FastMCP

    mcp = FastMCP("backend", version=args.version)
    run = {
        "transport": "http", "host": host, "port": int(port), "stateless_http": args.stateless,
        "show_banner": False, "log_level": "WARNING",
    }
    reads = {"readOnlyHint": True}


@mcp.tool(annotations=reads)
def balance(account: str) -> str:
    """Reads a balance."""
    return f"balance of {account}"


if args.version == "v1":

    @mcp.tool()
    def convert(amount: float) -> str:
        """Converts an amount to euros."""
        return f"{amount} euros"

    @mcp.tool()
    def count(by: int) -> str:
        """Counts."""
        return f"counted {by}"

else:

    @mcp.tool()
    def convert(amount: float, currency: str) -> str:
        """Converts an amount."""
        return f"{amount} {currency}"

    @mcp.tool()
    def multiply(a: int, b: int) -> str:
        """Multiplies two numbers."""
        return f"product {a * b}"


mcp.run(**run)

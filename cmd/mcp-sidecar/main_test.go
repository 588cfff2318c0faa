package main

import (
	"os"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"go.uber.org/goleak"
)

// stdioTools names, to a test binary that is to be a stdio backend, the file with
// the names of its tools.
const stdioTools = "TEST_STDIO_TOOLS_FILE"

func TestMain(m *testing.M) {
	if file := os.Getenv(stdioTools); file != "" && len(os.Args) == 2 && os.Args[1] == "stdio-backend" {
		names, err := os.ReadFile(file)
		if err != nil {
			os.Exit(1)
		}
		s := server.NewMCPServer("stdio", "1", server.WithToolCapabilities(true))
		for name := range strings.FieldsSeq(string(names)) {
			s.AddTool(mcp.NewTool(name), echo(name))
		}
		if server.ServeStdio(s) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

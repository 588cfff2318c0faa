package stdio

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"go.uber.org/goleak"
)

// modeEnv makes this test binary a stdio server; its value says what it is like.
const modeEnv = "STDIO_TEST_SERVER"

func TestMain(m *testing.M) {
	switch mode := os.Getenv(modeEnv); mode {
	case "":
		goleak.VerifyTestMain(m)
	case "mcp-go":
		serveMCPGo()
	case "parent":
		serveParent()
	default:
		os.Exit(serveTest(mode))
	}
}

// serveMCPGo is a server made with mcp-go.
func serveMCPGo() {
	s := server.NewMCPServer("mcp-go", "1", server.WithToolCapabilities(true), server.WithLogging())
	s.AddTool(mcp.NewTool("greet", mcp.WithString("name")), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 3 {
			if err := s.SendNotificationToClient(ctx, methodProgress, map[string]any{
				"progressToken": r.Params.Meta.ProgressToken, "progress": i,
			}); err != nil {
				return nil, err
			}
		}

		return mcp.NewToolResultText("hello " + r.GetString("name", "")), nil
	})

	if err := server.ServeStdio(s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveParent runs a bridge, begins a session and writes what it got.
func serveParent() {
	cfg := DefaultConfig()
	cfg.Command = []string{os.Args[0]}
	cfg.Env = map[string]string{modeEnv: "deaf"}

	b, err := New(cfg, Deps{})
	if err != nil {
		panic(err)
	}

	go func() { _ = b.Run(context.Background()) }()

	for {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://stdio.invalid/", strings.NewReader(initRequest(initParams)))
		if err != nil {
			panic(err)
		}

		if resp, err := b.RoundTrip(req); err == nil {
			_, _ = io.Copy(os.Stdout, resp.Body)
			_ = resp.Body.Close()

			fmt.Println()

			select {}
		}
	}
}

// testServer is a server that does what it is told by the names of its tools.
type testServer struct {
	mode string
	in   *bufio.Reader

	mu      sync.Mutex
	answers map[string]chan json.RawMessage // to its own requests
	tasks   sync.WaitGroup
}

type testMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name            string            `json:"name"`
		ProtocolVersion string            `json:"protocolVersion"`
		Arguments       map[string]string `json:"arguments"`
		Meta            struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
		RequestID json.RawMessage `json:"requestId"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func serveTest(mode string) int {
	switch mode {
	case "exit":
		fmt.Fprintln(os.Stderr, "cannot find the module")
		return 3
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	}

	s := &testServer{mode: mode, in: bufio.NewReader(os.Stdin), answers: map[string]chan json.RawMessage{}}

	for {
		line, err := s.in.ReadBytes('\n')
		if err != nil {
			break
		}

		var m testMessage
		if err := json.Unmarshal(line, &m); err != nil {
			fmt.Fprintln(os.Stderr, "bad line", err)
			return 1
		}

		switch {
		case m.Method == methodInitialize:
			s.initialize(&m)
		case m.Method == "" && m.ID != nil:
			s.mu.Lock()
			s.answers[string(m.ID)] <- append(m.Result, m.Error...)
			s.mu.Unlock()
		case m.Params.Name == "block": // reads nothing any more
			awaitFile(m.Params.Arguments["file"])
		default:
			s.tasks.Go(func() { s.handle(&m, line) })
		}
	}

	if mode == "stubborn" || mode == "deaf" {
		select {}
	}

	return 0
}

func (s *testServer) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()

	fmt.Fprintf(os.Stdout, format+"\n", args...)
}

func (s *testServer) initialize(m *testMessage) {
	if file := os.Getenv("STDIO_TEST_WAIT"); file != "" {
		awaitFile(file)
	}

	version := m.Params.ProtocolVersion
	if v := os.Getenv("STDIO_TEST_REVISION"); v != "" {
		version = v
	}

	s.say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"test","version":"1"},"pid":%d}}`,
		m.ID, version, os.Getpid())
}

func awaitFile(path string) {
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}

		time.Sleep(5 * time.Millisecond)
	}
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}

	return string(b)
}

func (s *testServer) handle(m *testMessage, line []byte) {
	text := ""

	switch m.Method {
	case methodInitialized:
		fmt.Fprintln(os.Stderr, "initialized")
		return
	case methodCancelled:
		fmt.Fprintln(os.Stderr, "cancelled", string(m.Params.RequestID))
		return
	case methodListen:
		s.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.ID)
		return
	case methodPing:
		s.say(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
		return
	}

	if m.ID == nil {
		return
	}

	args := m.Params.Arguments

	switch m.Params.Name {
	case "pid":
		text = strconv.Itoa(os.Getpid())
	case "echo":
		text = strings.TrimSpace(string(line))
	case "env":
		text = os.Getenv(args["name"])
	case "dir":
		text, _ = os.Getwd()
	case "progress":
		for i := range 3 {
			s.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, m.Params.Meta.ProgressToken, i)
		}
	case "notice":
		s.say(`{"jsonrpc":"2.0","method":%q}`, args["method"])
	case "wait":
		if file := args["started"]; file != "" {
			_ = os.WriteFile(file, nil, 0o600)
		}

		awaitFile(args["file"])
		text = strconv.Itoa(os.Getpid())
	case "die":
		os.Exit(3)
	case "ask":
		answer := make(chan json.RawMessage, 1)
		s.mu.Lock()
		s.answers[`"q"`] = answer
		s.mu.Unlock()
		s.say(`{"jsonrpc":"2.0","id":"q","method":%q}`, args["method"])
		text = string(<-answer)
	case "raw":
		s.say("%s", args["line"])
	case "stderr":
		fmt.Fprintln(os.Stderr, args["line"])
	case "huge":
		s.say(`{"jsonrpc":"2.0","method":"x","params":%q}`, strings.Repeat("x", 4<<20))
	case "mute":
		return
	case "child":
		c := exec.Command("sleep", "1000")
		c.Stdout, c.Stderr = os.Stdout, os.Stderr

		if err := c.Start(); err != nil {
			text = err.Error()
			break
		}

		text = strconv.Itoa(c.Process.Pid)
	default:
		s.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such tool"}}`, m.ID)
		return
	}

	s.say(`{"jsonrpc":"2.0","id":%s,"result":{"text":%s}}`, m.ID, quoted(text))
}

// Command client is an MCP client made with the official Go SDK. It calls a tool that only reads until it gets SIGTERM,
// and lists the tools whenever it is told that they changed. See the package sdks for what it prints.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// event is a line of standard output.
type event struct {
	Event    string   `json:"event"`
	Protocol string   `json:"protocol,omitempty"`
	Tools    []string `json:"tools,omitempty"`
	Error    string   `json:"error,omitempty"`
}

var printing sync.Mutex

func emit(e event) {
	printing.Lock()
	defer printing.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(e)
}

func main() {
	if err := run(); err != nil {
		emit(event{Event: "error", Error: err.Error()})
		os.Exit(1)
	}
}

func run() error {
	protocol := flag.String("protocol", "", "`revision` to begin with (default the newest)")
	pause := flag.Duration("pause", 100*time.Millisecond, "time between two calls")
	flag.Parse()
	stopped, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx := context.WithoutCancel(stopped) // what has begun is finished

	var told atomic.Int64
	client := mcp.NewClient(&mcp.Implementation{Name: "gosdk", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			emit(event{Event: "told"})
			told.Add(1)
		},
	})
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: flag.Arg(0)},
		&mcp.ClientSessionOptions{ProtocolVersion: *protocol})
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	emit(event{Event: "connected", Protocol: session.InitializeResult().ProtocolVersion})
	ended := make(chan struct{})
	go func() {
		err := session.Wait()
		if stopped.Err() == nil {
			emit(event{Event: "error", Error: fmt.Sprint("the session ended: ", err)})
		}
		close(ended)
	}()

	if err := list(ctx, session); err != nil {
		return err
	}
	tick := time.NewTicker(*pause)
	defer tick.Stop()
	for n, listed := 0, int64(0); stopped.Err() == nil; n++ {
		call(ctx, session, fmt.Sprintf("account-%d", n))
		if now := told.Load(); now != listed {
			listed = now
			if err := list(ctx, session); err != nil {
				emit(event{Event: "error", Error: err.Error()})
			}
		}
		select {
		case <-stopped.Done():
		case <-tick.C:
		}
	}
	if err := list(ctx, session); err != nil {
		return err
	}
	if err := session.Close(); err != nil {
		return fmt.Errorf("closing: %w", err)
	}
	<-ended
	emit(event{Event: "done"})
	return nil
}

func call(ctx context.Context, session *mcp.ClientSession, account string) {
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "balance", Arguments: map[string]any{"account": account}})
	e := event{Event: "call"}
	if err != nil {
		e.Error = err.Error()
	} else if answer, err := json.Marshal(result.Content); err != nil || result.IsError || !strings.Contains(string(answer), account) {
		e.Error = fmt.Sprintf("%s, %v", answer, err)
	}
	emit(e)
}

func list(ctx context.Context, session *mcp.ClientSession) error {
	names := []string{}
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return fmt.Errorf("listing tools: %w", err)
		}
		names = append(names, tool.Name)
	}
	emit(event{Event: "tools", Tools: names})
	return nil
}

//go:build unix

// Command mcp-sidecar-swaptest puts an MCP reverse proxy through replacements of the backend behind it, and tells what
// the clients in front of it saw. The proxy is any command that serves Streamable HTTP at one URL and forwards to
// another; the backend is a real process (../testbackend) that the tool kills and starts again.
//
//	go run ./e2e/swaptest -- mcp-sidecar run --listen {listen} --upstream http://{backend}/mcp
//
// Its clients don't recover from anything by themselves, as many don't: they never begin a new session, unless --recover
// is set, and every answer but the expected one counts as failed. What each scenario asks for is listed by --list.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitPassed = 0
	exitFailed = 1 // a scenario failed
	exitUsage  = 2 // nothing can be said: wrong usage, or the proxy didn't start
)

const description = `Puts an MCP proxy through replacements of the server behind it, and prints what its clients saw of them.

COMMAND starts the proxy in the foreground, again for each scenario. In it, and in --url, these stand for something:

  {backend}   the address of the test backend, whose MCP endpoint is http://{backend}/mcp
  {listen}    an address for the proxy to listen on; {host} and {port} are its parts
  {dir}       an empty directory, for files of the proxy

Where the proxy's addresses are fixed, name them with --url and --backend.

Examples:
  mcp-sidecar-swaptest -- mcp-sidecar run --listen {listen} --upstream http://{backend}/mcp
  mcp-sidecar-swaptest --url http://127.0.0.1:8080/mcp --backend 127.0.0.1:9000 -- nginx -c /etc/nginx/test.conf

Exit codes: 0 no scenario failed, 1 one failed, 2 wrong usage, the proxy didn't start, or it was interrupted.`

// options are the command line.
type options struct {
	URL         string        `default:"http://{listen}/mcp" placeholder:"URL" help:"MCP endpoint of the proxy (default http://{listen}/mcp)."`
	Backend     string        `placeholder:"HOST:PORT" help:"Where to start the test backend (default: a free port, which {backend} in COMMAND stands for)."`
	Testbackend string        `placeholder:"FILE" help:"The test backend, built (default: go build from the tree in the working directory)."`
	Only        []string      `placeholder:"NAME" help:"Only these scenarios."`
	List        bool          `help:"List the scenarios and what each asks for."`
	Away        time.Duration `default:"5s" help:"How long the backend is away in the scenarios that are about that."`
	Patience    time.Duration `default:"30s" help:"How long a client waits for an answer."`
	Start       time.Duration `default:"60s" help:"How long the proxy may take to start."`
	Settle      time.Duration `default:"2s" help:"How long everything runs before the first replacement."`
	Recover     bool          `help:"Let clients begin a new session after a 404, as the specification asks them to, and repeat the request."`
	Parallel    int           `default:"1" help:"Scenarios at one time; more than one needs {listen} and {backend}."`
	JSON        bool          `name:"json" help:"Print the results as JSON."`
	Verbose     bool          `short:"v" help:"Show the proxy's last output with each scenario that it fails."`
	Command     []string      `arg:"" optional:"" help:"Command that starts the proxy, after --."`

	stderr io.Writer
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func main() {
	// Nothing that was started may stay behind, not even where nobody reads what is printed any more.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute is the command, and returns its exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o := options{stderr: stderr}
	helped := false
	parser, err := kong.New(&o, kong.Name("mcp-sidecar-swaptest"), kong.Description(description), kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }))
	if err == nil {
		_, err = parser.Parse(args)
	}
	if helped {
		return exitPassed
	}
	if err != nil {
		fmt.Fprintf(stderr, "mcp-sidecar-swaptest: %s (see --help)\n", err)
		return exitUsage
	}
	results, err := o.run(ctx, stdout)
	switch {
	case err != nil:
		hint := ""
		if _, ok := errors.AsType[usageError](err); ok {
			hint = " (see --help)"
		}
		if start, ok := errors.AsType[startError](err); ok {
			hint = start.output
		}
		fmt.Fprintf(stderr, "mcp-sidecar-swaptest: %s%s\n", err, hint)
		return exitUsage
	case results.Failed > 0:
		return exitFailed
	}
	return exitPassed
}

// run runs the scenarios and prints what came out.
func (o *options) run(ctx context.Context, stdout io.Writer) (report, error) {
	chosen, err := choose(o.Only)
	if err != nil {
		return report{}, err
	}
	if o.List {
		for _, s := range chosen {
			fmt.Fprintf(stdout, "%-15s %s\n", s.name, s.asks)
		}
		return report{}, nil
	}
	if err := o.validate(); err != nil {
		return report{}, err
	}
	dir, err := os.MkdirTemp("", "mcp-sidecar-swaptest-*")
	if err != nil {
		return report{}, err
	}
	defer os.RemoveAll(dir)
	if o.Testbackend == "" {
		if o.Testbackend, err = build(ctx, dir); err != nil {
			return report{}, err
		}
	}
	r, err := o.all(ctx, dir, chosen)
	if err != nil {
		return r, err
	}
	return r, r.print(stdout, o.JSON)
}

func (o *options) validate() error {
	var errs []error
	command := strings.Join(o.Command, " ")
	mentions := func(what ...string) bool {
		for _, w := range what {
			if strings.Contains(command, w) {
				return true
			}
		}
		return false
	}
	free := strings.Contains(o.URL, "{listen}") || strings.Contains(o.URL, "{port}")
	switch {
	case command == "":
		errs = append(errs, errors.New("the command that starts the proxy is missing: write it after --"))
	case free && !mentions("{listen}", "{port}"):
		errs = append(errs, errors.New("the command doesn't contain {listen} or {port}: say with --url where the proxy listens"))
	case o.Backend == "" && !mentions("{backend}"):
		errs = append(errs, errors.New("the command doesn't contain {backend}: say with --backend where the proxy expects its backend"))
	}
	if o.Parallel > 1 && (!free || o.Backend != "") {
		errs = append(errs, errors.New("--parallel needs addresses that aren't fixed: {listen} and {backend}"))
	}
	if o.Parallel < 1 || o.Patience <= 0 || o.Start <= 0 || o.Away < 0 || o.Settle < 0 {
		errs = append(errs, errors.New("--parallel, --patience and --start must be greater than zero, --away and --settle not less"))
	}
	if len(errs) > 0 {
		return usageError{errors.Join(errs...)}
	}
	return nil
}

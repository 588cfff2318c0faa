package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// console is what a command has of the world outside.
type console struct {
	stdout, stderr io.Writer
	getenv         func(string) string
}

// cli is the command line.
type cli struct {
	Help helpFlag `short:"h" help:"Show help for the command." env:"-"`

	Run           runCmd           `cmd:"" help:"Run the sidecar."`
	Check         checkCmd         `cmd:"" help:"Validate a configuration and print every problem."`
	Tools         toolsCmd         `cmd:"" help:"Print the tools of an MCP server and their schema hash."`
	Diff          diffCmd          `cmd:"" help:"Print what changed between two tool sets; exits with 1 when something did."`
	Status        statusCmd        `cmd:"" help:"Print servers, generations and conversations of a running sidecar."`
	Conversations conversationsCmd `cmd:"" help:"List, add, remove and refresh the registered conversations."`
	Quiesce       quiesceCmd       `cmd:"" help:"Prepare a running sidecar for its end: for a preStop hook."`
	Demo          demoCmd          `cmd:"" help:"Show a redeployment from start to end, in this terminal."`
	DemoBackend   demoBackendCmd   `cmd:"" hidden:""`
	Version       versionCmd       `cmd:"" help:"Print the version."`
}

// errHelp ends the parsing after help was printed.
var errHelp = errors.New("help was asked for")

type helpFlag bool

// BeforeReset prints the help of the command that was chosen.
func (helpFlag) BeforeReset(ctx *kong.Context) error {
	if err := ctx.PrintUsage(false); err != nil {
		return err
	}
	return errHelp
}

// usageError is a mistake on the command line or in the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Results of commands that have said already what there is to say.
var (
	errDiffers = errors.New("the tool sets differ")           // exits with 1
	errInvalid = errors.New("the configuration has problems") // exits with 2
)

// execute runs the command line and returns the exit code.
func execute(ctx context.Context, args []string, con console) int {
	parser, envs, err := newParser(con)
	if err != nil {
		fmt.Fprintln(con.stderr, "mcp-sidecar:", err)
		return exitFailure
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	kctx, err := parser.Parse(args)
	if errors.Is(err, errHelp) {
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(con.stderr, "mcp-sidecar: %s (see mcp-sidecar --help)\n", err)
		return exitUsage
	}
	kctx.BindTo(ctx, (*context.Context)(nil))
	err = kctx.Run(con, origins{kctx, envs})
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDiffers):
		return exitFailure
	case errors.Is(err, errInvalid):
		return exitUsage
	}
	fmt.Fprintln(con.stderr, "mcp-sidecar:", strings.ReplaceAll(err.Error(), "\n", "\nmcp-sidecar: "))
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}

// newParser returns the parser and the variables that will have set flags once
// it has parsed: flag to variable.
func newParser(con console) (*kong.Kong, map[string]string, error) {
	envs := map[string]string{}
	p, err := kong.New(&cli{},
		kong.Name("mcp-sidecar"),
		kong.Description("Carries MCP clients across deployments of their server, and tells their agents about new tools."),
		kong.NoDefaultHelp(),
		kong.Writers(con.stdout, con.stderr),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.ValueFormatter(func(v *kong.Value) string {
			if v.Flag == nil || envName(v.Flag) == "" {
				return v.Help
			}
			return fmt.Sprintf("%s [$%s]", v.Help, envName(v.Flag))
		}),
		defaultsInHelp(),
		// The variables are looked up here and not by kong, which takes an empty
		// variable for a value. Unknown ones with our prefix must be ignored: a
		// Kubernetes Service of our name makes several.
		kong.Resolvers(kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
			name := envName(f)
			if name == "" {
				return nil, nil
			}
			value := con.getenv(name)
			if value == "" {
				return nil, nil
			}
			envs[f.Name] = name
			return value, nil
		})),
	)
	return p, envs, err
}

// envName is the variable that sets a flag; "" if there is none.
func envName(f *kong.Flag) string {
	if len(f.Envs) == 1 && f.Envs[0] == "-" {
		return ""
	}
	return "MCP_SIDECAR_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// origins tells what people know a flag's value by.
type origins struct {
	kctx *kong.Context
	envs map[string]string
}

func (o origins) of(flag string) string {
	if env, ok := o.envs[flag]; ok {
		return env
	}
	return "--" + flag
}

// defaultsInHelp makes the defaults of the configuration known to help texts.
func defaultsInHelp() kong.Vars {
	d := config.Default()
	return kong.Vars{
		"listen": d.Listen, "opsListen": d.OpsListen, "adminListen": d.AdminListen, "state": d.State, "redisPrefix": d.RedisPrefix,
		"hold": d.Hold.String(), "holdCall": d.HoldCall.String(),
		"probeInterval": d.ProbeInterval.String(), "probeTimeout": d.ProbeTimeout.String(), "listInterval": d.ListInterval.String(),
		"settle": d.Settle.String(), "refreshOn": d.RefreshOn, "logFormat": d.LogFormat, "logLevel": strings.ToLower(d.LogLevel.String()),
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// The exit codes. They are documented in README.
const (
	exitDone        = 0   // done, and nothing was found
	exitFound       = 1   // something was found: a mistake, a test that fails, a request that would be refused
	exitUsage       = 2   // wrong usage, or input that cannot be read
	exitStore       = 3   // Redis could not be asked
	exitDenied      = 4   // the user of Redis may not do that
	exitInterrupted = 130 // as shells have it
)

// outputVersion is the version of what --json prints.
const outputVersion = 1

// An exit is an error with the code that the program ends with. Without a text it was
// told already.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// run runs the command line and returns the exit code. What was asked for goes to out,
// all else to talk.
func run(ctx context.Context, args []string, out, talk io.Writer) int {
	redis.SetLogger(quiet{})
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(talk)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if ctx.Err() != nil {
		return exitInterrupted
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(talk, "throttle: "+clean(text))
	}
	var e *exit
	var store *throttle.StoreError
	switch {
	case errors.As(err, &e):
		return e.code
	case errors.As(err, &store):
		return exitStore
	}
	return exitUsage
}

// clean makes a text of several lines fit to be printed, because it may repeat what somebody
// has written to Redis.
func clean(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = fleet.Clean(line, len(line))
	}
	return strings.Join(lines, "\n")
}

// quiet keeps the client of Redis from writing to stderr what errors say anyway.
type quiet struct{}

// Printf implements the logger of go-redis.
func (quiet) Printf(context.Context, string, ...any) {}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "throttle",
		Short:         "Check, explain and watch the limits of other people's APIs",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noCommand,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.PersistentFlags().Bool("json", false, "print JSON")
	root.AddCommand(newCheck(), newExplain(), newPlan(), newSimulate(), newSchema())
	root.AddCommand(fleetCommands()...)
	return root
}

// printJSON prints v if --json was said, and reports whether it was.
func printJSON(c *cobra.Command, v any) (bool, error) {
	if said, _ := c.Flags().GetBool("json"); !said {
		return false, nil
	}
	e := json.NewEncoder(c.OutOrStdout())
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return true, e.Encode(v)
}

// manyArguments is more than anybody writes.
const manyArguments = 1 << 20

// takes sees to it that a command has from least to most arguments.
func takes(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("this is how it is used: %s", c.UseLine())
		}
		return nil
	}
}

// noCommand is the error of a first word that is no command.
func noCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("there is no command %q", args[0])
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf(" (did you mean %q?)", near[0])
	}
	return errors.New(text + "; see throttle --help")
}

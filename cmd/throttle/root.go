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

	"github.com/fleetthrottle/throttle/internal/numerals"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// The exit codes. They are documented in README.
const (
	exitDone        = 0   // done, and nothing was found
	exitFound       = 1   // something was found: a mistake, a test that fails, a request that would be refused
	exitUsage       = 2   // wrong usage, or input that cannot be read
	exitStore       = 3   // Redis could not be asked
	exitDenied      = 4   // the user of Redis may not do that
	exitDeclined    = 5   // nothing was done, because the operator did not agree
	exitConflict    = 6   // nothing was done, because the fleet is not as the command takes it to be
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

// run runs the command line and returns the exit code. Results go to out, diagnostics to talk.
func run(ctx context.Context, args []string, out, talk io.Writer) int {
	return execute(ctx, newRoot(), args, out, talk)
}

// execute is run for a root, whose stdin may be another.
func execute(ctx context.Context, root *cobra.Command, args []string, out, talk io.Writer) int {
	redis.SetLogger(quiet{})
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
	if errors.As(err, &e) {
		return e.code
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
	}
	version := root.Flags().Bool("version", false, "print the version")
	root.RunE = func(c *cobra.Command, _ []string) error {
		if *version {
			return printVersion(c)
		}
		return c.Help()
	}
	root.PersistentFlags().Bool("json", false, "print JSON")
	group(root, "Files of policies:", newCheck(), newExplain(), newPlan(), newSimulate(), newSchema())
	group(root, "A fleet:", fleetCommands()...)
	return root
}

// group adds commands that --help lists below a title.
func group(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

// asJSON reports whether --json was passed.
func asJSON(c *cobra.Command) bool {
	yes, _ := c.Flags().GetBool("json")
	return yes
}

// printJSON prints v if --json was passed, and reports whether it was.
func printJSON(c *cobra.Command, v any) (bool, error) {
	if !asJSON(c) {
		return false, nil
	}
	e := lines(c.OutOrStdout())
	e.SetIndent("", "  ")
	return true, e.Encode(v)
}

// lines returns an encoder that writes a line of JSON for each value.
func lines(out io.Writer) *json.Encoder {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e
}

// manyArguments is more than anybody writes.
const manyArguments = 1 << 20

// takes sees to it that a command has from least to most arguments.
func takes(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("%s accepts %s, received %d; usage: %s", c.Name(), accepted(least, most), len(args), c.UseLine())
		}
		return nil
	}
}

// accepted says how many arguments a command takes.
func accepted(least, most int) string {
	switch {
	case most == 0:
		return "no arguments"
	case most == manyArguments:
		return fmt.Sprintf("at least %s", numerals.Count(least, "argument", "arguments"))
	case least < most:
		return fmt.Sprintf("%d to %s", least, numerals.Count(most, "argument", "arguments"))
	}
	return numerals.Count(least, "argument", "arguments")
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

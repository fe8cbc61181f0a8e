// Command throttle checks and explains policy files, plans and simulates jobs,
// serves the proxy and the dashboard, and controls a fleet. Its README has a
// transcript.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

func main() { os.Exit(run(interruptible(), os.Args[1:], os.Stdout, os.Stderr)) }

// interruptible returns a context that ends with the first interrupt. The second interrupt ends the process.
func interruptible() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	go func() {
		<-interrupts

		// From now on an interrupt ends the process, as it does by default.
		signal.Stop(interrupts)
		cancel()
	}()
	return ctx
}

// run runs the command line and returns the exit code. Results go to out, diagnostics to talk.
func run(ctx context.Context, args []string, out, talk io.Writer) int {
	return execute(ctx, newRoot(), args, out, talk)
}

// execute runs a root command and returns the exit code. Results go to out, and the error to talk, except after an
// interrupt. For the whole process it turns off the logs of go-redis and of package log. Tests pass a root with an stdin
// of their own.
func execute(ctx context.Context, root *cobra.Command, args []string, out, talk io.Writer) int {
	// go-redis would log failures on stderr. The command reports them itself.
	redis.SetLogger(quiet{})

	// net/http would log unsolicited bytes from upstreams, which may hold secrets.
	log.SetOutput(io.Discard)

	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(talk)

	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}

	// An interrupted command has nothing to report.
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

	// An error without an exit code is about the arguments or the input.
	return exitUsage
}

// quiet discards the log of go-redis. Errors have the same text.
type quiet struct{}

// Printf implements the logger of go-redis.
func (quiet) Printf(context.Context, string, ...any) {}

// newRoot returns the command throttle with all its commands.
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
	group(root, "Files of policies:", newCheck(), newExplain(), newPlan(), newSimulate(), newProxy(), newEnvoy(), newSchema())
	group(root, "A machine:", newRun())
	group(root, "A fleet:", fleetCommands()...)

	return root
}

// fleetCommands are the commands that monitor and control a fleet through Redis.
func fleetCommands() []*cobra.Command {
	return []*cobra.Command{
		newStatus(), newOff(), newOn(), newPause(), newResume(), newReset(), newSetUsed(), newAudit(),
		newPush(), newPull(), newDiff(), newHistory(), newRollback(), newTop(), newDashboard(),
	}
}

// group adds commands under a title in --help.
func group(root *cobra.Command, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, c := range commands {
		c.GroupID = title
	}
	root.AddCommand(commands...)
}

// noCommand checks the arguments that are left for the root: any is the name of an unknown command, and an error, which
// suggests a command of a similar name.
func noCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("there is no command %q", args[0])

	// SuggestionsFor also finds commands within this edit distance, which is 0 by default.
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		text += fmt.Sprintf(" (did you mean %q?)", near[0])
	}
	return errors.New(text + "; see throttle --help")
}

// A versionResult is the JSON of --version.
type versionResult struct {
	Version  int    `json:"version"`
	Throttle string `json:"throttle"` // "(devel)" for a build without a version
	Go       string `json:"go"`
}

// release is the version of a program that scripts/binaries.sh has built. A program of "go install" has its version from
// the module.
var release string

// printVersion prints the versions of the program and of Go.
func printVersion(c *cobra.Command) error {
	v := versionResult{Version: outputVersion, Throttle: "(devel)", Go: runtime.Version()}
	if release != "" {
		v.Throttle = release
	} else if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		v.Throttle = b.Main.Version
	}
	return output(c, v, func() error {
		_, err := fmt.Fprintf(c.OutOrStdout(), "throttle %s, %s\n", v.Throttle, v.Go)
		return err
	})
}

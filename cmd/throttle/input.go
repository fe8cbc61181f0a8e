package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/policyfile"
)

// stdin returns what a command reads from stdin, which ends with an error when the command is
// interrupted. A read of a terminal or of a pipe cannot be ended, so a goroutine is left behind
// in it.
func stdin(c *cobra.Command) io.Reader {
	read, write := io.Pipe()
	context.AfterFunc(c.Context(), func() { write.CloseWithError(c.Context().Err()) })
	go func() {
		_, err := io.Copy(write, c.InOrStdin())
		write.CloseWithError(err)
	}()
	return read
}

// openInput opens a file that a command reads; "-" is stdin.
func openInput(c *cobra.Command, path string) (io.ReadCloser, error) {
	if path == "-" {
		if n := stdinArguments(c); n > 1 {
			return nil, fmt.Errorf("stdin is read once, and %d arguments name it", n)
		}
		return io.NopCloser(stdin(c)), nil
	}
	return os.Open(path)
}

// stdinArguments returns how many arguments name stdin.
func stdinArguments(c *cobra.Command) (n int) {
	for _, arg := range c.Flags().Args() {
		if arg == "-" {
			n++
		}
	}
	if mix := c.Flags().Lookup("mix"); mix != nil && mix.Value.String() == "-" {
		n++
	}
	return n
}

// readInput returns all that a file holds; "-" is stdin.
func readInput(c *cobra.Command, path string) ([]byte, error) {
	in, err := openInput(c, path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

// loadInput reads a file of policies; "-" is stdin.
func loadInput(c *cobra.Command, path string) (*policyfile.File, error) {
	text, err := readInput(c, path)
	if err != nil {
		return nil, err
	}
	return policyfile.Parse(path, text)
}

// manyArguments is more than anybody writes.
const manyArguments = 1 << 20

// argumentCount sees to it that a command has from least to most arguments.
func argumentCount(least, most int) cobra.PositionalArgs {
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
		return fmt.Sprintf("at least %s", stat.Count(least, "argument", "arguments"))
	case least < most:
		return fmt.Sprintf("%d to %s", least, stat.Count(most, "argument", "arguments"))
	}
	return stat.Count(least, "argument", "arguments")
}

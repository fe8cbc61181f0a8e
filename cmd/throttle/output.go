package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/policyfile"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/spf13/cobra"
)

// Exit codes, documented in README.
const (
	exitDone        = 0   // success
	exitFound       = 1   // a finding, such as a mistake, a failed test, or a request that would be held
	exitUsage       = 2   // wrong usage, or unreadable input
	exitStore       = 3   // Redis did not answer
	exitDenied      = 4   // the Redis user lacks a right
	exitDeclined    = 5   // nothing done: the operator declined
	exitConflict    = 6   // nothing done: the state of the fleet conflicts
	exitInterrupted = 130 // as in shells
)

// outputVersion is the version of the JSON output.
const outputVersion = 1

// An exit is an error with an exit code.
type exit struct {
	code int
	err  error // nil if the command has already printed the cause
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// clean escapes the control characters in each line of a text. The text may repeat foreign data from Redis.
func clean(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = fleet.Clean(line, len(line)) // whole
	}
	return strings.Join(lines, "\n")
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
	e := jsonLines(c.OutOrStdout())
	e.SetIndent("", "  ")
	return true, e.Encode(v)
}

// output prints v if --json was passed, and otherwise calls text.
func output(c *cobra.Command, v any, text func() error) error {
	if done, err := printJSON(c, v); done {
		return err
	}
	return text()
}

// jsonLines returns an encoder of one line per value, without HTML escapes.
func jsonLines(out io.Writer) *json.Encoder {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e
}

// lengthWords formats a duration that a person chose: "1 min", "1 h 30 min". A duration with a fraction of a second stays
// as Go prints it, such as "1.5s".
func lengthWords(d time.Duration) string {
	if d < time.Second || d%time.Second != 0 {
		return d.String()
	}

	var words []string
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if n := d / u.length; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, u.name))
		}
		d %= u.length
	}

	return strings.Join(words, " ")
}

// brief formats a duration, rounded to 1 ms below a second, to 0.1 s below a minute, and otherwise to 1 s.
func brief(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// A table is rows of cells under a row of titles.
type table struct {
	titles []string
	rows   [][]string
}

// lines returns the table with aligned columns, the titles first. Widths are in terminal columns: some characters are two
// wide. Control characters, possibly from foreign data in Redis, are escaped. A cell is cut at 1,000 characters.
func (t *table) lines() []string {
	all := append([][]string{t.titles}, t.rows...)
	widths := make([]int, len(t.titles))
	for i, row := range all {
		cleaned := make([]string, len(row))
		for j, cell := range row {
			cleaned[j] = fleet.Clean(cell, 1000)

			// The last cell of a shorter row may run over the columns behind it.
			runsOver := j == len(row)-1 && len(row) < len(t.titles)
			if !runsOver {
				widths[j] = max(widths[j], ansi.StringWidth(cleaned[j]))
			}
		}

		all[i] = cleaned
	}

	var lines []string
	for _, row := range all {
		var line strings.Builder
		for j, cell := range row {
			line.WriteString(cell)
			if j < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[j]-ansi.StringWidth(cell)+2))
			}
		}

		lines = append(lines, strings.TrimRight(line.String(), " "))
	}

	return lines
}

// add adds a row. If a row is shorter than the titles, its last cell may be wider than its column.
func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	t.rows = append(t.rows, row)
}

func (t *table) text() string { return strings.Join(t.lines(), "\n") + "\n" }

func (t *table) print(out io.Writer) error {
	_, err := io.WriteString(out, t.text())
	return err
}

// stdin returns a reader of stdin that fails when the command is interrupted. A blocked read of a terminal or
// pipe cannot be ended, so its goroutine stays.
func stdin(c *cobra.Command) io.Reader {
	read, write := io.Pipe()
	context.AfterFunc(c.Context(), func() { write.CloseWithError(c.Context().Err()) })
	go func() {
		_, err := io.Copy(write, c.InOrStdin())
		write.CloseWithError(err)
	}()
	return read
}

// openInput opens an input file. "-" is stdin, which only one argument may name.
func openInput(c *cobra.Command, path string) (io.ReadCloser, error) {
	if path == "-" {
		if n := stdinArguments(c); n > 1 {
			return nil, fmt.Errorf("stdin is read once, and %d arguments name it", n)
		}
		return io.NopCloser(stdin(c)), nil
	}
	return os.Open(path)
}

// stdinArguments returns how many arguments name stdin, --mix included.
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

// readInput returns the contents of a file. "-" is stdin.
func readInput(c *cobra.Command, path string) ([]byte, error) {
	in, err := openInput(c, path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

// loadInput reads a policy file. "-" is stdin.
func loadInput(c *cobra.Command, path string) (*policyfile.File, error) {
	text, err := readInput(c, path)
	if err != nil {
		return nil, err
	}
	return policyfile.Parse(path, text)
}

// manyArguments means no upper bound.
const manyArguments = 1 << 20

// argumentCount checks that a command has from least to most arguments.
func argumentCount(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("%s accepts %s, received %d; usage: %s", c.Name(), accepted(least, most), len(args), c.UseLine())
		}
		return nil
	}
}

// accepted describes how many arguments a command takes: from least to most.
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

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

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

// An exit is an error with the code that the program ends with.
type exit struct {
	code int
	err  error // nil: the command has printed already what is wrong
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// clean returns a text of several lines without control characters, because the text may repeat what
// somebody has written to Redis.
func clean(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = fleet.Clean(line, len(line))
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

// jsonLines returns an encoder that writes each value as JSON in one line, without the escapes for HTML.
func jsonLines(out io.Writer) *json.Encoder {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e
}

// lengthWords prints a length of time that a person chose, with its units: "1 min", "1 h 30 min".
func lengthWords(d time.Duration) string {
	if d < time.Second || d%time.Second != 0 {
		return d.String()
	}

	var words []string
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if n := d / u.of; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, u.name))
		}
		d %= u.of
	}

	return strings.Join(words, " ")
}

// brief prints a duration, rounded to what is worth reading.
func brief(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

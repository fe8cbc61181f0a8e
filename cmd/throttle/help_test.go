package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHelpHasExamples: the help of each command has an example, and each example is a command line that the command takes.
func TestHelpHasExamples(t *testing.T) {
	for _, c := range newRoot().Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		require.NotEmpty(t, c.Example, c.Name())
		for line := range strings.Lines(c.Example) {
			words := lineWords(t, strings.TrimSpace(line))
			require.Equal(t, "throttle", words[0], line)
			found, args, err := newRoot().Find(words[1:])
			require.NoError(t, err, line)
			require.Equal(t, c.Name(), found.Name(), line)
			require.NoError(t, found.ParseFlags(args), line)
			require.NoError(t, found.ValidateArgs(found.Flags().Args()), line)
		}
	}
}

// TestReference: docs/reference/command.md is the help of each command. $UPDATE writes the page.
func TestReference(t *testing.T) {
	const path = "../../docs/reference/command.md"
	page := new(strings.Builder)
	page.WriteString("# The command: reference\n\nThe help of each command, as the program prints it. A test writes this page. [The command](../../cmd/throttle/README.md) tells what the commands are for.\n")
	for _, c := range newRoot().Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		c.InitDefaultHelpFlag()
		help := new(strings.Builder)
		c.SetOut(help)
		require.NoError(t, c.Help())
		fmt.Fprintf(page, "\n## throttle %s\n\n```text\n%s\n```\n", c.Name(), strings.TrimSpace(help.String()))
	}

	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(page.String()), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(text), page.String(), "UPDATE=1 go test -run TestReference writes the page")
}

// lineWords takes a command line apart, with quoted words.
func lineWords(t *testing.T, line string) (words []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	require.Zero(t, strings.Count(line, `"`)%2, line)
	return words
}

// TestLengthWords: what a person chose is asked about with its units.
func TestLengthWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Minute: "1 min", 90 * time.Minute: "1 h 30 min", 45 * time.Second: "45 s", 1500 * time.Millisecond: "1.5s", 24 * time.Hour: "24 h",
	} {
		require.Equal(t, want, lengthWords(d))
	}
}

// TestProgress: a computation that takes longer than a second says how far it is in one line, which is gone at the end. What is no terminal sees nothing.
func TestProgress(t *testing.T) {
	begun := time.Now()
	var out bytes.Buffer
	p := &progress{out: &out, begun: begun}
	p.showAt(0.1, begun.Add(900*time.Millisecond))
	p.end()
	require.Empty(t, out.String(), "it was quick")
	p.showAt(0.25, begun.Add(2*time.Second))
	p.showAt(0.26, begun.Add(2100*time.Millisecond))
	p.showAt(0.5, begun.Add(4*time.Second))
	p.end()
	p.end()
	require.Equal(t, "\r\x1b[K25 %, 6s left\r\x1b[K50 %, 4s left\r\x1b[K", out.String())

	c := newPlan()
	c.SetErr(&out)
	require.Nil(t, newProgress(c))
	newProgress(c).show(0.5)
	newProgress(c).end()
}

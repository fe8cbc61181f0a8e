package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestFlags: what makes no sense is refused, and it is said why.
func TestFlags(t *testing.T) {
	t.Setenv("JOB_COMPLETION_INDEX", "")
	for want, args := range map[string][]string{
		`"now" is no flag`:                                                 {"now"},
		"flag provided but not defined: -fast":                             {"-fast"},
		"-parts is 0: use 1 or more":                                       {"-parts", "0"},
		"-part is 5 of 5: parts are counted from 0":                        {"-parts", "5", "-part", "5"},
		"-parts is 5 without -redis: machines share the limits by a Redis": {"-parts", "5", "-services", "s"},
		"-parts is 5 without -services: each machine would have its own":   {"-parts", "5", "-redis", "r"},
		"-for is -1s: use a time above 0":                                  {"-for", "-1s"},
		"-out is empty: name a folder":                                     {"-out", ""},
		"-orders and -shipments must be 1 or more":                         {"-shipments", "0"},
		"-ban is -1s: use a time above 0":                                  {"-ban", "-1s"},
		"-ban is for the services of this program: leave out -services":    {"-ban", "1s", "-services", "s"},
		"-serve and -services exclude each other":                          {"-serve", "a", "-services", "s"},
		`invalid value "much" for flag -orders`:                            {"-orders", "much"},
	} {
		_, err := parseFlags(args, io.Discard)
		require.ErrorContains(t, err, want)
	}
	o, err := parseFlags(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, throttle.PriorityLow, o.priority)
}

// TestIndex: a pod of an indexed job knows its part from its environment.
func TestIndex(t *testing.T) {
	args := []string{"-parts", "5", "-redis", "redis://redis", "-services", "services:80"}
	t.Setenv("JOB_COMPLETION_INDEX", "4")
	o, err := parseFlags(args, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 4, o.part)
	o, err = parseFlags(append(args, "-part", "2"), io.Discard)
	require.NoError(t, err)
	require.Equal(t, 2, o.part)
	t.Setenv("JOB_COMPLETION_INDEX", "5")
	_, err = parseFlags(args, io.Discard)
	require.ErrorContains(t, err, "-part is 5 of 5")
	t.Setenv("JOB_COMPLETION_INDEX", "first")
	_, err = parseFlags(args, io.Discard)
	require.ErrorContains(t, err, `JOB_COMPLETION_INDEX is "first" and not a number`)
}

// TestFlagsEndTheProgram: with the exit code for a wrong use; a password in a URL is not repeated.
func TestFlagsEndTheProgram(t *testing.T) {
	t.Parallel()
	require.Contains(t, start(t, "-parts", "0").ends(usage), "batch: -parts is 0")
	require.Contains(t, start(t, "-h").ends(0), "-out folder")
	out := start(t, "-out", t.TempDir(), "-redis", "redis://:secret@host:port").ends(1)
	require.Contains(t, out, "-redis is no URL such as redis://localhost:6379")
	require.NotContains(t, out, "secret")
}

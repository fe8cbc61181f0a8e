package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// A versionResult is what --version prints as JSON.
type versionResult struct {
	Version  int    `json:"version"`
	Throttle string `json:"throttle"` // "(devel)" for one that was built from a checkout
	Go       string `json:"go"`
}

// printVersion prints the version of the command.
func printVersion(c *cobra.Command) error {
	v := versionResult{outputVersion, "(devel)", runtime.Version()}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		v.Throttle = b.Main.Version
	}
	done, err := printJSON(c, v)
	if !done {
		_, err = fmt.Fprintf(c.OutOrStdout(), "throttle %s, %s\n", v.Throttle, v.Go)
	}
	return err
}

//go:build !linux && !darwin

package main

import (
	"errors"
	"net/http"
	"runtime"

	"github.com/spf13/cobra"
)

// newRun returns the command run of systems that cannot replace a process. It always fails, and names the way out.
func newRun() *cobra.Command {
	return &cobra.Command{
		Use:                "run [flags] -- COMMAND [ARGUMENT...]",
		Short:              "Run a program whose calls of APIs wait for their limits (Linux and macOS)",
		Example:            `  throttle run -- python agent.py`,
		DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return &exit{exitRun, errors.New("throttle run needs Linux or macOS: " + runtime.GOOS + " cannot replace a process by a program. Start throttle proxy, and set the base URLs")}
		},
	}
}

// runPage returns the error of a system without throttle run.
func runPage() (page http.Handler, token string, err error) {
	return nil, "", errors.New("there is no address of Redis: pass --redis, or set " + addressVariable)
}

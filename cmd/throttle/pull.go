package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// A pullResult is what pull prints as JSON.
type pullResult struct {
	Version int `json:"version"`
	*fleet.Pushed
	Text string `json:"text"`
}

func newPull() *cobra.Command {
	var at server
	var output string
	c := &cobra.Command{
		Use: "pull [NUMBER]",
		Example: `  throttle pull
  throttle pull 7`,
		Short: "Print the file of policies that is pushed, or that had a number",
		Args:  argumentCount(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			number, err := numberOf(args)
			if err != nil {
				return err
			}

			return at.withFleet(c.Context(), func(ctx context.Context, all *fleet.Fleet) error {
				p, err := pull(ctx, all, number)
				if err != nil {
					return err
				}
				if output != "" {
					err = os.WriteFile(output, p.Text, 0o644)
				}

				if err == nil && asJSON(c) {
					_, err = printJSON(c, pullResult{outputVersion, p, string(p.Text)})
				} else if err == nil && output == "" {
					_, err = c.OutOrStdout().Write(p.Text)
				}

				return err
			})
		},
	}

	at.addFlags(c)
	c.Flags().StringVarP(&output, "output", "o", "", "write it to this file")
	return c
}

// pull returns the file that has a number, or for 0 what is pushed.
func pull(ctx context.Context, all *fleet.Fleet, number int64) (*fleet.Pushed, error) {
	if number > 0 {
		return older(ctx, all, number)
	}
	p, err := all.Pull(ctx)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, &exit{exitFound, errors.New("nothing is pushed")}
	}
	return p, nil
}

// A diffResult is what diff prints as JSON.
type diffResult struct {
	Version int      `json:"version"`
	Number  int64    `json:"number"` // of what is pushed; 0: nothing is
	Same    bool     `json:"same"`   // it has the same text
	Loosens []string `json:"loosens"`
	Diff    string   `json:"diff"`
}

func newDiff() *cobra.Command {
	var at server
	c := &cobra.Command{
		Use:     "diff FILE",
		Example: `  throttle diff policies.yaml`,
		Short:   "Show what pushing a file would change",
		Long: `Diff compares a file with the one that is pushed, and says what it loosens. It
exits with 1 if they differ.`,
		Args: argumentCount(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := readInput(c, args[0])
			if err != nil {
				return err
			}

			return at.withFleet(c.Context(), func(ctx context.Context, all *fleet.Fleet) error {
				change, err := compare(ctx, all, args[0], text)
				if err != nil {
					return err
				}

				result := diffResult{Version: outputVersion, Same: change.Same, Loosens: append([]string{}, change.Loosens...), Diff: difference(change, args[0])}
				if change.Instead != nil {
					result.Number = change.Instead.Number
				}

				done, err := printJSON(c, result)
				if !done {
					_, err = fmt.Fprint(c.OutOrStdout(), result.Diff, loosening(change))
				}
				if err == nil && !change.Same {
					err = &exit{code: exitFound}
				}

				return err
			})
		},
	}

	at.addFlags(c)
	return c
}

// A historyResult is what history prints as JSON.
type historyResult struct {
	Version   int            `json:"version"`
	Files     []fleet.Pushed `json:"files"`
	Illegible int            `json:"illegible"` // so many more could not be read
}

func newHistory() *cobra.Command {
	var at server
	c := &cobra.Command{
		Use:     "history",
		Example: `  throttle history`,
		Short:   "Show which files of policies were pushed, the newest first",
		Args:    argumentCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return at.withFleet(c.Context(), func(ctx context.Context, all *fleet.Fleet) error {
				files, illegible, err := all.History(ctx)
				if err != nil {
					return err
				}

				done, err := printJSON(c, historyResult{outputVersion, files, illegible})
				if done {
					return err
				}

				t := table{titles: []string{"NUMBER", "GENERATION", "WHEN", "WHO", "REASON"}}
				for _, p := range files {
					t.rows = append(t.rows, []string{fmt.Sprint(p.Number), p.Generation, p.At.Format(time.RFC3339), p.By, cmp.Or(p.Reason, "-")})
				}

				err = t.print(c.OutOrStdout())
				leftOut(c, illegible)
				return err
			})
		},
	}

	at.addFlags(c)
	return c
}

// leftOut says how many entries of a list could not be read.
func leftOut(c *cobra.Command, illegible int) {
	if illegible > 0 {
		fmt.Fprintf(c.ErrOrStderr(), "%s could not be read\n", stat.Count(illegible, "more entry", "more entries"))
	}
}

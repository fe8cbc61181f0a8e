package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// An auditResult is what audit prints as JSON.
type auditResult struct {
	Version   int         `json:"version"`
	Acts      []fleet.Act `json:"acts"`
	Illegible int         `json:"illegible"` // of the last ones so many could not be read
}

func newAudit() *cobra.Command {
	var at server
	var most int
	c := &cobra.Command{
		Use: "audit",
		Example: `  throttle audit
  throttle audit --json`,
		Short: "Show what operators did: when, who, what and why",
		Args:  argumentCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return at.withFleet(c.Context(), func(ctx context.Context, all *fleet.Fleet) error {
				acts, illegible, err := all.Audit(ctx, most)
				if err != nil {
					return err
				}

				done, err := printJSON(c, auditResult{outputVersion, acts, illegible})
				if !done {
					err = printActs(c, acts)
					leftOut(c, illegible)
				}

				return err
			})
		},
	}

	at.addFlags(c)
	c.Flags().IntVarP(&most, "number", "n", 20, "show so many, the last first")
	return c
}

func printActs(c *cobra.Command, acts []fleet.Act) error {
	t := table{titles: []string{"WHEN", "WHO", "ACT", "WHAT", "REASON"}}
	for _, a := range acts {
		did := a.Act
		if a.For.Duration > 0 {
			did += " for " + brief(a.For.Duration)
		}
		if a.Used != nil {
			did += fmt.Sprintf(" from %d to %d", a.Used.Before, a.Used.After)
		}
		if a.Failed {
			did += ", failed"
		}

		what := a.What
		if a.Number > 0 {
			what = fmt.Sprintf("number %d (%s)", a.Number, a.What)
		}

		t.rows = append(t.rows, []string{a.At.Format(time.RFC3339), a.By, did, what, a.Reason})
	}

	return t.print(c.OutOrStdout())
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

func newStatus() *cobra.Command {
	var redis server
	var budgets int
	var closed bool
	var names labels
	c := &cobra.Command{
		Use:   "status [POLICY|BUDGET]",
		Short: "Show the programs of a fleet and their budgets, as they are now",
		Long: `Status says first what is closed, how many callers wait, and which programs are
silent. Then it shows the budgets: those that are closed, for as long as they are,
then those that callers wait for, then those used most in the last minute; and the
programs that report themselves (see docs/fleet.md). Of a policy with many budgets it
shows a few that are open, unless you name the policy.
It writes nothing, and works with a user of Redis that can only read.`,
		Example: `  throttle status
  throttle status --closed
  throttle status shop --json`,
		Args: argumentCount(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := names.read(); err != nil {
				return err
			}

			return redis.withFleet(c.Context(), func(ctx context.Context, all *fleet.Fleet) error {
				s, err := all.Snapshot(ctx, budgets)
				if err != nil {
					return err
				}

				names.set(s)
				name := strings.Join(args, "")
				if err := pick(s, name, closed); err != nil {
					return err
				}

				done, err := printJSON(c, s)
				if !done {
					err = newView(s, name, nil).write(c.OutOrStdout())
				}

				return err
			})
		},
	}

	redis.addFlags(c)
	c.Flags().IntVar(&budgets, "budgets", fleet.DefaultBudgets, "ask about so many budgets, in the order in which they are shown")
	names.addFlag(c.Flags())
	c.Flags().BoolVar(&closed, "closed", false, "show the budgets only that are closed")

	return c
}

// pick leaves in a snapshot the budgets of a policy, or those whose names begin with name, and, if closed is true, only those that
// are closed. It returns an error if a name is that of none.
func pick(s *fleet.Snapshot, name string, closed bool) error {
	known := len(s.Budgets)
	s.Budgets = slices.DeleteFunc(s.Budgets, func(b fleet.Budget) bool {
		return name != "" && b.Policy != name && !(strings.HasPrefix(b.Name, name) && len(name) > len(b.Policy)+1)
	})
	if name != "" && known > 0 && len(s.Budgets) == 0 {
		return &exit{exitUsage, fmt.Errorf("%q is no policy or budget that was used lately, or is closed", name)}
	}
	if closed {
		s.Budgets = slices.DeleteFunc(s.Budgets, func(b fleet.Budget) bool { return b.State.Paused.Duration == 0 })
	}
	return nil
}

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

func newStatus() *cobra.Command {
	var redis server
	var budgets int
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the programs of a fleet and their budgets, as they are now",
		Long: `Status shows the programs that report themselves (see docs/fleet.md), the
budgets that they used in the last minute, and what closes those that are closed.
It writes nothing, and works with a user of Redis that can only read.`,
		Args: argumentCount(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return redis.withFleet(c.Context(), func(ctx context.Context, all *fleet.Fleet) error {
				s, err := all.Snapshot(ctx, budgets)
				if err != nil {
					return err
				}
				done, err := printJSON(c, s)
				if !done {
					err = newView(s, "").write(c.OutOrStdout())
				}
				return err
			})
		},
	}
	redis.addFlags(c)
	c.Flags().IntVar(&budgets, "budgets", fleet.DefaultBudgets, "ask about so many budgets, those used most first")
	return c
}

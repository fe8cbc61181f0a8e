package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

func newSetUsed() *cobra.Command {
	var o operator
	var to string
	c := &cobra.Command{
		Use:     "set-used POLICY|BUDGET",
		Example: `  throttle set-used shop --to 40 --reason "the upstream counts 40"`,
		Short:   "Set how much of its window a budget has used, where the count is wrong",
		Long: `Set-used puts a count right, for the whole fleet, where the upstream says that it
counts another: after a loss of data, or because others have used the same account. Set
lower, callers that wait start as soon as there is room; set higher, starts that are booked
and do not fit any more are booked anew. The count is that of a sliding, fixed or calendar
window, as status prints it; other limits have none. It is not above the limit: at the limit
nothing starts. Starts that are booked for later stay booked, and come on top.`,
		Args: argumentCount(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			used, wrong := usedOf(to)
			o.check = func(t fleet.Target, missing error) error {
				if wrong == nil && missing == nil {
					return t.CheckUsed(used)
				}
				return errors.Join(wrong, missing)
			}

			change := &fleet.Change{After: used}
			return o.act(c, args[0], fmt.Sprintf("Set what is used to %d?", used), actResult{Act: "set-used", Used: change},
				func(ctx context.Context, all *fleet.Fleet, t fleet.Target) (err error) {
					change.Before, err = all.SetUsed(ctx, t, used, o.name(), o.reason)
					var uncounted *fleet.UncountedError
					if errors.As(err, &uncounted) {
						return &exit{exitConflict, err}
					}

					return err
				})
		},
	}

	o.addBudgetFlags(c, auditHasIt)
	c.Flags().StringVar(&to, "to", "", "how much is used in truth, from 0 to the limit; required")
	return c
}

// usedOf reads how much is used.
func usedOf(text string) (int, error) {
	if text == "" {
		return 0, errors.New("--to: say how much is used, from 0 to the limit")
	}
	used, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("--to: %q is no whole number from 0 to the limit", text)
	case used < 0:
		return 0, fmt.Errorf("--to: %d is less than nothing", used)
	}
	return used, nil
}

package fleet

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

//go:embed act.lua
var actSource string

var actScript = wire.FromSource(actSource)

// A UsedError says why the count of a budget cannot be set.
type UsedError struct {
	Budget   string
	Mistakes []string // all of them
}

// Error implements error.
func (e *UsedError) Error() string { return e.Budget + ": " + strings.Join(e.Mistakes, "; ") }

// An UncountedError says that Redis holds no count of a budget.
type UncountedError struct{ Budget string }

// Error implements error.
func (e *UncountedError) Error() string {
	return e.Budget + " has no count in Redis that could be set: no program has started anything under it since its window began, or Redis lost it; a program that starts something makes it"
}

// CheckUsed returns a *[UsedError] if so much cannot be set as used of a budget: its limit
// is none of windows, or so much is less than nothing, or more than the limit.
func (t Target) CheckUsed(used int) error {
	var mistakes []string
	counts := t.Limit.Kind() == store.KindSlidingWindow || t.Limit.Kind() == store.KindFixedWindow
	if !counts {
		mistakes = append(mistakes, fmt.Sprintf("its limit, %v, has no window whose count could be set", t.Limit))
	}

	switch {
	case used < 0:
		mistakes = append(mistakes, fmt.Sprintf("%d is less than nothing", used))
	case counts && used > t.Limit.Capacity():
		mistakes = append(mistakes, fmt.Sprintf("%d is more than its limit, %v; at the limit nothing starts either, so set it to %d, and lower the limit if the upstream counts more", used, t.Limit, t.Limit.Capacity()))
	}

	if mistakes == nil {
		return nil
	}

	return &UsedError{t.Name, mistakes}
}

// SetUsed sets how much of its window a budget has used, for when an operator knows better
// than Redis, and returns how much that was before. Lower, callers that wait start as soon as there is room; higher,
// starts to come that do not fit any more are booked anew. It returns a *[UsedError] as
// [Target.CheckUsed] does, and an *[UncountedError] if Redis has no count of the budget.
func (f *Fleet) SetUsed(ctx context.Context, t Target, used int, by, reason string) (before int, err error) {
	if err := t.CheckUsed(used); err != nil {
		return 0, err
	}

	ctx, stop := withDeadline(ctx)
	defer stop()

	before, counted, err := f.store.SetUsed(ctx, t.charge, used)
	if err != nil {
		return 0, storeError(err)
	}
	if !counted {
		return 0, &UncountedError{t.Name}
	}

	act := Act{Act: "set-used", What: t.Name, By: by, Reason: reason, Used: &Change{before, used}}
	text, err := act.encode()
	if err != nil {
		return before, err
	}
	if _, err = f.conn.Run(ctx, actScript, []string{f.keys.audit}, text, mostActs); err != nil {
		return before, storeError(fmt.Errorf("the count is set, and the audit does not say so: %w", err))
	}

	return before, nil
}

package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/shares"
	"github.com/fleetthrottle/throttle/store"
)

// AskTime is how long stores may take to answer at a collection of metrics. It is short, because a collection
// may come each second, and must report all other metrics while a store is away.
const AskTime = 500 * time.Millisecond

// A Summary is the combined state of the budgets of one policy.
type Summary struct {
	Budgets int            // how many were asked
	Limit   throttle.Limit // of the fullest budget; the limit that the upstream told, if there is one
	Used    int            // how much of the limit of the fullest budget is used
	Booked  int            // the sum over all budgets
	Waiting int            // the sum over all budgets
	Callers int            // the sum over all budgets
	Wait    time.Duration  // the longest of all budgets
	Paused  time.Duration  // the longest of all budgets
	Ceiling float64        // the lowest of all budgets that have one, or 0 if none has
	Told    bool           // answers told the limit of the fullest budget
	ToldAgo time.Duration  // how long ago an answer told it last
	Shares  []Share        // of all budgets together, or nil without shares

	told []store.ShareStatus // the shares of all budgets, of which Summaries makes Shares
}

// A Share is the state of a share of callers. The 16 shares with the most waiters are named, and
// the rest are combined: see the page on [metrics].
//
// [metrics]:
// https://github.com/fleetthrottle/throttle/blob/main/docs/run/metrics.md#what-the-fleets-budgets-are-like
type Share struct {
	Name    string // the hashed name, or "none", "common" or "other"
	Waiting int
	Served  int // below 0 if the store does not know
}

// Summaries asks the stores of all sources, for at most [AskTime], and returns the state of each
// policy's budgets by the policy's name. Answers are returned together with the errors of sources
// that did not answer.
func Summaries(ctx context.Context, sources ...Source) (map[string]*Summary, error) {
	ctx, stop := context.WithTimeout(ctx, AskTime)
	defer stop()

	answers := make([]map[throttle.Budget]throttle.Status, len(sources))
	errs := make([]error, len(sources))

	// Ask all stores in parallel, because AskTime is for all of them together.
	var asked sync.WaitGroup
	for i, s := range sources {
		asked.Go(func() { answers[i], errs[i] = s.Statuses(ctx) })
	}

	asked.Wait()

	// The first budget gives a Summary its limit, and add replaces that by the limit of a fuller one.
	all := make(map[string]*Summary)
	for _, answer := range answers {
		for budget, status := range answer {
			if all[budget.Policy] == nil {
				all[budget.Policy] = &Summary{Limit: limitOf(&status), Told: status.Told.N() > 0, ToldAgo: status.ToldAgo}
			}
			all[budget.Policy].add(&status)
		}
	}

	for _, s := range all {
		for _, l := range shares.Lines(s.told) {
			s.Shares = append(s.Shares, Share{l.Name, l.Waiting, l.Served})
		}
	}

	return all, errors.Join(errs...)
}

// limitOf returns the limit that a budget keeps: the limit that the upstream told, if there is one.
func limitOf(st *throttle.Status) throttle.Limit {
	if st.Told.N() > 0 {
		return st.Told
	}
	return st.Limit
}

// fullness returns which part of a limit is used. For a limit without a number it is -1, so that every budget with a number is fuller.
func fullness(used int, l throttle.Limit) float64 {
	if l.N() == 0 {
		return -1
	}
	return float64(used) / float64(l.Capacity())
}

// add adds the state of a budget to the summary.
func (s *Summary) add(st *throttle.Status) {
	s.Budgets++

	// Limit and use are of the budget that is fullest.
	limit := limitOf(st)
	if fullness(st.Used, limit) > fullness(s.Used, s.Limit) {
		s.Limit, s.Used, s.Told, s.ToldAgo = limit, st.Used, st.Told.N() > 0, st.ToldAgo
	}

	s.Booked, s.Waiting = s.Booked+st.Booked, s.Waiting+st.Waiting
	s.Callers += st.Callers
	s.Wait, s.Paused = max(s.Wait, st.Wait), max(s.Paused, st.Paused)

	// Zero means no ceiling.
	if st.Ceiling > 0 && (s.Ceiling == 0 || st.Ceiling < s.Ceiling) {
		s.Ceiling = st.Ceiling
	}

	s.told = shares.Add(s.told, st.Shares)
}

package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/shares"
)

// AskTime is how long stores may take to answer when somebody looks. It is less than a look may
// take, even where one is made each second: all other metrics must be told while a store is away.
const AskTime = 500 * time.Millisecond

// A Source knows what budgets are like: a [throttle.Transport] or [throttle.Limiters].
type Source interface {
	Statuses(context.Context) ([]throttle.BudgetStatus, error)
}

// A Summary is what the budgets of one policy are like together.
type Summary struct {
	Budgets int            // how many were asked
	Limit   throttle.Limit // of the fullest,
	Used    int            // and how much of it is used
	Booked  int            // of all
	Waiting int            // of all
	Callers int            // of all
	Wait    time.Duration  // the longest
	Paused  time.Duration  // the longest
	Ceiling float64        // the lowest; 0: the limit alone counts everywhere
	Shares  []shares.Line  // of all budgets together; nil without shares

	told []throttle.ShareStatus
}

// Summaries asks the stores of all sources, for [AskTime] at the most, and returns what the budgets
// of each policy are like. The error of one source stands for those of all.
func Summaries[S Source](ctx context.Context, sources []S) (map[string]*Summary, error) {
	ctx, stop := context.WithTimeout(ctx, AskTime)
	defer stop()
	answers := make([][]throttle.BudgetStatus, len(sources))
	errs := make([]error, len(sources))
	var asked sync.WaitGroup
	for i, s := range sources {
		asked.Go(func() { answers[i], errs[i] = s.Statuses(ctx) })
	}
	asked.Wait()
	all := make(map[string]*Summary)
	for _, answer := range answers {
		for i := range answer {
			b := &answer[i]
			if all[b.Budget.Policy] == nil {
				all[b.Budget.Policy] = &Summary{Limit: b.Limit}
			}
			all[b.Budget.Policy].add(&b.Status)
		}
	}
	for _, s := range all {
		s.Shares = shares.Lines(s.told)
	}
	return all, errors.Join(errs...)
}

// add takes in what a budget is like.
func (s *Summary) add(st *throttle.Status) {
	s.Budgets++
	if float64(st.Used)/float64(st.Limit.Capacity()) > float64(s.Used)/float64(s.Limit.Capacity()) {
		s.Limit, s.Used = st.Limit, st.Used
	}
	s.Booked, s.Waiting = s.Booked+st.Booked, s.Waiting+st.Waiting
	s.Callers += st.Callers
	s.Wait, s.Paused = max(s.Wait, st.Wait), max(s.Paused, st.Paused)
	if st.Ceiling > 0 && (s.Ceiling == 0 || st.Ceiling < s.Ceiling) {
		s.Ceiling = st.Ceiling
	}
	s.told = shares.Add(s.told, st.Shares)
}

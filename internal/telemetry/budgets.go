package telemetry

import (
	"context"
	"sync"

	"github.com/fleetthrottle/throttle"
)

// Budgets are those of a transport's policies without a Key: keys are no labels.
type Budgets map[string]*throttle.Limiter

// BudgetsOf returns the budgets of the policies as they are now.
func BudgetsOf(t *throttle.Transport, policies []throttle.Policy) Budgets {
	all := make(Budgets)
	for _, p := range policies {
		if p.Key != nil {
			continue
		}
		if l, err := t.Limiter(p.Name); err == nil {
			all[p.Name] = l
		}
	}
	return all
}

// Ask asks the store what all budgets are like, and tells of one at a time. The error of one
// stands for those of all.
func (b Budgets) Ask(ctx context.Context, tell func(policy string, st throttle.Status)) (failed error) {
	var asked sync.WaitGroup
	var mu sync.Mutex
	for name, l := range b {
		asked.Go(func() {
			st, err := l.Status(ctx, "")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
				return
			}
			tell(name, st)
		})
	}
	asked.Wait()
	return failed
}

package fleet

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// AwaitNote is how long a refused caller waits for the reason of a pause.
const AwaitNote = awaitNote

// Report makes one report now.
func (r *Reporter) Report() { r.report(context.Background(), true) }

// ReportAt makes one report, dated later from now.
func (r *Reporter) ReportAt(later time.Duration) {
	r.reportAt(context.Background(), time.Now().Add(later), true)
}

// AwaitExtra waits until no report is due that a closed budget has triggered: such a report would come between a report of ReportAt and the
// test's look at that.
func (r *Reporter) AwaitExtra() {
	due := func() bool {
		r.notes.mu.Lock()
		defer r.notes.mu.Unlock()
		return r.notes.waiting != nil || len(r.notes.wake) > 0
	}
	for due() {
		time.Sleep(time.Millisecond)
	}

	// The last of them may be on its way.
	r.reporting.Lock()
	defer r.reporting.Unlock()
}

// Budget returns the budget of a target.
func (t Target) Budget() store.Budget { return t.charge.Budget }

// The keys of a fleet in Redis.

func (f *Fleet) NodesKey() string         { return f.keys.nodes }
func (f *Fleet) NodeKey(id string) string { return f.keys.node + id }
func (f *Fleet) PausesKey() string        { return f.keys.pauses }
func (f *Fleet) BansKey() string          { return f.keys.bans }
func (f *Fleet) BanKey(id string) string  { return f.keys.ban + id }
func (f *Fleet) AuditKey() string         { return f.keys.audit }
func (f *Fleet) PoliciesKey() string      { return f.keys.policies }

// Counted returns what a reporter will report: its requests, and those of each policy's budgets.
func Counted(r *Reporter) (requests int64, budgets map[string]int64) {
	budgets = make(map[string]int64)
	for i := range r.uses.shards {
		for _, b := range r.uses.shards[i].all {
			budgets[b.policy.name] += b.starts.now.Load()
		}
	}
	return r.uses.requests.now.Load(), budgets
}

// Costs returns the costs of each policy's budgets that a report says now.
func Costs(r *Reporter) map[string]int64 {
	r.reporting.Lock()
	defer r.reporting.Unlock()
	budgets := make(map[string]int64)
	for _, p := range r.record(context.Background(), time.Now(), true).Policies {
		for _, b := range p.Budgets {
			budgets[p.Policy] += b.Cost
		}
	}
	return budgets
}

// Reported returns the requests, and the starts of each policy's budgets, that a report says now.
func Reported(r *Reporter, whole bool) (requests int64, budgets map[string]int64) {
	r.reporting.Lock()
	defer r.reporting.Unlock()
	rec := r.record(context.Background(), time.Now(), whole)
	budgets = make(map[string]int64)
	for _, p := range rec.Policies {
		for _, b := range p.Budgets {
			budgets[p.Policy] += b.Starts
		}
	}
	return rec.Requests, budgets
}

// Charge returns the charge of a target.
func (t Target) Charge() store.Charge { return t.charge }

// Waiting returns how many callers of a program stand in line.
func Waiting(r *Reporter) int {
	r.waits.mu.Lock()
	defer r.waits.mu.Unlock()
	return len(r.waits.all)
}

// Look looks now whether an operator has turned throttle off or on.
func (r *Reporter) Look() { r.look(context.Background()) }

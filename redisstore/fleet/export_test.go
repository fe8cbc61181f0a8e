package fleet

import (
	"context"

	"github.com/fleetthrottle/throttle"
)

// Report makes one report now.
func (r *Reporter) Report() { r.report(context.Background()) }

// Budget returns the budget of a target.
func (t Target) Budget() throttle.Budget { return t.charge.Budget }

// The keys of what is kept.

func (f *Fleet) NodesKey() string         { return f.keys.nodes }
func (f *Fleet) NodeKey(id string) string { return f.keys.node + id }
func (f *Fleet) PausesKey() string        { return f.keys.pauses }
func (f *Fleet) AuditKey() string         { return f.keys.audit }
func (f *Fleet) PoliciesKey() string      { return f.keys.policies }

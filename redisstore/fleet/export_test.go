package fleet

import "context"

// Report makes one report now.
func (r *Reporter) Report() { r.report(context.Background()) }

// The keys of what is kept.

func (f *Fleet) NodesKey() string         { return f.keys.nodes }
func (f *Fleet) NodeKey(id string) string { return f.keys.node + id }
func (f *Fleet) PausesKey() string        { return f.keys.pauses }
func (f *Fleet) AuditKey() string         { return f.keys.audit }
func (f *Fleet) PoliciesKey() string      { return f.keys.policies }

package dashboard

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

const (
	reportsEvery = fleet.DefaultInterval // how often reports are read: the default interval of programs
	mostNodes    = 200                   // how many nodes are shown
	shownActs    = 50
)

// A fleetSource is the source of a fleet.
type fleetSource struct{ fleet *fleet.Fleet }

// Fleet returns the source of all programs that report to a fleet. Its Redis
// user needs the rights of a watcher, and of an operator to pause and resume:
// see [rights]. It reads reports every five seconds, and states of budgets
// every second.
//
// Fleet returns nil for a nil f, which [New] refuses.
//
// [rights]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/redis.md#the-fewest-rights
func Fleet(f *fleet.Fleet) Source {
	if f == nil {
		return nil
	}
	return &fleetSource{f}
}

// A fleetReader reads a fleet for one page.
type fleetReader struct {
	fleet   *fleet.Fleet
	budgets int // at most

	snapshot *fleet.Snapshot
	readAt   time.Time // when reports were read, by this program's clock
	reported time.Time // when reports were read, by the server's clock
	acts     []fleet.Act
}

// reader implements [Source].
func (s *fleetSource) reader(budgets int) reader {
	return &fleetReader{fleet: s.fleet, budgets: budgets}
}

// read implements [reader]. It reads the reports of programs if fresh is true or the last reports are old, and otherwise only the
// states of budgets.
func (s *fleetReader) read(ctx context.Context, fresh bool) (*reading, error) {
	// Programs report only every few seconds. Between two readings of the reports read the states alone.
	if !fresh && s.snapshot != nil && time.Since(s.readAt) < reportsEvery {
		next, err := s.fleet.Refresh(ctx, s.snapshot)
		if err != nil {
			return nil, err
		}

		s.snapshot = next
		return readingOf(next, s.acts, s.reported), nil
	}

	begun := time.Now()
	next, err := s.fleet.Snapshot(ctx, s.budgets)
	if err != nil {
		return nil, err
	}

	acts, _, err := s.fleet.Audit(ctx, shownActs)
	if err != nil {
		return nil, err
	}

	s.snapshot, s.readAt, s.reported, s.acts = next, begun, next.At, acts
	return readingOf(next, acts, next.At), nil
}

// readingOf converts a snapshot and the latest acts. reported is when the reports of programs were read.
func readingOf(s *fleet.Snapshot, acts []fleet.Act, reported time.Time) *reading {
	r := &reading{At: s.At, Kind: kindFleet, BudgetsLeftOut: s.LeftOut, ClosedLeftOut: s.ClosedLeftOut, Illegible: s.Illegible}
	if p := s.File; p != nil {
		r.File = &file{p.Number, p.Generation, p.By, p.Reason, p.At.UnixMilli()}
	}

	for i := range s.Budgets {
		r.Budgets = append(r.Budgets, budgetOfFleet(&s.Budgets[i], s.At, reported))
	}

	for i := range s.Nodes {
		r.Nodes = append(r.Nodes, nodeOfFleet(&s.Nodes[i], s.At))
	}

	// Nodes in trouble come first, because the list is cut below.
	slices.SortStableFunc(r.Nodes, func(a, b node) int { return cmp.Compare(trouble(&b), trouble(&a)) })
	r.NodesLeftOut = max(0, len(r.Nodes)-mostNodes)
	r.Nodes = r.Nodes[:min(len(r.Nodes), mostNodes)]

	for _, a := range acts {
		r.Acts = append(r.Acts, act{a.At.UnixMilli(), a.Act, a.What, a.By, a.Reason, a.For.Milliseconds(), a.Failed})
	}

	// The acts know better than the reports since when an operator's pause lasts.
	var since map[string]int64
	r.Closed, since = closedByActs(r.Acts, s.At)
	for i := range r.Budgets {
		if b := &r.Budgets[i]; b.By != "" && since[b.ID] > 0 {
			b.Since, b.SinceLeast = since[b.ID], false
		}
	}

	return r
}

// trouble returns 1 for a node that an operator should see, because it is silent or off, or refuses a file.
func trouble(n *node) int {
	if n.Silent || n.Off != "" || n.Refused != "" {
		return 1
	}
	return 0
}

// budgetOfFleet converts a budget of the snapshot of a moment. reported is when the reports of programs were read.
func budgetOfFleet(f *fleet.Budget, moment, reported time.Time) budget {
	told, _ := store.ParseLimit(f.State.Told) // "" is none
	kind, capacity := kindOf(keeps(f.Limit(), told))
	_, key, _ := cutLast(f.Name, "/")
	b := budget{
		ID: f.Name, Name: f.Name, Policy: f.Policy, Key: key, Upstream: f.Group, Limits: f.Limits,
		Kind: kind, Capacity: capacity, Shadow: f.Shadow, Node: f.Node, Nodes: f.Nodes, Starts: f.Starts, Cost: f.Cost,
		Used: f.State.Used, Booked: f.State.Booked, Callers: requestsOf(f.Waiting(), f.State.Booked, f.State.Waiting, average(f.Cost, f.Starts)), Wait: f.State.Wait.Milliseconds(),
		Repeated: f.State.Repeated, Ceiling: f.State.Ceiling, Shares: f.State.Shares, Err: f.Err,
	}

	if told.N() > 0 {
		b.Limits = append(slices.Clone(b.Limits), told.String())
		b.Told = toldAt(moment, f.State.ToldAgo.Duration)
	}

	// Each node has a budget of its own under this name.
	if f.Node != "" {
		b.ID += " of " + f.Node
	}
	if left := f.State.Paused.Duration; left > 0 {
		b.Until = moment.Add(left).UnixMilli()
	}
	if f.Note != nil {
		b.By, b.Reason = f.Note.By, f.Note.Reason
	}

	b.Closer, b.Met, b.Runbook = f.By, f.Met, f.Runbook
	if !f.Since.IsZero() {
		b.Since, b.SinceLeast = f.Since.UnixMilli(), f.By == ""
	}

	b.Left, b.Refused, b.Oldest = f.Left, f.Refused, oldest(f.Oldest, reported)
	for _, u := range f.Programs {
		b.Programs = append(b.Programs, use{u.Program, u.Nodes, u.Starts, u.Waiting, oldest(u.Oldest, reported), u.Left, u.Refused})
	}

	return b
}

// oldest returns since when a caller waits, in Unix milliseconds, or 0 for no caller. waited is how long the caller had
// waited when the reports were read.
func oldest(waited fleet.Millis, reported time.Time) int64 {
	if waited.Duration <= 0 {
		return 0
	}
	return steady(reported.Add(-waited.Duration))
}

// nodeOfFleet converts a node of the snapshot of a moment.
func nodeOfFleet(f *fleet.Node, moment time.Time) node {
	n := node{
		ID: f.ID, Program: f.Program, Host: f.Host, PID: f.PID, Library: f.Library,
		Since: steady(moment.Add(-f.Up.Duration)), Heard: steady(moment.Add(-f.Ago.Duration)), Silent: f.Silent,
		Budgets: f.Budgets, Starts: f.Starts, Follows: f.File.Pushed, InForce: f.File.InForce, Refused: f.File.Err,
	}

	if f.Switch.Off && !f.Silent {
		n.Off = store.Off{By: f.Switch.By, Reason: f.Switch.Reason}.String()
	}
	if f.File.Seen != f.File.InForce {
		n.Seen = f.File.Seen
	}
	if f.File.Grace.Duration > 0 {
		n.Waits = steady(moment.Add(f.File.Grace.Duration))
	}

	return n
}

// steady returns a moment in Unix milliseconds, rounded to a second: a moment computed anew each second jitters.
func steady(t time.Time) int64 { return t.Round(time.Second).UnixMilli() }

// closedByActs returns two maps by budget id: closed has the operators' pauses that ended in the last 24 hours, and since
// has the beginning of each pause that still holds, in Unix milliseconds. acts has the newest act first.
func closedByActs(acts []act, now time.Time) (closed map[string][]band, since map[string]int64) {
	closed, since = make(map[string][]band), make(map[string]int64)
	for _, a := range slices.Backward(acts) { // oldest first
		own := closed[a.What]

		// A later act ends the closing that an earlier pause began.
		ends := !a.Failed && (a.Act == "pause" || a.Act == "resume" || a.Act == "reset")
		if last := len(own) - 1; ends && last >= 0 && own[last].Until > a.At {
			own[last].Until = a.At
		}
		if a.Act == "pause" && !a.Failed {
			closed[a.What] = append(own, band{From: a.At, Until: a.At + a.For, By: a.By, Reason: a.Reason})
		}
	}

	for id, own := range closed {
		if last := own[len(own)-1]; last.Until > now.UnixMilli() {
			since[id] = last.From
		}

		// The reading itself shows closings that still hold.
		closed[id] = slices.DeleteFunc(own, func(b band) bool {
			return b.Until > now.UnixMilli() || b.Until < now.Add(-coarseKept).UnixMilli()
		})
	}

	return closed, since
}

// pause implements [Source].
func (s *fleetSource) pause(ctx context.Context, id string, d time.Duration, by, reason string) error {
	t, err := s.fleet.Find(ctx, fleet.Query{Name: id})
	if err != nil {
		return err
	}
	return s.fleet.Pause(ctx, t, d, by, reason)
}

// resume implements [Source].
func (s *fleetSource) resume(ctx context.Context, id, by, reason string) error {
	t, err := s.fleet.Find(ctx, fleet.Query{Name: id})
	if err != nil {
		return err
	}
	return s.fleet.Resume(ctx, t, by, reason)
}

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Snapshot is a fleet at one moment.
type Snapshot struct {
	Version   int       `json:"version"`
	At        time.Time `json:"at"` // by the server's clock
	File      *Pushed   `json:"file,omitempty"`
	Nodes     []Node    `json:"nodes"`
	Budgets   []Budget  `json:"budgets"`   // those that are closed, then those that callers wait for, then by starts
	LeftOut   int       `json:"left_out"`  // how many budgets are not in Budgets, at least
	Illegible int       `json:"illegible"` // records that could not be read

	Closed  int `json:"closed"`  // how many of Budgets are closed and hold callers: see [Budget.Closed]
	Callers int `json:"callers"` // how many callers wait for Budgets
	Silent  int `json:"silent"`  // how many of Nodes are silent
}

// A Budget is one that the fleet used lately, or that is closed. Its texts are fit to be printed. A budget that is
// closed stays in the snapshots as long as it is, also when every program has gone.
type Budget struct {
	Name   string   `json:"name"` // the policy and the beginning of its hashed key, as events have it
	Policy string   `json:"policy"`
	Group  string   `json:"group,omitempty"` // the hosts of the policy: see [store.Budget]
	Limits []string `json:"limits"`          // more than one while nodes do not agree
	Shadow bool     `json:"shadow,omitempty"`
	Node   string   `json:"node,omitempty"`    // the node whose own it is; "": the fleet's
	Nodes  int      `json:"nodes"`             // that used it lately
	Starts float64  `json:"starts_per_second"` // requests that were handed on
	Cost   float64  `json:"cost_per_second"`   // what they cost: to be compared with the limit
	State  State    `json:"state"`
	Note   *Note    `json:"note,omitempty"`  // what an operator said who paused it
	Err    string   `json:"error,omitempty"` // why its state is not known

	Since time.Time `json:"closed_since,omitzero"` // when it was closed, by the server's clock; zero: it is open, or nobody knows
	By    string    `json:"closed_by,omitempty"`   // what closed it, such as ByAnswer; "": Since is when a program met it closed
	Met   string    `json:"closed_met,omitempty"`  // the program that said so

	Programs []Use  `json:"programs,omitempty"`      // by how many of their callers wait, then by starts; at most MostPrograms, and all others together
	Oldest   Millis `json:"oldest_wait_ms,omitzero"` // how long the first of the callers in line has waited
	Left     int    `json:"left,omitempty"`          // callers that left the line without a start in the last minute
	Refused  int    `json:"refused,omitempty"`       // callers that were refused in the last minute

	Label   string `json:"label,omitempty"`   // what an operator calls its key: whoever shows a snapshot sets it, and Redis does not know it
	Runbook string `json:"runbook,omitempty"` // the address of the page that says what to do, by http or https; "": no file of policies says one

	charge  store.Charge
	waiting int // callers in line, as programs reported them
}

// A Use is what the nodes of one program report of a budget. A variant of a Choice that had its start elsewhere
// counts as one that left.
type Use struct {
	Program string  `json:"program"` // "": the programs beyond MostPrograms
	Nodes   int     `json:"nodes"`
	Starts  float64 `json:"starts_per_second"`
	Waiting int     `json:"waiting"`                 // callers in line
	Oldest  Millis  `json:"oldest_wait_ms,omitzero"` // how long the first of them has waited
	Left    int     `json:"left,omitempty"`          // callers that left the line without a start in the last minute
	Refused int     `json:"refused,omitempty"`       // callers that were refused in the last minute
}

// MostPrograms is how many programs of a budget a snapshot tells apart.
const MostPrograms = 16

// Closed reports whether the budget is closed and holds callers: budgets of shadow policies hold nobody.
func (b *Budget) Closed() bool { return b.State.Paused.Duration > 0 && !b.Shadow }

// Waiting returns how many callers wait for the budget: those in line, or more, if the programs reported more. Where a recording of an
// earlier version does not count callers, it is what they cost.
func (b *Budget) Waiting() int {
	return max(cmp.Or(b.State.Callers, b.State.Waiting-b.State.Booked), b.waiting)
}

// Limit returns the limit by which its state was asked; the zero Limit if it is not known.
func (b *Budget) Limit() store.Limit {
	if len(b.Limits) == 0 {
		return store.Limit{}
	}
	l, _ := store.ParseLimit(b.Limits[0])
	return l
}

// DefaultBudgets is how many budgets a snapshot asks about that is not told otherwise.
const DefaultBudgets = 200

// asksAtOnce is how many budgets are asked about at the same time.
const asksAtOnce = 16

// Snapshot reads the fleet, and the state of at most budgets budgets; 0 for [DefaultBudgets].
// Budgets that are closed come first, then those that callers wait for, then those used most. Snapshot changes nothing.
func (f *Fleet) Snapshot(ctx context.Context, budgets int) (*Snapshot, error) {
	ctx, stop := withDeadline(ctx)
	defer stop()

	nodes, now, illegible, err := f.nodes(ctx)
	if err != nil {
		return nil, err
	}

	s := &Snapshot{Version: recordVersion, At: now.UTC(), Nodes: nodes, Budgets: []Budget{}, Illegible: illegible}
	switch s.File, err = f.Pushed(ctx); {
	case errors.Is(err, errUnreadable):
		s.Illegible++
	case err != nil:
		return nil, err
	}

	known, err := f.closings(ctx, now)
	if err != nil {
		return nil, err
	}

	s.Illegible += known.illegible

	s.gather(known)
	most := cmp.Or(max(0, budgets), DefaultBudgets)
	s.LeftOut += max(0, len(s.Budgets)-most)

	s.Budgets = s.Budgets[:min(len(s.Budgets), most)]
	if err := f.describe(ctx, s.Budgets); err != nil {
		return nil, err
	}

	s.settle(known)
	slices.SortFunc(s.Budgets, compareBudgets)
	return s, nil
}

// A closings is what Redis keeps of closed budgets beside the budgets themselves, by their hashed keys.
type closings struct {
	notes     map[[16]byte]Note
	bans      map[[16]byte]ban
	illegible int
}

// closings reads what is known of the budgets that are closed at now.
func (f *Fleet) closings(ctx context.Context, now time.Time) (c closings, err error) {
	if c.notes, err = f.notes(ctx, now); err != nil {
		return c, err
	}
	c.bans, c.illegible, err = f.bans(ctx, now)
	return c, err
}

// settle says of the budgets whose states are known since when and why they are closed, leaves out those that were closed and
// that nobody uses, and counts.
func (s *Snapshot) settle(known closings) {
	s.Budgets = slices.DeleteFunc(s.Budgets, func(b Budget) bool {
		return b.Nodes == 0 && b.Note == nil && b.Err == "" && b.State.Paused.Duration == 0
	})
	for i := range s.Budgets {
		b := &s.Budgets[i]
		if b.Note != nil && b.Note.Until.Sub(s.At)-b.State.Paused.Duration > patience {
			b.Note = nil // a program ended the pause: another ban, with an earlier end, closes the budget now
		}
		b.tellClosing(known)
	}
	s.count()
}

// count sets Closed, Callers and Silent. It returns how many budgets have states that are not known.
func (s *Snapshot) count() (unknown int) {
	s.Closed, s.Callers, s.Silent = 0, 0, 0
	for i := range s.Budgets {
		b := &s.Budgets[i]
		if b.Closed() {
			s.Closed++
		}
		if b.Err != "" {
			unknown++
		}

		s.Callers += b.Waiting()
	}

	for i := range s.Nodes {
		if s.Nodes[i].Silent {
			s.Silent++
		}
	}

	return unknown
}

// tellClosing sets since when and why the budget is closed.
func (b *Budget) tellClosing(known closings) {
	if b.State.Paused.Duration == 0 {
		b.Since, b.By, b.Met = time.Time{}, "", ""
		return
	}

	if c, ok := known.bans[b.charge.Budget.Key]; ok && b.Node == "" {
		b.Since, b.By, b.Met = c.since.UTC(), c.by, c.met
	}
	if b.Note == nil {
		return
	}

	b.By, b.Met = ByOperator, ""
	if since := b.Note.since; !since.IsZero() && (b.Since.IsZero() || since.Before(b.Since)) {
		b.Since = since.UTC()
	}
}

// Verdict returns what an operator must know first, as one line.
func (s *Snapshot) Verdict() string {
	own := *s // a recording of an earlier version has no counts
	unknown := own.count()
	s = &own
	var parts []string
	if s.Closed > 0 {
		parts = append(parts, fmt.Sprintf("%d closed", s.Closed))
	}
	if s.Callers > 0 {
		parts = append(parts, fmt.Sprintf("%d wait", s.Callers))
	}

	switch {
	case s.Silent == 1:
		parts = append(parts, "1 program silent")
	case s.Silent > 1:
		parts = append(parts, fmt.Sprintf("%d programs silent", s.Silent))
	}

	if unknown > 0 {
		parts = append(parts, fmt.Sprintf("%d not known", unknown))
	}
	if parts == nil {
		return "all open"
	}

	return strings.Join(parts, ", ")
}

// Refresh returns a snapshot with the states of its budgets, and the notes of their pauses, as they are
// now. It reads no reports, so it costs Redis less than Snapshot: which nodes and budgets there are, their
// starts, which nodes are silent, and the pushed file are those of s, which stays as it is.
func (f *Fleet) Refresh(ctx context.Context, s *Snapshot) (*Snapshot, error) {
	ctx, stop := withDeadline(ctx)
	defer stop()

	now, err := f.now(ctx)
	if err != nil {
		return nil, err
	}

	known, err := f.closings(ctx, now)
	if err != nil {
		return nil, err
	}

	next := *s
	next.At, next.Nodes, next.Budgets = now.UTC(), slices.Clone(s.Nodes), slices.Clone(s.Budgets)
	for i := range next.Nodes {
		n := &next.Nodes[i]
		silent := n.Silent // reports that came since are not read
		*n = nodeOf(n.ID, n.record, n.Ago.Duration+max(0, now.Sub(s.At)))
		n.Silent = silent
	}

	for i := range next.Budgets {
		b := &next.Budgets[i]
		if b.Node != "" {
			continue
		}

		b.Note = nil
		if note, ok := known.notes[b.charge.Budget.Key]; ok {
			b.Note = &note
		}
		if b.Err != "" && len(b.Limits) > 0 {
			b.Err = "" // it is asked again
		}
	}

	if err := f.describe(ctx, next.Budgets); err != nil {
		return nil, err
	}

	next.settle(known)
	return &next, nil
}

// gather sets s.Budgets to what the nodes of s have reported, and to the budgets that are said to be closed.
func (s *Snapshot) gather(known closings) {
	all := make(map[string]*Budget)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Silent {
			continue
		}

		s.LeftOut += max(0, min(n.record.LeftOut, math.MaxInt32))
		for j := range n.record.Policies {
			gatherPolicy(all, n, &n.record.Policies[j], s)
		}
	}

	named := make(map[[16]byte]bool)
	for _, b := range all {
		if note, ok := known.notes[b.charge.Budget.Key]; ok && b.Node == "" {
			b.Note = &note
		}
		if b.Node == "" {
			named[b.charge.Budget.Key] = true
		}

		b.sumPrograms()
		s.Budgets = append(s.Budgets, *b)
	}

	for key, note := range known.notes { // of budgets that nobody used lately
		if !named[key] {
			s.Budgets = append(s.Budgets, s.paused(note, known))
		}
	}

	for key, ban := range known.bans {
		if _, noted := known.notes[key]; !named[key] && !noted {
			s.Budgets = append(s.Budgets, budgetOf(ban.charge))
		}
	}

	s.addRunbooks()
	slices.SortFunc(s.Budgets, func(a, b Budget) int {
		return cmp.Or(cmp.Compare(a.urgency(known), b.urgency(known)), compareBudgets(a, b))
	})
}

// addRunbooks sets the runbook of each budget, also of one that only another program than the reporting one has used. While programs
// do not agree, the address counts that stands first in the alphabet.
func (s *Snapshot) addRunbooks() {
	known := make(map[string]string)
	for i := range s.Nodes {
		for _, p := range s.Nodes[i].record.Policies {
			name, next := Clean(p.Policy, longestName), address(p.Runbook)
			if old := known[name]; next != "" && (old == "" || next < old) {
				known[name] = next
			}
		}
	}

	for i := range s.Budgets {
		s.Budgets[i].Runbook = known[s.Budgets[i].Policy]
	}
}

// urgency returns the number by which budgets are sorted whose states are not known yet: first those that are said to be closed, then
// those that callers wait for.
func (b *Budget) urgency(known closings) int {
	_, closed := known.bans[b.charge.Budget.Key]
	switch {
	case b.Note != nil || closed && b.Node == "" || b.State.Paused.Duration > 0:
		return 0
	case b.waiting > 0:
		return 1
	}
	return 2
}

// compareBudgets puts budgets first that are closed, of those the ones that most callers wait for, then by how many callers wait, then
// by starts.
func compareBudgets(a, b Budget) int {
	closed := 0
	switch {
	case a.Closed() && !b.Closed():
		closed = -1
	case b.Closed() && !a.Closed():
		closed = 1
	}
	return cmp.Or(closed, cmp.Compare(b.Waiting(), a.Waiting()), cmp.Compare(b.Starts, a.Starts),
		strings.Compare(a.Name, b.Name), strings.Compare(a.Node, b.Node))
}

// budgetOf returns a budget that no node used lately.
func budgetOf(c store.Charge) Budget {
	return Budget{
		Name: Clean(c.Budget.String(), longestName), Policy: Clean(c.Budget.Policy, longestName), Group: Clean(c.Budget.Group, longestName),
		Limits: []string{c.Limit.String()}, Shadow: c.Shadow, charge: c,
	}
}

// add adds what a node reports of the budget.
func (b *Budget) add(n *Node, u *budgetUse) {
	b.Nodes++
	b.Starts = round(b.Starts + n.record.rate(u.Starts))
	b.Cost = round(b.Cost + n.record.rate(cmp.Or(u.Cost, u.Starts)))

	i := slices.IndexFunc(b.Programs, func(p Use) bool { return p.Program == n.Program })
	if i < 0 {
		i, b.Programs = len(b.Programs), append(b.Programs, Use{Program: n.Program})
	}
	b.Programs[i].add(Use{
		Nodes: 1, Starts: round(n.record.rate(u.Starts)), Waiting: bounded(u.Waiting), Oldest: Millis{max(0, u.Oldest.Duration)},
		Left: bounded(u.Left), Refused: bounded(u.Refused),
	})
}

// bounded returns a count that somebody may have written by hand.
func bounded(n int) int { return max(0, min(n, math.MaxInt32)) }

// add adds the counts of another use.
func (u *Use) add(o Use) {
	u.Nodes += o.Nodes
	u.Starts = round(u.Starts + o.Starts)
	u.Waiting += o.Waiting
	u.Oldest.Duration = max(u.Oldest.Duration, o.Oldest.Duration)
	u.Left += o.Left
	u.Refused += o.Refused
}

// sumPrograms sums what the programs of the budget report, and sorts and bounds them.
func (b *Budget) sumPrograms() {
	var sum, rest Use
	for _, u := range b.Programs {
		sum.add(u)
	}

	b.waiting, b.Oldest, b.Left, b.Refused = sum.Waiting, sum.Oldest, sum.Left, sum.Refused

	slices.SortFunc(b.Programs, func(a, b Use) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Starts, a.Starts), strings.Compare(a.Program, b.Program))
	})
	if len(b.Programs) <= MostPrograms {
		return
	}

	for _, u := range b.Programs[MostPrograms:] {
		rest.add(u)
	}

	b.Programs = append(b.Programs[:MostPrograms:MostPrograms], rest)
}

// gatherPolicy adds what one node says of one policy.
func gatherPolicy(all map[string]*Budget, n *Node, p *policyUse, s *Snapshot) {
	c, err := p.charge()
	if err != nil {
		s.Illegible++
		return
	}

	for i := range p.Budgets {
		u := &p.Budgets[i]
		key, ok := decodeKey(u.Key)
		if !ok {
			s.Illegible++
			continue
		}

		c.Budget.Key = key
		name := Clean(c.Budget.String(), longestName)
		id := name + "\x00" + string(key[:])
		if p.Node {
			id += n.ID
		}

		b := all[id]
		if b == nil {
			b = &Budget{Name: name, Policy: Clean(p.Policy, longestName), Group: Clean(p.Group, longestName), charge: c}
			all[id] = b
		}

		if limit := c.Limit.String(); !slices.Contains(b.Limits, limit) && len(b.Limits) < 4 {
			b.Limits = append(b.Limits, limit)
		}

		if p.Node {
			b.Node = n.ID
			if u.State != nil {
				b.State = u.State.clip()
			}
		}

		b.Shadow = b.Shadow || p.Shadow
		b.add(n, u)
	}
}

// paused returns a budget that an operator paused, by its note, and that no node used lately. What its limit is the index, the note,
// or a node that knows the policy says.
func (s *Snapshot) paused(note Note, known closings) Budget {
	c, err := note.terms.charge()
	if b, ok := known.bans[note.key]; ok {
		c, err = b.charge, nil
	}

	for i := range s.Nodes {
		for j := range s.Nodes[i].record.Policies {
			p := &s.Nodes[i].record.Policies[j]
			if of, wrong := p.charge(); err != nil && wrong == nil && Clean(p.Policy, longestName) == note.Policy && !p.Node {
				c, err = of, nil
			}
		}
	}

	if err != nil {
		return Budget{
			Name: note.Budget, Policy: note.Policy, Limits: []string{}, Note: &note, State: State{Paused: Millis{note.Until.Sub(s.At)}},
			Err: "no node says what its limit is", charge: store.Charge{Budget: store.Budget{Key: note.key}},
		}
	}

	c.Budget.Key = note.key
	b := budgetOf(c)
	b.Note = &note

	return b
}

// describe sets the state of each budget of the fleet, asksAtOnce at a time. A budget whose state cannot
// be read gets an Err; an outage of the store is returned as an error.
func (f *Fleet) describe(ctx context.Context, all []Budget) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup

	running := make(chan struct{}, asksAtOnce)
	for i := range all {
		b := &all[i]
		if b.Node != "" || b.Err != "" {
			continue
		}

		running <- struct{}{}
		wg.Go(func() {
			defer func() { <-running }()
			st, err := f.store.Status(ctx, b.charge)
			switch {
			case err == nil:
				b.State = StateOf(st)
				if st.Paused == 0 {
					b.Note = nil // the pause was ended, and not by a command of the fleet
				}

			case isOutage(err) || ctx.Err() != nil:
				stop(err)
			default:
				b.Err = Clean(err.Error(), longestText)
			}
		})
	}

	wg.Wait()
	return storeError(context.Cause(ctx))
}

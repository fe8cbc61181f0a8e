package fleet

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A Snapshot is a fleet at one moment.
type Snapshot struct {
	Version   int       `json:"version"`
	At        time.Time `json:"at"` // by the server's clock
	File      *Pushed   `json:"file,omitempty"`
	Nodes     []Node    `json:"nodes"`
	Budgets   []Budget  `json:"budgets"`
	LeftOut   int       `json:"left_out"`  // how many budgets are not in Budgets, at least
	Illegible int       `json:"illegible"` // records that could not be read
}

// A Budget is one that the fleet used lately, or that an operator paused. Its texts are
// fit to be printed.
type Budget struct {
	Name   string   `json:"name"` // the policy and the beginning of its hashed key, as events have it
	Policy string   `json:"policy"`
	Group  string   `json:"group,omitempty"` // the hosts of the policy: see [throttle.Budget]
	Limits []string `json:"limits"`          // more than one while nodes do not agree
	Shadow bool     `json:"shadow,omitempty"`
	Node   string   `json:"node,omitempty"`    // the node whose own it is; "": the fleet's
	Nodes  int      `json:"nodes"`             // that used it lately
	Starts float64  `json:"starts_per_second"` // requests that were handed on
	Cost   float64  `json:"cost_per_second"`   // what they cost: to be compared with the limit
	State  State    `json:"state"`
	Note   *Note    `json:"note,omitempty"`  // what an operator said who paused it
	Err    string   `json:"error,omitempty"` // why its state is not known

	charge throttle.Charge
}

// Limit returns the limit by which its state was asked; the zero Limit if it is not known.
func (b *Budget) Limit() throttle.Limit {
	if len(b.Limits) == 0 {
		return throttle.Limit{}
	}
	l, _ := throttle.ParseLimit(b.Limits[0])
	return l
}

// DefaultBudgets is how many budgets a snapshot asks about that is not told otherwise.
const DefaultBudgets = 200

// asksAtOnce is how many budgets are asked about at the same time.
const asksAtOnce = 16

// Snapshot reads the fleet, and the state of at most budgets budgets; 0 for [DefaultBudgets].
// Budgets that are paused by hand come first, then those used most. Snapshot changes nothing.
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
	notes, err := f.notes(ctx, now)
	if err != nil {
		return nil, err
	}
	s.gather(notes)
	most := cmp.Or(max(0, budgets), DefaultBudgets)
	s.LeftOut += max(0, len(s.Budgets)-most)
	s.Budgets = s.Budgets[:min(len(s.Budgets), most)]
	return s, f.describe(ctx, s.Budgets)
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
	notes, err := f.notes(ctx, now)
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
		if note, ok := notes[b.charge.Budget.Key]; ok {
			b.Note = &note
		}
		if b.Err != "" && len(b.Limits) > 0 {
			b.Err = "" // it is asked again
		}
	}
	return &next, f.describe(ctx, next.Budgets)
}

// gather sets s.Budgets to what the nodes of s have reported: budgets with notes come first, then those
// with the most starts. It takes the notes that it uses out of notes.
func (s *Snapshot) gather(notes map[[16]byte]Note) {
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
	for _, b := range all {
		if note, ok := notes[b.charge.Budget.Key]; ok && b.Node == "" {
			b.Note = &note
			delete(notes, b.charge.Budget.Key)
		}
		s.Budgets = append(s.Budgets, *b)
	}
	for _, note := range notes { // of budgets that nobody used lately
		s.Budgets = append(s.Budgets, s.paused(note))
	}
	slices.SortFunc(s.Budgets, func(a, b Budget) int {
		return cmp.Or(-cmp.Compare(sortWeight(&a), sortWeight(&b)), strings.Compare(a.Name, b.Name), strings.Compare(a.Node, b.Node))
	})
}

// sortWeight returns the number by which budgets are sorted, the largest first.
func sortWeight(b *Budget) float64 {
	if b.Note != nil {
		return math.Inf(1)
	}
	return b.Starts
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
		b.Nodes++
		b.Starts = round(b.Starts + n.record.rate(u.Starts))
		b.Cost = round(b.Cost + n.record.rate(cmp.Or(u.Cost, u.Starts)))
	}
}

// paused returns a budget that an operator paused, by its note, and that no node used lately.
func (s *Snapshot) paused(note Note) Budget {
	b := Budget{Name: note.Budget, Policy: note.Policy, Limits: []string{}, Note: &note, State: State{Paused: Millis{note.Until.Sub(s.At)}}}
	for i := range s.Nodes {
		for j := range s.Nodes[i].record.Policies {
			p := &s.Nodes[i].record.Policies[j]
			if c, err := p.charge(); err == nil && Clean(p.Policy, longestName) == note.Policy && !p.Node {
				b.charge = c
				b.charge.Budget.Key, b.Limits, b.Group = note.key, []string{c.Limit.String()}, Clean(p.Group, longestName)
				return b
			}
		}
	}
	b.Err = "no node says what its limit is"
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
				if b.State = StateOf(st); st.Paused == 0 {
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

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
	"github.com/redis/go-redis/v9"
)

// Snapshot is a fleet at one moment.
type Snapshot struct {
	Version   int       `json:"version"`
	At        time.Time `json:"at"` // by the server's clock
	File      *Pushed   `json:"file,omitempty"`
	Switch    *Switch   `json:"switch,omitempty"` // the operator's last command, off or on
	Nodes     []Node    `json:"nodes"`
	Budgets   []Budget  `json:"budgets"`   // closed first, then by waiting callers, then by starts
	LeftOut   int       `json:"left_out"`  // number of budgets not in Budgets, at least
	Illegible int       `json:"illegible"` // records that could not be parsed

	Closed  int `json:"closed"`  // closed budgets in Budgets that hold callers: see [Budget.Closed]
	Callers int `json:"callers"` // callers that wait for Budgets
	Silent  int `json:"silent"`  // silent nodes in Nodes
	Off     int `json:"off"`     // nodes in Nodes that are off and not silent: they hold no limit

	ClosedLeftOut int `json:"closed_left_out,omitempty"` // closed budgets among those left out, as programs reported
}

// Budget is a budget that the fleet used lately, or that is closed. A closed
// budget stays in snapshots until it opens, even if all its programs have gone.
// Texts are safe to print.
type Budget struct {
	Name   string   `json:"name"` // the policy and the beginning of its hashed key, as in events
	Policy string   `json:"policy"`
	Group  string   `json:"group,omitempty"` // hosts of the policy: see [store.Budget]
	Limits []string `json:"limits"`          // more than one while nodes disagree
	Shadow bool     `json:"shadow,omitempty"`
	Node   string   `json:"node,omitempty"`    // owner of a budget per node, "" for the fleet
	Nodes  int      `json:"nodes"`             // number of nodes that used it lately
	Starts float64  `json:"starts_per_second"` // requests handed on
	Cost   float64  `json:"cost_per_second"`   // their cost, comparable to the limit
	State  State    `json:"state"`
	Note   *Note    `json:"note,omitempty"`  // the operator's note, if paused
	Err    string   `json:"error,omitempty"` // why its state is unknown

	Since time.Time `json:"closed_since,omitzero"` // when it closed, by the server's clock, zero if open or unknown
	By    string    `json:"closed_by,omitempty"`   // what closed it, such as ByAnswer, "" if Since is when a program met it closed
	Met   string    `json:"closed_met,omitempty"`  // the program that reported it

	Programs []Use  `json:"programs,omitempty"`      // by waiting callers, then by starts; at most MostPrograms, then the rest as one Use
	Oldest   Millis `json:"oldest_wait_ms,omitzero"` // how long the first caller in line has waited
	Left     int    `json:"left,omitempty"`          // callers that left the line without a start in the last minute
	Refused  int    `json:"refused,omitempty"`       // callers refused in the last minute

	Label   string `json:"label,omitempty"`   // readable name of its key, set by the viewer; Redis does not have it
	Runbook string `json:"runbook,omitempty"` // http or https URL of its runbook, "" if no policy file names one

	charge  store.Charge
	waiting int // callers in line, from reports
}

// Use is the use of a budget by all nodes of one program. A variant of a Choice
// that started elsewhere counts as a caller that left.
type Use struct {
	Program string  `json:"program"` // "" for the programs beyond MostPrograms
	Nodes   int     `json:"nodes"`
	Starts  float64 `json:"starts_per_second"`
	Waiting int     `json:"waiting"`                 // callers in line
	Oldest  Millis  `json:"oldest_wait_ms,omitzero"` // how long the first of them has waited
	Left    int     `json:"left,omitempty"`          // callers that left the line without a start in the last minute
	Refused int     `json:"refused,omitempty"`       // callers refused in the last minute
}

// MostPrograms is how many programs per budget a snapshot distinguishes.
const MostPrograms = 16

// Closed reports whether the budget is closed and holds callers. Budgets of
// shadow policies hold nobody.
func (b *Budget) Closed() bool { return b.State.Paused.Duration > 0 && !b.Shadow }

// Waiting returns how many callers wait for the budget: the larger of the
// store's count and the reported count. For a recording of an earlier version
// without counts it returns their cost.
func (b *Budget) Waiting() int {
	return max(cmp.Or(b.State.Callers, b.State.Waiting-b.State.Booked), b.waiting)
}

// Limit returns the limit of State, or the zero Limit if it is unknown.
func (b *Budget) Limit() store.Limit {
	if len(b.Limits) == 0 {
		return store.Limit{}
	}
	l, _ := store.ParseLimit(b.Limits[0])
	return l
}

// DefaultBudgets is the default number of budgets in a snapshot.
const DefaultBudgets = 200

// asksAtOnce is how many budgets are asked about in parallel.
const asksAtOnce = 16

// Snapshot returns the fleet with the states of at most budgets budgets, by
// default [DefaultBudgets]: closed ones first, then those with waiting callers,
// then the busiest. It changes nothing.
func (f *Fleet) Snapshot(ctx context.Context, budgets int) (*Snapshot, error) {
	ctx, stop := withDeadline(ctx)
	defer stop()

	nodes, now, illegible, err := f.nodes(ctx)
	if err != nil {
		return nil, err
	}

	s := &Snapshot{Version: recordVersion, At: now.UTC(), Nodes: nodes, Budgets: []Budget{}, Illegible: illegible}

	// An illegible file must not hide the states of the budgets.
	s.File, err = f.Pushed(ctx)
	switch {
	case errors.Is(err, errUnreadable):
		s.Illegible++
	case err != nil:
		return nil, err
	}

	s.Switch, err = readSwitch(ctx, f.client, f.keys.off)
	switch {
	case errors.Is(err, errNoSwitch):
		s.Illegible++
	case err != nil:
		return nil, f.commandError(err)
	}

	known, err := f.closings(ctx, now)
	if err != nil {
		return nil, err
	}

	s.Illegible += known.illegible
	s.gather(known)

	// Cut before the states are read: each state is a call of the store.
	most := cmp.Or(max(0, budgets), DefaultBudgets)
	kept := min(len(s.Budgets), most)
	s.LeftOut += len(s.Budgets) - kept
	for _, b := range s.Budgets[kept:] {
		if b.urgency(known) == urgencyClosed && !b.Shadow {
			s.ClosedLeftOut++
		}
	}

	s.Budgets = s.Budgets[:kept]
	if err := f.describe(ctx, s.Budgets); err != nil {
		return nil, err
	}

	// Only now the states are known, and with them which budgets are really closed.
	s.settle(known)
	slices.SortFunc(s.Budgets, compareBudgets)
	return s, nil
}

// A closings is Redis' knowledge of closed budgets, by hashed key.
type closings struct {
	notes     map[[16]byte]Note
	bans      map[[16]byte]ban
	illegible int
}

// closings reads the notes and bans in force at now.
func (f *Fleet) closings(ctx context.Context, now time.Time) (c closings, err error) {
	if c.notes, err = f.notes(ctx, now); err != nil {
		return c, err
	}
	c.bans, c.illegible, err = f.bans(ctx, now)
	return c, err
}

// settle completes budgets with known states: since when and why they are closed. It removes unused budgets
// that have opened, and notes that do not hold, and calls count.
func (s *Snapshot) settle(known closings) {
	// A budget that no program uses is listed only because it was closed. It has opened meanwhile.
	s.Budgets = slices.DeleteFunc(s.Budgets, func(b Budget) bool {
		return b.Nodes == 0 && b.Note == nil && b.Err == "" && b.State.Paused.Duration == 0
	})
	for i := range s.Budgets {
		b := &s.Budgets[i]

		if b.Note != nil && !b.Note.holds(b.State.Paused.Duration, s.At) {
			b.Note = nil
		}
		b.tellClosing(known)
	}
	s.count()
}

// count sets Closed, Callers, Silent and Off, and returns how many states are unknown.
func (s *Snapshot) count() (unknown int) {
	s.Closed, s.Callers, s.Silent, s.Off = 0, 0, 0, 0
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
		switch n := &s.Nodes[i]; {
		case n.Silent:
			s.Silent++
		case n.Switch.Off:
			s.Off++
		}
	}
	return unknown
}

// tellClosing sets since when and why the budget is closed. For an open budget it clears this.
func (b *Budget) tellClosing(known closings) {
	if b.State.Paused.Duration == 0 {
		b.Since, b.By, b.Met = time.Time{}, "", ""
		return
	}

	// The index holds shared budgets only, but a node's own budget may have the same hashed key.
	if c, ok := known.bans[b.charge.Budget.Key]; ok && b.Node == "" {
		b.Since, b.By, b.Met = c.since.UTC(), c.by, c.met
	}
	if b.Note == nil {
		return
	}

	// The note of an operator outranks a program's knowledge.
	b.By, b.Met = ByOperator, ""
	if since := b.Note.since; !since.IsZero() && (b.Since.IsZero() || since.Before(b.Since)) {
		b.Since = since.UTC()
	}
}

// Verdict summarizes the snapshot in one line, such as "2 closed, 5 wait", or
// "all open".
func (s *Snapshot) Verdict() string {
	// Count in a copy: a recording of an earlier version has no counts, and must stay as it is.
	own := *s
	unknown := own.count()
	s = &own
	var parts []string
	switch {
	case s.Off == 1:
		parts = append(parts, "1 program off")
	case s.Off > 1:
		parts = append(parts, fmt.Sprintf("%d programs off", s.Off))
	}

	if closed := s.Closed + s.ClosedLeftOut; closed > 0 {
		parts = append(parts, fmt.Sprintf("%d closed", closed))
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

// Refresh returns a copy of s with fresh states and notes of its budgets. It
// reads no reports and therefore costs Redis less than Snapshot: nodes,
// budgets, rates, silence and the pushed file stay as in s, except for budgets
// that nobody uses, which leave when they open. s is not modified.
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
		// Reports are not read again, so the last reports age by the time since the snapshot. By that age a node would look silent, although it may have
		// reported since: keep what the snapshot says.
		n := &next.Nodes[i]
		silent := n.Silent
		*n = nodeOf(n.ID, n.record, n.Ago.Duration+max(0, now.Sub(s.At)))
		n.Silent = silent
	}

	for i := range next.Budgets {
		b := &next.Budgets[i]
		if b.Node != "" {
			b.State.age(max(0, now.Sub(s.At)))
			continue
		}

		// An operator may have ended the pause, or begun a pause, since the snapshot.
		b.Note = nil
		if note, ok := known.notes[b.charge.Budget.Key]; ok {
			b.Note = &note
		}
		switch {
		case b.Err != "" && len(b.Limits) > 0:
			b.Err = "" // describe asks again

		// Without a limit the store cannot be asked: the note says how long the pause still lasts.
		case b.Err != "" && b.Note != nil:
			b.State.Paused.Duration = b.Note.Until.Sub(now)
		}
	}

	// A pause that only its note described is over with the note.
	next.Budgets = slices.DeleteFunc(next.Budgets, func(b Budget) bool { return len(b.Limits) == 0 && b.Note == nil })

	if err := f.describe(ctx, next.Budgets); err != nil {
		return nil, err
	}

	next.settle(known)
	return &next, nil
}

// gather sets s.Budgets from the reports of the nodes in s.Nodes that are not silent, and from the known closings: the
// most urgent first. It adds to LeftOut and Illegible.
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

	// reported has the shared budgets that a report mentions.
	reported := make(map[[16]byte]bool)
	for _, b := range all {
		if note, ok := known.notes[b.charge.Budget.Key]; ok && b.Node == "" {
			b.Note = &note
		}
		if b.Node == "" {
			reported[b.charge.Budget.Key] = true
		}

		b.sumPrograms()
		s.Budgets = append(s.Budgets, *b)
	}

	// Add closed budgets that no program has used lately.
	for key, note := range known.notes {
		if !reported[key] {
			s.Budgets = append(s.Budgets, s.paused(note, known))
		}
	}

	for key, closed := range known.bans {
		if _, noted := known.notes[key]; !reported[key] && !noted {
			s.Budgets = append(s.Budgets, budgetOf(closed.charge))

			// A full report may have left this budget out and counted it in LeftOut, which is a lower bound. The
			// index of closed budgets has it, so it is listed after all.
			s.LeftOut = max(0, s.LeftOut-1)
		}
	}

	s.addRunbooks()
	slices.SortFunc(s.Budgets, func(a, b Budget) int {
		return cmp.Or(cmp.Compare(a.urgency(known), b.urgency(known)), compareBudgets(a, b))
	})
}

// addRunbooks sets the runbook of each budget, even if only a different program's policies name one. If
// programs disagree, the alphabetically first URL wins.
func (s *Snapshot) addRunbooks() {
	known := make(map[string]string)
	for i := range s.Nodes {
		for _, p := range s.Nodes[i].record.Policies {
			name, url := Clean(p.Policy, longestName), address(p.Runbook)
			if first := known[name]; url != "" && (first == "" || url < first) {
				known[name] = url
			}
		}
	}

	for i := range s.Budgets {
		s.Budgets[i].Runbook = known[s.Budgets[i].Policy]
	}
}

// urgencyClosed is the urgency of a closed budget.
const urgencyClosed = 0

// urgency returns the sort key of a budget whose state was not read yet: closed budgets have the lowest, then budgets
// with waiting callers.
func (b *Budget) urgency(known closings) int {
	_, closed := known.bans[b.charge.Budget.Key]
	switch {
	case b.Note != nil || closed && b.Node == "" || b.State.Paused.Duration > 0:
		return urgencyClosed
	case b.waiting > 0:
		return 1
	}
	return 2
}

// compareBudgets sorts closed budgets first, then by waiting callers, then by starts.
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

// budgetOf returns a budget without recent use.
func budgetOf(c store.Charge) Budget {
	return Budget{
		Name: Clean(c.Budget.String(), longestName), Policy: Clean(c.Budget.Policy, longestName), Group: Clean(c.Budget.Group, longestName),
		Limits: []string{c.Limit.String()}, Shadow: c.Shadow, charge: c,
	}
}

// add adds the report u of the node n to the budget.
func (b *Budget) add(n *Node, u *budgetUse) {
	b.Nodes++
	b.Starts = round(b.Starts + n.record.rate(u.Starts))

	// Programs of earlier versions report no cost: each start counts 1.
	b.Cost = round(b.Cost + n.record.rate(cmp.Or(u.Cost, u.Starts)))

	i := slices.IndexFunc(b.Programs, func(p Use) bool { return p.Program == n.Program })
	if i < 0 {
		i = len(b.Programs)
		b.Programs = append(b.Programs, Use{Program: n.Program})
	}

	b.Programs[i].add(Use{
		Nodes: 1, Starts: round(n.record.rate(u.Starts)), Waiting: bounded(u.Waiting), Oldest: Millis{max(0, u.Oldest.Duration)},
		Left: bounded(u.Left), Refused: bounded(u.Refused),
	})
}

// bounded bounds a count that may have been edited by hand.
func bounded(n int) int { return max(0, min(n, math.MaxInt32)) }

// add adds the counts of o.
func (u *Use) add(o Use) {
	u.Nodes += o.Nodes
	u.Starts = round(u.Starts + o.Starts)
	u.Waiting += o.Waiting
	u.Oldest.Duration = max(u.Oldest.Duration, o.Oldest.Duration)
	u.Left += o.Left
	u.Refused += o.Refused
}

// sumPrograms sets the budget's sums over its programs, sorts the programs, and joins those beyond MostPrograms in one Use.
func (b *Budget) sumPrograms() {
	var sum, rest Use
	for _, u := range b.Programs {
		sum.add(u)
	}

	b.waiting, b.Oldest, b.Left, b.Refused = sum.Waiting, sum.Oldest, sum.Left, sum.Refused

	slices.SortFunc(b.Programs, func(p, q Use) int {
		return cmp.Or(cmp.Compare(q.Waiting, p.Waiting), cmp.Compare(q.Starts, p.Starts), strings.Compare(p.Program, q.Program))
	})
	if len(b.Programs) <= MostPrograms {
		return
	}

	// Sum the remaining programs in one nameless entry.
	for _, u := range b.Programs[MostPrograms:] {
		rest.add(u)
	}

	b.Programs = append(b.Programs[:MostPrograms:MostPrograms], rest)
}

// longestClosing bounds a reported closing, which may have been edited by hand.
const longestClosing = 366 * 24 * time.Hour

// gatherPolicy adds the report of the policy p by the node n to the budgets in all, and makes those that are not there yet. It
// counts in s what it cannot parse.
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

		// The name shows only the beginning of the hashed key, so add the whole key.
		id := name + "\x00" + string(key[:])
		if p.Node {
			// Each node has a budget of its own, so its reports are not added up.
			id += n.ID
		}

		b := all[id]
		if b == nil {
			b = &Budget{Name: name, Policy: Clean(p.Policy, longestName), Group: Clean(p.Group, longestName), charge: c}
			all[id] = b
		}

		// Programs may disagree about the limit. A few limits are enough to show that.
		if limit := c.Limit.String(); !slices.Contains(b.Limits, limit) && len(b.Limits) < 4 {
			b.Limits = append(b.Limits, limit)
		}

		if p.Node {
			b.Node = n.ID
			if u.State != nil {
				b.State = u.State.clip()
				b.State.age(n.Ago.Duration)
			}
			if u.ClosedFor.Duration > 0 {
				b.Since = s.At.Add(-n.Ago.Duration - min(u.ClosedFor.Duration, longestClosing)).Truncate(time.Second)
				b.By, b.Met = Clean(u.ClosedBy, longestName), n.Program
			}
		}

		b.Shadow = b.Shadow || p.Shadow
		b.add(n, u)
	}
}

// paused returns the budget of a pause without recent use. Its limit comes from the index, the note, or a
// node that knows the policy. Without a limit the budget has an Err.
func (s *Snapshot) paused(note Note, known closings) Budget {
	c, err := note.terms.charge()
	if b, ok := known.bans[note.key]; ok {
		c, err = b.charge, nil
	}

	// Unless note or index have named a limit, take it from the first node that knows the policy.
	for i := range s.Nodes {
		for j := range s.Nodes[i].record.Policies {
			p := &s.Nodes[i].record.Policies[j]
			if err == nil || p.Node || Clean(p.Policy, longestName) != note.Policy {
				continue
			}
			if reported, wrong := p.charge(); wrong == nil {
				c, err = reported, nil
			}
		}
	}

	// Without a limit the store cannot be asked, so show the pause as the note describes it.
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

// describe sets the state of each shared budget that has no Err, asksAtOnce at a time, and drops the note of an open
// budget. A budget whose state cannot be read gets Err. An outage of the store is returned as an error.
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
					b.Note = nil // the pause was ended without the fleet
				}

			// An outage would fail all further questions, too, so stop them.
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

// Node is a program, as of its last report. Its texts are safe to print.
type Node struct {
	ID      string     `json:"id"`
	Program string     `json:"program"`
	Host    string     `json:"host"`
	PID     int        `json:"pid"`
	Library string     `json:"library"` // version of throttle
	Up      Millis     `json:"up_ms"`
	Ago     Millis     `json:"ago_ms"` // time since its last report
	Silent  bool       `json:"silent"` // it has missed three reports
	File    FileState  `json:"file"`
	Switch  NodeSwitch `json:"switch,omitzero"`   // of a silent node: as it was
	Budgets int        `json:"budgets"`           // budgets that it used lately
	Starts  float64    `json:"starts_per_second"` // requests handed on

	record *record
}

// mostNodes bounds how many nodes are read.
const mostNodes = 5000

// silentAfter is how many missed reports make a node silent.
const silentAfter = 3

// Nodes returns the programs that report, sorted by program, host and id.
func (f *Fleet) Nodes(ctx context.Context) ([]Node, error) {
	all, _, _, err := f.nodes(ctx)
	return all, err
}

// nodes reads the latest reports, mostNodes at the most, as of now on the server's clock. illegible counts
// reports that could not be parsed.
func (f *Fleet) nodes(ctx context.Context) (all []Node, now time.Time, illegible int, err error) {
	if now, err = f.now(ctx); err != nil {
		return nil, now, 0, err
	}

	// The latest reports come first.
	all = []Node{}
	ids, err := f.client.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: f.keys.nodes, Start: 0, Stop: mostNodes - 1, Rev: true}).Result()
	if err != nil {
		return nil, now, 0, f.commandError(err)
	}

	// Read in batches, so that Redis serves other clients in between.
	for chunk := range slices.Chunk(ids, 100) {
		keys := make([]string, len(chunk))
		for i, id := range chunk {
			keys[i] = f.keys.node + id.Member.(string)
		}

		records, err := f.client.MGet(ctx, keys...).Result()
		if err != nil {
			return nil, now, 0, f.commandError(err)
		}

		for i, text := range records {
			text, ok := text.(string)
			if !ok {
				continue // the record has just expired
			}

			r, err := decode(text)
			if err != nil {
				illegible++
				continue
			}

			id := Clean(chunk[i].Member.(string), longestName)
			all = append(all, nodeOf(id, &r, now.Sub(time.UnixMicro(int64(chunk[i].Score)))))
		}
	}

	// Redis returns the latest reports first. Sort by name, so that lists do not jump.
	slices.SortFunc(all, func(a, b Node) int {
		return strings.Compare(a.Program+"\x00"+a.Host+"\x00"+a.ID, b.Program+"\x00"+b.Host+"\x00"+b.ID)
	})
	return all, now, illegible, nil
}

// nodeOf returns the node of the record r, which arrived as long ago as ago says. What the record counts from its own time has
// become longer or shorter by ago.
func nodeOf(id string, r *record, ago time.Duration) Node {
	ago = max(0, ago)
	n := Node{
		ID: id, Program: Clean(r.Program, longestName), Host: Clean(r.Host, longestName), PID: r.PID,
		Library: Clean(r.Library, longestName), Up: Millis{r.Up.Duration + ago}, Ago: Millis{ago},
		Silent: ago > silentAfter*max(r.Every.Duration, time.Second), File: r.File.clip(), Switch: r.Switch.clip(ago), record: r,
	}
	if n.File.InForce != "" {
		n.File.For.Duration += ago
	}

	n.File.Grace.Duration = max(0, n.File.Grace.Duration-ago)
	for i := range r.Policies {
		n.Budgets += len(r.Policies[i].Budgets)
	}

	// The last rate of a silent node says nothing about now.
	if !n.Silent {
		n.Starts = round(r.rate(r.Requests))
	}
	return n
}

// rate returns starts as a rate per second, or 0 if the record names no time in which they were counted.
func (r *record) rate(starts int64) float64 {
	if r.Span.Duration <= 0 {
		return 0
	}
	return float64(max(0, starts)) / r.Span.Seconds()
}

// round rounds a rate to two decimals.
func round(rate float64) float64 { return math.Round(rate*100) / 100 }

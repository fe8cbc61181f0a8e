package fleet

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// Target is a budget to close or open. Only [Fleet.Find] returns usable
// targets.
type Target struct {
	Name  string // as [Budget.Name]
	Limit store.Limit

	charge store.Charge
}

// TargetError reports a query that matches no budget, or several.
type TargetError struct {
	Name string   // the query's name
	Why  string   // the mistake, and how to correct it
	Of   []string // candidates: names of budgets or policies
}

// Error implements error.
func (e *TargetError) Error() string {
	text := fmt.Sprintf(`"%s": %s`, Clean(e.Name, longestName), e.Why)
	if len(e.Of) > 0 {
		text += ", such as " + strings.Join(e.Of[:min(len(e.Of), 5)], ", ")
	}
	return text
}

// Query names a budget for [Fleet.Find].
type Query struct {
	// Name is the name of a policy, or a unique prefix of a [Budget.Name].
	// Required.
	Name string

	// Key is the policy's key in clear text. Only its hash is used. Defaults to
	// "": the policy's budget without a key.
	Key string

	// Table has policies that no node may have used yet. Defaults to none.
	Table []throttle.Policy
}

// Find returns the budget that a query names. It looks up the policy in the
// query's table first, then in the reports of the nodes, and if neither has a
// policy of this name it looks for a budget. The error is a *[TargetError] if no
// budget, or more than one, matches, or if each node has the budget for itself.
func (f *Fleet) Find(ctx context.Context, q Query) (Target, error) {
	nodes, now, _, err := f.nodes(ctx)
	if err != nil {
		return Target{}, err
	}

	known, err := f.closings(ctx, now)
	if err != nil {
		return Target{}, err
	}

	s := &Snapshot{Nodes: nodes, At: now}
	s.gather(known)

	var c store.Charge

	// Look in the table first: it knows whether a policy has keys, and the reports know only hashed keys.
	if i := slices.IndexFunc(q.Table, func(p throttle.Policy) bool { return p.Name == q.Name }); i >= 0 {
		c, err = q.chargeByTable(q.Table[i].Keyed || q.Table[i].Key != nil, s)
	} else if p := s.policy(q.Name); p != nil {
		c, err = q.chargeByReports(p, s)
	} else {
		c, err = q.chargeByName(s)
	}

	if err != nil {
		return Target{}, err
	}

	// A node's own budget is in its memory, out of reach of Redis.
	if c.Node {
		return Target{}, &TargetError{Name: q.Name, Why: "each node has this budget for itself, so it cannot be closed or opened from here"}
	}

	return Target{Clean(c.Budget.String(), longestName), c.Limit, c}, nil
}

// Names returns the values that [Query.Name] can have: names of policies that
// nodes have used, and of budgets.
func (f *Fleet) Names(ctx context.Context) ([]string, error) {
	nodes, now, _, err := f.nodes(ctx)
	if err != nil {
		return nil, err
	}

	known, err := f.closings(ctx, now)
	if err != nil {
		return nil, err
	}

	s := &Snapshot{Nodes: nodes, At: now}
	s.gather(known)

	names := s.policies()
	for i := range s.Budgets {
		if b := &s.Budgets[i]; b.Node == "" {
			names = append(names, b.Name)
		}
	}

	return names, nil
}

// chargeByTable returns the charge of a policy in the table, for the query's key. keyed says that the policy has keys.
func (q *Query) chargeByTable(keyed bool, s *Snapshot) (store.Charge, error) {
	if keyed && q.Key == "" {
		return store.Charge{}, q.needsKey(s)
	}
	if !keyed && q.Key != "" {
		return store.Charge{}, &TargetError{Name: q.Name, Why: "the policy has one budget for all, and no keys: leave --key out"}
	}

	// Ask the limiter itself for its charge, through a store that only records: jitter and group are then as
	// in the programs.
	var asked pauseRecorder
	table, err := throttle.NewLimiters(throttle.Config{Store: &asked, Policies: throttle.WithoutAnswers(q.Table)})
	if err != nil {
		return store.Charge{}, err
	}

	l, err := table.Limiter(q.Name)
	if err != nil {
		return store.Charge{}, err
	}

	return asked.chargeOf(l, q.Key)
}

// chargeByReports returns the charge of a policy in the reports, for the query's key.
func (q *Query) chargeByReports(p *policyUse, s *Snapshot) (store.Charge, error) {
	c, err := p.charge()
	if err != nil {
		return c, err
	}

	c.Budget.Key = store.BudgetOf(c.Budget.Policy, q.Key).Key

	// The hash of the empty key marks the one budget of a policy without keys.
	forAll := store.BudgetOf(c.Budget.Policy, "").Key
	known := s.budgetsOf(q.Name)
	hasKeys := slices.ContainsFunc(known, func(b *Budget) bool { return b.charge.Budget.Key != forAll })

	// Refuse a key for a policy without keys, and a missing key for a policy with keys, as far as reports
	// tell.
	if q.Key != "" && len(known) > 0 && !hasKeys {
		return c, &TargetError{Name: q.Name, Why: "nodes have used one budget of the policy for all, and no keys: leave --key out, or say --file, the file of policies"}
	}
	if q.Key == "" && hasKeys {
		return c, q.needsKey(s)
	}

	return c, nil
}

// chargeByName returns the charge of the only budget of the fleet whose name begins with the query's name. It returns a *[TargetError] if no such budget is in the
// reports, if there are several, or if the reports do not tell the budget's charge.
func (q *Query) chargeByName(s *Snapshot) (c store.Charge, err error) {
	var found []*Budget
	for i := range s.Budgets {
		// A budget of one node is that node's alone. A prefix must reach beyond the policy's name, or it would match each of the policy's budgets.
		if b := &s.Budgets[i]; b.Node == "" && strings.HasPrefix(b.Name, q.Name) && len(q.Name) > len(b.Policy)+1 {
			found = append(found, b)
		}
	}

	switch {
	case len(found) == 1 && found[0].Err != "":
		return c, &TargetError{Name: q.Name, Why: found[0].Err + "; say --file, the file of policies"}
	case len(found) == 1:
		return found[0].charge, nil
	case len(found) > 1:
		return c, &TargetError{q.Name, "several budgets begin so", namesOf(found)}
	}

	known := s.policies()
	why := "no node has reported a policy or a budget of this name; say --file if none has used it yet"
	if len(known) > 0 {
		why += "; nodes have reported others"
	}

	return c, &TargetError{q.Name, why, known}
}

// policies returns the names of the policies in the reports.
func (s *Snapshot) policies() (known []string) {
	for i := range s.Nodes {
		for _, p := range s.Nodes[i].record.Policies {
			if name := Clean(p.Policy, longestName); !slices.Contains(known, name) {
				known = append(known, name)
			}
		}
	}
	slices.Sort(known)
	return known
}

// needsKey returns the error for a keyed policy without a key.
func (q *Query) needsKey(s *Snapshot) error {
	return &TargetError{q.Name, "the policy has a budget for each key: say --key, or the name of a budget", namesOf(s.budgetsOf(q.Name))}
}

// policy returns a policy from the latest report that has it, or nil.
func (s *Snapshot) policy(name string) (found *policyUse) {
	var ago time.Duration // how old the report of found is
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for j := range n.record.Policies {
			// The latest report wins: an older report may come from a program with an old policy.
			if p := &n.record.Policies[j]; p.Policy == name && (found == nil || n.Ago.Duration < ago) {
				found, ago = p, n.Ago.Duration
			}
		}
	}
	return found
}

// budgetsOf returns the budgets of a policy.
func (s *Snapshot) budgetsOf(policy string) (all []*Budget) {
	for i := range s.Budgets {
		if b := &s.Budgets[i]; b.charge.Budget.Policy == policy {
			all = append(all, b)
		}
	}
	return all
}

// namesOf returns the names of budgets.
func namesOf(all []*Budget) (names []string) {
	for _, b := range all {
		names = append(names, b.Name)
	}
	return names
}

// A pauseRecorder is a store that records the charge of a Pause.
type pauseRecorder struct {
	store.Store
	charge store.Charge
}

// Traits implements [store.Store].
func (a *pauseRecorder) Traits() store.Traits { return store.Traits{} }

// Pause implements [store.Store].
func (a *pauseRecorder) Pause(_ context.Context, c store.Charge, _ time.Duration) error {
	a.charge = c
	return nil
}

// chargeOf returns the charge of a limiter's budget. It pauses the budget in this store only.
func (a *pauseRecorder) chargeOf(l *throttle.Limiter, key string) (store.Charge, error) {
	err := l.Pause(context.Background(), key, time.Second)
	return a.charge, err
}

//go:embed log.lua
var logSource string

//go:embed note.lua
var noteSource string

//go:embed unnote.lua
var unnoteSource string

var (
	noteScript   = wire.FromSource(logSource + noteSource)
	unnoteScript = wire.FromSource(logSource + unnoteSource)
)

// LongerError reports that an operator's longer pause of the budget is in
// force.
type LongerError struct{ Note Note }

// Error implements error.
func (e *LongerError) Error() string {
	return fmt.Sprintf("%s is %v, until %s; to shorten that, resume it first", e.Note.Budget,
		store.PauseNote{By: e.Note.By, Reason: e.Note.Reason}, e.Note.Until.UTC().Format(time.RFC3339))
}

// NotPausedError reports that no operator has paused the budget.
type NotPausedError struct {
	Budget string
	Closed time.Duration // remaining time of a closure with a different cause, 0 if the budget is open
}

// Error implements error.
func (e *NotPausedError) Error() string {
	if e.Closed > 0 {
		return fmt.Sprintf("%s is closed by an answer of its upstream for %v, and by no operator for as long; reset opens it all the same", e.Budget, e.Closed.Round(time.Millisecond))
	}
	return e.Budget + " is not paused"
}

// State returns the present state of a budget, and the note of an operator's
// pause. The note is nil if no operator has paused the budget, if a ban ends
// later than the pause, and if a program has ended the pause, even if a ban has
// closed the budget again.
func (f *Fleet) State(ctx context.Context, t Target) (State, *Note, error) {
	st, note, err := f.Describe(ctx, t.charge)
	return StateOf(st), note, err
}

// Describe is like [Fleet.State], for a charge that
// [throttle.Transport.Explain] returned.
func (f *Fleet) Describe(ctx context.Context, c store.Charge) (store.Status, *Note, error) {
	ctx, stop := withDeadline(ctx)
	defer stop()

	st, err := f.store.Status(ctx, c)

	// Most budgets are open, and an open budget has no note: save two calls.
	if err != nil || st.Paused == 0 {
		return st, nil, storeError(err)
	}

	now, err := f.now(ctx)
	if err != nil {
		return st, nil, err
	}

	// After an error there are no notes.
	notes, err := f.notes(ctx, now)
	if n, ok := notes[c.Budget.Key]; ok && n.holds(st.Paused, now) {
		return st, &n, nil
	}

	return st, nil, err
}

// holds reports whether the pause of the note is why a budget stays closed for the time paused from now on: no program has ended the
// pause, and no ban ends later. Ends that differ by up to patience are the same: a pause begins after its note, by as long as a call
// takes.
func (n *Note) holds(paused time.Duration, now time.Time) bool {
	return !n.isEnded(paused, now) && paused-n.Until.Sub(now) <= patience
}

// isEnded reports whether a program has ended the pause of the note: the budget, which stays closed for the time paused from now on,
// opens before the pause would have ended, by more than patience.
func (n *Note) isEnded(paused time.Duration, now time.Time) bool {
	return paused <= 0 || n.Until.Sub(now)-paused > patience
}

// Pause closes a budget for d, at most [store.MaxPenalty]. It stores the note
// before the pause, so that every node that meets the pause finds the note, and
// takes the note back if the pause fails. The audit log has the pause when the
// budget is closed. Pause returns a *[LongerError] if an operator's longer pause
// is in force.
func (f *Fleet) Pause(ctx context.Context, t Target, d time.Duration, by, reason string) error {
	if d <= 0 || d > store.MaxPenalty {
		return fmt.Errorf("a pause is longer than nothing, and at most %v", store.MaxPenalty)
	}

	ctx, stop := withDeadline(ctx)
	defer stop()
	act := Act{Act: "pause", What: t.Name, By: by, Reason: reason, For: Millis{d}}

	text, err := json.Marshal(storedNote{t.charge.Budget.Policy, cut(by, longestName), cut(reason, longestText), Millis{d}, useOf(&t.charge), rand.Text()})
	if err != nil {
		return err
	}
	note := string(text)

	before, err := f.notePause(ctx, t, note, d, act)
	if err != nil {
		return err
	}

	if err := f.store.Pause(ctx, t.charge, d); err != nil {
		f.takeBackNote(t, note, before, act)

		// Perhaps only the reply was lost.
		if conn.Transient(err) {
			err = fmt.Errorf("%w; the budget may be closed all the same: look at throttle status", err)
		}
		return storeError(err)
	}
	return f.logDone(ctx, act, "the budget is closed")
}

// logDone logs an act that is in force already. If that fails, the error says what was done, so that the operator does not act again.
func (f *Fleet) logDone(ctx context.Context, act Act, done string) error {
	text, err := act.encode()
	if err == nil {
		_, err = f.conn.Run(ctx, actScript, []string{f.keys.audit}, text, mostActs)
	}
	if err != nil {
		return storeError(fmt.Errorf("%s, and the audit does not say so: %w", done, err))
	}
	return nil
}

// Resume ends an operator's pause. It returns a *[NotPausedError], and changes
// nothing, if no operator's pause closes the budget, as [Fleet.State] has it.
func (f *Fleet) Resume(ctx context.Context, t Target, by, reason string) error {
	state, note, err := f.State(ctx, t)
	if err != nil {
		return err
	}

	// Without a note the budget is open, or an answer or a program keeps it closed. Of an operator's acts only Reset opens that.
	if note == nil {
		return &NotPausedError{t.Name, state.Paused.Duration}
	}
	return f.open(ctx, t, Act{Act: "resume", What: t.Name, By: by, Reason: reason})
}

// Pauses returns the notes of operators' pauses, sorted by budget. It leaves
// out pauses that programs have ended. A pause that a ban outlasts is included.
func (f *Fleet) Pauses(ctx context.Context) ([]Note, error) {
	ctx, stop := withDeadline(ctx)
	defer stop()
	now, err := f.now(ctx)
	if err != nil {
		return nil, err
	}

	noted, err := f.notes(ctx, now)
	if err != nil {
		return nil, err
	}

	s := &Snapshot{At: now}
	for _, n := range noted {
		s.Budgets = append(s.Budgets, s.paused(n, closings{}))
	}
	if err := f.describe(ctx, s.Budgets); err != nil {
		return nil, err
	}

	// Without an answer about a budget its note counts.
	var all []Note
	for i := range s.Budgets {
		if b := &s.Budgets[i]; b.Note != nil && (b.Err != "" || !b.Note.isEnded(b.State.Paused.Duration, now)) {
			all = append(all, *b.Note)
		}
	}

	slices.SortFunc(all, func(a, b Note) int { return strings.Compare(a.Budget, b.Budget) })
	return all, nil
}

// Reset opens a budget whatever closed it, and forgets repeated bans and
// learned ceilings. Starts stay counted.
func (f *Fleet) Reset(ctx context.Context, t Target, by, reason string) error {
	return f.open(ctx, t, Act{Act: "reset", What: t.Name, By: by, Reason: reason})
}

// open opens a budget, removes its note and its closing in the index, and logs the act.
func (f *Fleet) open(ctx context.Context, t Target, act Act) error {
	ctx, stop := withDeadline(ctx)
	defer stop()

	text, err := act.encode()
	if err != nil {
		return err
	}
	last, err := f.lastMoment(ctx)
	if err != nil {
		return err
	}

	// Open before the note goes: a note without a pause is ignored, but a pause without its note could not be resumed.
	if err := f.store.Resume(ctx, t.charge); err != nil {
		return storeError(err)
	}
	_, _, err = f.note(ctx, t, "", 0, "", text, last)
	return err
}

// lastMoment returns the end of ctx, which has a deadline, by the server's clock, in microseconds. A script that comes later does nothing.
func (f *Fleet) lastMoment(ctx context.Context) (int64, error) {
	now, err := f.now(ctx)
	end, _ := ctx.Deadline()
	return now.Add(time.Until(end)).UnixMicro(), err
}

// notePause stores the note of a pause, and returns the note that it replaces, "" if there is none. It returns a *LongerError, and changes
// nothing, if a longer pause is in force. If it is not known whether the note is stored, notePause takes it back, and logs act as failed.
func (f *Fleet) notePause(ctx context.Context, t Target, note string, d time.Duration, act Act) (before string, err error) {
	last, err := f.lastMoment(ctx)
	if err != nil {
		return "", err
	}

	// Each round replaces only the note that the round before has found: an operator may store another in between. The rounds end with ctx.
	for {
		found, isLonger, err := f.note(ctx, t, note, d, before, "", last)
		if err != nil {
			f.takeBackNote(t, note, before, act)
			return "", err
		}
		if found == "" {
			return before, nil
		}

		// All readers ignore an illegible note, so the note of this pause takes its place.
		if n, ok := readNote(field(t.charge.Budget.Key), found); ok && isLonger {
			ended, err := f.hasEnded(ctx, t, &n)
			if err != nil {
				return "", err
			}
			if !ended {
				return "", &LongerError{n}
			}
		}

		before = found
	}
}

// hasEnded asks the store whether a program has ended the pause of a note.
func (f *Fleet) hasEnded(ctx context.Context, t Target, n *Note) (bool, error) {
	now, err := f.now(ctx)
	if err != nil {
		return false, err
	}

	// The pause of a young note may be on its way to the store.
	if now.Sub(n.since) <= patience {
		return false, nil
	}

	st, err := f.store.Status(ctx, t.charge)
	return n.isEnded(st.Paused, now), storeError(err)
}

// note stores the note of a pause for d or, if note is "", removes the budget's note and its closing in the index. It logs act unless act is "".
// A note replaces only the note seen, where "" is none: if the budget has another, nothing is stored, and found is that note and isLonger says
// whether its pause ends later. After the moment last nothing is done, and the call fails.
func (f *Fleet) note(ctx context.Context, t Target, note string, d time.Duration, seen, act string, last int64) (found string, isLonger bool, err error) {
	own := field(t.charge.Budget.Key)
	reply, err := f.conn.Run(ctx, noteScript, []string{f.keys.pauses, f.keys.audit, f.keys.ban + own}, own, note, d.Microseconds(), act, mostActs, seen, last)
	if err != nil {
		return "", false, storeError(err)
	}

	// The script answers 1, or 0 with the note that it found and 1 if the pause of that note ends later.
	if len(reply) == 3 {
		found, isLonger = fmt.Sprint(reply[1]), reply[2] == int64(1)
	}
	return found, isLonger, nil
}

// takeBackNote restores the note before a pause that failed, and logs the failure, unless Redis does not answer within farewell.
func (f *Fleet) takeBackNote(t Target, note, before string, act Act) {
	// The caller's context may have ended.
	ctx, stop := context.WithTimeout(context.Background(), farewell)
	defer stop()
	act.Failed = true
	if text, err := act.encode(); err == nil {
		_, _ = f.conn.Run(ctx, unnoteScript, []string{f.keys.pauses, f.keys.audit}, field(t.charge.Budget.Key), note, before, text, mostActs)
	}
}

//go:embed act.lua
var actSource string

var actScript = wire.FromSource(logSource + actSource)

// UsedError reports why a budget's count cannot be set.
type UsedError struct {
	Budget   string
	Mistakes []string // every mistake
}

// Error implements error.
func (e *UsedError) Error() string { return e.Budget + ": " + strings.Join(e.Mistakes, "; ") }

// UncountedError reports that Redis has no count of the budget.
type UncountedError struct{ Budget string }

// Error implements error.
func (e *UncountedError) Error() string {
	return e.Budget + " has no count in Redis that could be set: no program has started anything under it since its window began, or Redis lost it; a program that starts something makes it"
}

// CheckUsed reports whether used is a valid count for the budget. It returns a
// *[UsedError] if the limit has no window, or if used is negative or exceeds
// the limit.
func (t Target) CheckUsed(used int) error {
	var mistakes []string
	counts := t.Limit.Kind() == store.KindSlidingWindow || t.Limit.Kind() == store.KindFixedWindow
	if !counts {
		mistakes = append(mistakes, fmt.Sprintf("its limit, %v, has no window whose count could be set", t.Limit))
	}

	switch {
	case used < 0:
		mistakes = append(mistakes, fmt.Sprintf("%d is less than nothing", used))
	case counts && used > t.Limit.Capacity():
		mistakes = append(mistakes, fmt.Sprintf("%d is more than its limit, %v; at the limit nothing starts either, so set it to %d, and lower the limit if the upstream counts more", used, t.Limit, t.Limit.Capacity()))
	}

	if mistakes == nil {
		return nil
	}

	return &UsedError{t.Name, mistakes}
}

// SetUsed sets how much of its window a budget has used, and returns the
// previous count. If the count falls, waiting callers start as soon as they
// fit. If it rises, booked starts that no longer fit are booked anew. It
// returns a *[UsedError] as [Target.CheckUsed] does, and an *[UncountedError]
// if Redis has no count of the budget.
func (f *Fleet) SetUsed(ctx context.Context, t Target, used int, by, reason string) (before int, err error) {
	if err := t.CheckUsed(used); err != nil {
		return 0, err
	}

	ctx, stop := withDeadline(ctx)
	defer stop()

	before, counted, err := f.store.SetUsed(ctx, t.charge, used)
	if err != nil {
		return 0, storeError(err)
	}
	if !counted {
		return 0, &UncountedError{t.Name}
	}

	act := Act{Act: "set-used", What: t.Name, By: by, Reason: reason, Used: &Change{before, used}}
	return before, f.logDone(ctx, act, "the count is set")
}

// Change is a count before and after an act.
type Change struct {
	Before int `json:"before"`
	After  int `json:"after"`
}

// mostActs is how many acts are kept.
const mostActs = 1000

// Act is an act of an operator in the audit log. Its texts are safe to print.
type Act struct {
	At     time.Time `json:"at,omitzero"` // by the server's clock
	Act    string    `json:"act"`         // off, on, pause, resume, reset, set-used, push or rollback
	What   string    `json:"what"`        // a budget, the generation of a file, or "throttle"
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	For    Millis    `json:"for_ms,omitzero"`  // of a pause, and of off
	Used   *Change   `json:"used,omitempty"`   // of set-used
	Number int64     `json:"number,omitempty"` // of a file
	Failed bool      `json:"failed,omitempty"` // the act failed and was undone
}

// encode returns the act in its stored form, without its time and with an id, by which scripts know a copy of a call.
func (a *Act) encode() (string, error) {
	own := *a
	own.By, own.Reason = cut(a.By, longestName), cut(a.Reason, longestText)
	text, err := json.Marshal(struct {
		Act
		ID string `json:"id"`
	}{own, rand.Text()})
	return string(text), err
}

// readAct parses a stored act. The audit log may have been edited by hand.
func readAct(text string) (a Act, ok bool) {
	at, text, _ := strings.Cut(text, " ")
	when, right := moment(at)
	if !right || json.Unmarshal([]byte(text), &a) != nil || a.Act == "" {
		return a, false
	}
	a.At = when
	a.Act, a.What = Clean(a.Act, longestName), Clean(a.What, longestName)
	a.By, a.Reason = Clean(a.By, longestName), Clean(a.Reason, longestText)
	return a, true
}

// Audit returns the latest acts, newest first, at most most of them, and how
// many were illegible and are left out. At least one is read.
func (f *Fleet) Audit(ctx context.Context, most int) (all []Act, illegible int, err error) {
	// Redis reads an end of -1 as "the whole list", so read at least one.
	list, err := f.client.LRange(ctx, f.keys.audit, 0, int64(max(1, most))-1).Result()
	if err != nil {
		return nil, 0, f.commandError(err)
	}
	all = []Act{}
	for _, text := range list {
		if a, ok := readAct(text); ok {
			all = append(all, a)
		}
	}
	return all, len(list) - len(all), nil
}

// cut shortens a text to the length that readers accept.
func cut(text string, most int) string {
	if all := []rune(text); len(all) > most {
		return string(all[:most])
	}
	return text
}

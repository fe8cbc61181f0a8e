package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
	"github.com/spf13/cobra"
)

// newStatus returns the command status, which prints the programs of a fleet and their budgets.
func newStatus() *cobra.Command {
	var redis server
	var budgets int
	var closed bool
	var names labels
	c := &cobra.Command{
		Use:   "status [POLICY|BUDGET]",
		Short: "Show the programs of a fleet and their budgets, as they are now",
		Long: `Status first prints how many budgets are closed, how many callers wait, and how many
programs are silent. Then it prints the budgets: closed budgets, then budgets with
waiting callers, then the budgets used most in the last minute. At the end come the
programs that report themselves (see docs/run/fleet.md). Of a policy with many budgets
it prints only a few open ones, unless you name the policy.
Status writes nothing to Redis. A Redis user with read rights is enough.`,
		Example: `  throttle status
  throttle status --closed
  throttle status shop --json`,
		Args: argumentCount(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := names.read(); err != nil {
				return err
			}

			return redis.withFleet(c.Context(), func(ctx context.Context, all *fleet.Fleet) error {
				s, err := all.Snapshot(ctx, budgets)
				if err != nil {
					return err
				}

				names.set(s)
				name := strings.Join(args, "")
				if err := pick(s, name, closed); err != nil {
					return err
				}

				return output(c, s, func() error { return newView(s, name, nil).write(c.OutOrStdout()) })
			})
		},
	}

	redis.addFlags(c)
	c.Flags().IntVar(&budgets, "budgets", fleet.DefaultBudgets, "maximum number of budgets whose state is read, in the order of the output")
	names.addFlag(c.Flags())
	c.Flags().BoolVar(&closed, "closed", false, "print closed budgets only")

	return c
}

// pick removes the budgets from a snapshot that name does not select: name is a policy, or the beginning of a budget's name,
// and "" selects all. If closed is true, pick also removes open budgets. It returns an error if name selects none, unless
// the fleet has no budgets. With a name it sets ClosedLeftOut to 0.
func pick(s *fleet.Snapshot, name string, closed bool) error {
	known := len(s.Budgets)
	s.Budgets = slices.DeleteFunc(s.Budgets, func(b fleet.Budget) bool {
		// The beginning of a budget's name counts only if it has a part of the key.
		isBudget := strings.HasPrefix(b.Name, name) && len(name) > len(b.Policy)+1
		return name != "" && name != b.Policy && !isBudget
	})

	// In a fleet without budgets no name can be wrong.
	isUnknown := name != "" && known > 0 && len(s.Budgets) == 0
	if isUnknown && s.LeftOut > 0 {
		return &exit{exitUsage, fmt.Errorf("%q is not among the %s read, and %d more are left out: pass a larger --budgets", name, stat.Count(known, "budget", "budgets"), s.LeftOut)}
	}
	if isUnknown {
		return &exit{exitUsage, fmt.Errorf("%q is no policy or budget that was used lately, or is closed", name)}
	}

	// ClosedLeftOut is a mere count: how many of these budgets match the name is unknown.
	if name != "" {
		s.ClosedLeftOut = 0
	}
	if closed {
		s.Budgets = slices.DeleteFunc(s.Budgets, func(b fleet.Budget) bool { return b.State.Paused.Duration == 0 })
	}
	return nil
}

// A view is a snapshot as text tables.
type view struct {
	head    []string // about the fleet, verdict first
	nodes   table
	budgets table
	shares  table    // shares with waiting callers
	foot    []string // hints about hidden rows and illegible records

	closed []bool // per row of budgets
}

// mostQuiet is how many quiet budgets of one policy are shown by default.
const mostQuiet = 5

// newView converts a snapshot. filter is what has reduced s, or "". For status, filter is a name as in pick, and all is nil.
// For top, filter is any text, and all is the snapshot before the filter: the verdict and the lines about the switch are
// about all, or about s if all is nil.
func newView(s *fleet.Snapshot, filter string, all *fleet.Snapshot) *view {
	named := all == nil && filter != ""
	if all == nil {
		all = s
	}

	v := &view{
		nodes:   table{titles: []string{"NODE", "HOST", "PID", "UP", "SEEN", "STARTS", "THROTTLE", "POLICIES"}},
		budgets: table{titles: []string{"BUDGET", "STATE", "LIMIT", "NODES", "STARTS", "COST", "DETAILS"}},
		shares:  table{titles: []string{"SHARE", "BUDGET", "WEIGHT", "WAITING", "SERVED"}},
	}

	if len(all.Nodes) > 0 || len(all.Budgets) > 0 {
		v.head = append(v.head, all.Verdict())
	}

	v.head = append(v.head, switchLines(all)...)
	v.head = append(v.head, runbookLines(s.Budgets, named)...)
	if p := s.File; p != nil {
		// The file may have been pushed after s.At: the time is read before the file.
		v.head = append(v.head, fmt.Sprintf("policies: number %d (%s), pushed by %s %s ago%s",
			p.Number, p.Generation, p.By, brief(max(0, s.At.Sub(p.At))), reason(p.Reason)))
	}

	for i := range s.Nodes {
		v.nodes.rows = append(v.nodes.rows, nodeRow(&s.Nodes[i], s.File))
	}

	v.addBudgets(s.Budgets, filter == "")
	switch {
	case len(s.Nodes) > 0:
	case filter != "":
		v.head = append(v.head, fmt.Sprintf("no program has %q", filter))
	default:
		v.head = append(v.head, "no program reports itself: see docs/run/fleet.md")
	}

	if s.LeftOut > 0 {
		v.foot = append(v.foot, fmt.Sprintf("%s not shown: see --budgets", stat.Count(s.LeftOut, "budget is", "budgets are")))
	}
	if s.Illegible > 0 {
		v.foot = append(v.foot, fmt.Sprintf("%s could not be read", stat.Count(s.Illegible, "record", "records")))
	}

	return v
}

// mostRunbooks is how many runbooks are shown. switchLines stops at one line more.
const mostRunbooks = 5

// runbookLines returns a line for each runbook of a closed budget, and mostRunbooks at most. named means that the user
// named the budgets: then open budgets count, too.
func runbookLines(budgets []fleet.Budget, named bool) (lines []string) {
	for i := range budgets {
		b := &budgets[i]
		if b.Runbook == "" || !named && !b.Closed() {
			continue
		}
		line := fmt.Sprintf("runbook of %s: %s", b.Policy, b.Runbook)

		// Budgets of one policy share a runbook: name it once.
		if !slices.Contains(lines, line) && len(lines) < mostRunbooks {
			lines = append(lines, line)
		}
	}
	return lines
}

// addBudgets adds a row for each budget, and for each of its shares. If few is true, it adds only the first mostQuiet of a
// policy's quiet budgets, and one row that counts the rest, unless the rest is one budget.
func (v *view) addBudgets(all []fleet.Budget, few bool) {
	quiet := make(map[string][]*fleet.Budget) // by policy
	for i := range all {
		if b := &all[i]; isQuiet(b) {
			quiet[b.Policy] = append(quiet[b.Policy], b)
		}
	}

	seen := make(map[string]int) // quiet budgets so far, by policy
	for i := range all {
		b := &all[i]
		ofPolicy := quiet[b.Policy]

		// A single remaining budget takes no more room than the row that would count it.
		if few && isQuiet(b) && len(ofPolicy) > mostQuiet+1 {
			seen[b.Policy]++

			// The row for the rest stands where the first hidden budget would stand.
			if seen[b.Policy] == mostQuiet+1 {
				v.addRow(restRow(b.Policy, ofPolicy[mostQuiet:]), false)
			}
			if seen[b.Policy] > mostQuiet {
				continue
			}
		}

		v.addRow(budgetRow(b), b.State.Paused.Duration > 0)
		for _, share := range b.State.Shares {
			v.shares.rows = append(v.shares.rows, shareRow(b, share))
		}
	}
}

// addRow adds a row to the table of budgets. closed says that its budget is closed.
func (v *view) addRow(row []string, closed bool) {
	v.budgets.rows, v.closed = append(v.budgets.rows, row), append(v.closed, closed)
}

// isQuiet reports whether a budget is open without waiting callers, in a known state, and without an operator's note.
func isQuiet(b *fleet.Budget) bool {
	return b.State.Paused.Duration == 0 && b.Waiting() == 0 && b.Err == "" && b.Note == nil
}

// restRow returns a row that summarizes several budgets of a policy.
func restRow(policy string, rest []*fleet.Budget) []string {
	starts, cost := 0.0, 0.0
	for _, b := range rest {
		starts, cost = starts+b.Starts, cost+costOf(b)
	}
	return []string{fmt.Sprintf("%s: %d others", policy, len(rest)), "open", strings.Join(rest[0].Limits, " or "), "", rate(starts), rate(cost), "name the policy to see them"}
}

// reason formats an operator's reason as the end of a sentence, or returns "".
func reason(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf(": %q", text)
}

// nodeName returns the name of a node in tables: the program, and the beginning of the id.
func nodeName(program, id string) string { return program + "/" + id[:min(len(id), 6)] }

// nodeRow returns the cells of a node in the table of nodes. pushed is the pushed file, or nil.
func nodeRow(n *fleet.Node, pushed *fleet.Pushed) []string {
	seen := brief(n.Ago.Duration) + " ago"
	if n.Silent {
		seen = "silent for " + brief(n.Ago.Duration)
	} else if n.Switch.Off {
		seen += ", off"
	}
	return []string{nodeName(n.Program, n.ID), n.Host, fmt.Sprint(n.PID), brief(n.Up.Round(time.Second)), seen, rate(n.Starts), n.Library, fileWords(&n.File, pushed)}
}

// fileWords says which file a node has in force, and why a later file that the node has seen is not. pushed is the pushed
// file, or nil.
func fileWords(f *fleet.FileState, pushed *fleet.Pushed) string {
	if f.InForce == "" {
		return "its own"
	}

	name := func(generation string) string {
		if pushed != nil && generation == pushed.Generation {
			return fmt.Sprintf("number %d", pushed.Number)
		}
		return generation
	}

	text := name(f.InForce)
	if !f.Pushed {
		text += " of a file"
	}

	switch {
	// The last read failed, so Seen is as before.
	case f.Err != "" && f.Seen == f.InForce:
		text += "; the next cannot be read: " + f.Err
	case f.Err != "":
		text += fmt.Sprintf("; %s is refused: %s", name(f.Seen), f.Err)
	case f.Seen != f.InForce && len(f.Loosens) > 0:
		text += fmt.Sprintf("; %s in %s, because it loosens: %s", name(f.Seen), brief(f.Grace.Duration), strings.Join(f.Loosens, ", "))
	case f.Seen != f.InForce:
		text += "; has seen " + name(f.Seen)
	}

	return text
}

// budgetName returns the name of a budget in tables, with its label, and with the node that owns it, if there are any.
func budgetName(b *fleet.Budget) string {
	name := b.Name
	if b.Label != "" {
		name += " (" + b.Label + ")"
	}
	if b.Node != "" {
		name += " of " + b.Node[:min(len(b.Node), 6)]
	}
	return name
}

// budgetRow returns the cells of a budget in the table of budgets.
func budgetRow(b *fleet.Budget) []string {
	return []string{
		budgetName(b), shortState(b), strings.Join(b.Limits, " or "), fmt.Sprint(b.Nodes), rate(b.Starts), rate(costOf(b)), strings.Join(budgetWords(b), ", "),
	}
}

// shortState summarizes the state of a budget, such as "closed 5s, 3 wait", "not known" or "open".
func shortState(b *fleet.Budget) string {
	var words []string
	switch {
	case b.State.Paused.Duration > 0:
		words = append(words, "closed "+brief(b.State.Paused.Duration))
	case b.Err != "":
		words = append(words, "not known")
	}

	if n := b.Waiting(); n > 0 {
		words = append(words, fmt.Sprintf("%d wait", n))
	}
	if words == nil {
		return "open"
	}

	return strings.Join(words, ", ")
}

// shareRow returns the cells of a share with waiting callers, or of several shares that have one row together.
func shareRow(b *fleet.Budget, s fleet.Share) []string {
	name, weight, served := s.Name, fmt.Sprint(s.Weight), fmt.Sprint(s.Served)
	if s.Shares > 0 {
		name, weight = fmt.Sprintf("%s (%d)", name, s.Shares), "-"
	}
	if s.Served < 0 {
		served = "not known"
	}
	return []string{name, budgetName(b), weight, fmt.Sprint(s.Waiting), served}
}

// costOf returns the cost of starts per second. Recordings of earlier versions have no cost, so their starts
// stand for it.
func costOf(b *fleet.Budget) float64 { return cmp.Or(b.Cost, b.Starts) }

// budgetWords describes a budget: the operator's note, the reports about the budget, its state or why that is unknown, and
// whether its policy only counts.
func budgetWords(b *fleet.Budget) []string {
	words := []string{b.Err}
	if b.Err == "" {
		words = stateWords(b.Limit(), b.State)
	}
	words = append(reportWords(b), words...)
	if b.Note != nil {
		words = append(noteWords(b.Note, b.State.Paused.Duration), words...) // the first words stay visible on narrow terminals
	}
	if b.Shadow {
		words = append(words, "only counts")
	}
	return words
}

// reportWords returns what the programs have reported of a budget: why and since when it is closed, which programs wait, and
// how many callers have left or were refused lately.
func reportWords(b *fleet.Budget) (words []string) {
	switch {
	case b.By == fleet.ByAnswer && b.Met != "":
		words = append(words, "by an answer to "+b.Met)
	case b.By == fleet.ByAnswer:
		words = append(words, "by an answer")
	case b.By == fleet.ByProgram:
		words = append(words, "by "+cmp.Or(b.Met, "a program"))
	}

	if !b.Since.IsZero() {
		words = append(words, "since "+b.Since.UTC().Format("15:04:05"))
	}

	// Name the programs that wait: an operator knows then whom to tell.
	var waits []string
	for _, p := range b.Programs {
		if p.Waiting > 0 {
			waits = append(waits, fmt.Sprintf("%s %d", cmp.Or(p.Program, "others"), p.Waiting)) // "others": beyond fleet.MostPrograms
		}
	}

	if len(waits) > 0 {
		words = append(words, "waiting: "+strings.Join(waits, ", ")+"; the oldest for "+brief(b.Oldest.Duration))
	}
	if b.Left+b.Refused > 0 {
		words = append(words, fmt.Sprintf("in the last minute %d left, %d refused", b.Left, b.Refused))
	}

	return words
}

// A state is the present state of a budget, for JSON. Times are in milliseconds.
type state struct {
	Used     int     `json:"used"`
	Booked   int     `json:"booked"`
	Waiting  int     `json:"waiting"` // cost of starts booked for later, and of callers in line
	Callers  int     `json:"callers"` // in line
	Wait     int64   `json:"wait_ms"` // -1 if no start can be planned
	Paused   int64   `json:"paused_ms"`
	Repeated int     `json:"repeated,omitempty"`
	Ceiling  float64 `json:"ceiling,omitempty"`
	Told     string  `json:"told,omitempty"`
	ToldAgo  int64   `json:"told_ago_ms,omitempty"`

	status throttle.Status // the same, for words
}

// words describes status in phrases, such as "40 of 100 used" and "3 wait". The last one says when a new request could start.
func (s *state) words() (words []string) {
	st := s.status
	switch n := st.Limit.Capacity(); {
	case st.Limit.Kind() == store.KindUnlimited:
	case st.Told.N() > 0: // the limit of KindTold that an answer told
		words = append(words, fmt.Sprintf("%d of %d used", st.Used, st.Told.N()), fmt.Sprintf("told %v %s ago", st.Told, brief(st.ToldAgo)))
	case st.Limit.Kind() == store.KindTold:
		words = append(words, "no limit told yet")
	case st.Limit.Kind() == store.KindConcurrency:
		words = append(words, fmt.Sprintf("%d of %d in flight", st.Used, n))
	default:
		words = append(words, fmt.Sprintf("%d of %d used", st.Used, n))
	}

	if st.Booked > 0 {
		words = append(words, fmt.Sprintf("%d booked", st.Booked))
	}

	// What is left are the callers in line.
	cost := st.Waiting - st.Booked
	if callers := cmp.Or(st.Callers, cost); callers > 0 { // earlier versions do not count callers
		text := fmt.Sprintf("%d wait", callers)
		if cost != callers {
			text += fmt.Sprintf(" at a cost of %d", cost)
		}
		words = append(words, text)
	}

	if st.Paused > 0 {
		text := "closed for " + brief(st.Paused)
		if st.Repeated > 0 {
			text += fmt.Sprintf(" (met again %s)", stat.Count(st.Repeated, "time", "times"))
		}
		words = append(words, text)
	}

	if st.Ceiling > 0 {
		words = append(words, fmt.Sprintf("learned ceiling %.1f", st.Ceiling))
	}

	switch {
	case st.Wait == throttle.Never:
		words = append(words, "no start can be planned")
	case st.Wait > 0:
		words = append(words, "next start in "+brief(st.Wait))
	case waitsForSlot(&st):
		words = append(words, "next start when a request ends")
	default:
		words = append(words, "room now")
	}

	return words
}

// waitsForSlot reports whether a new request would wait for a slot. Nobody knows for how long, so st.Wait is without that time.
func waitsForSlot(st *throttle.Status) bool {
	return st.Limit.Kind() == store.KindConcurrency && (st.Used >= st.Limit.Capacity() || st.Waiting > 0)
}

// noteWords formats the note of a pause, and its remaining time.
func noteWords(n *fleet.Note, left time.Duration) []string {
	return []string{fmt.Sprintf("%v (%s left)", store.PauseNote{By: n.By, Reason: n.Reason}, brief(left))}
}

// stateWords describes the state of a budget of limit l in phrases, as state.words does.
func stateWords(l throttle.Limit, s fleet.State) []string {
	st := throttle.Status{
		Limit: l, Used: s.Used, Booked: s.Booked, Waiting: s.Waiting, Callers: s.Callers, Wait: s.Wait.Duration,
		Paused: s.Paused.Duration, Repeated: s.Repeated, Ceiling: s.Ceiling, ToldAgo: s.ToldAgo.Duration,
	}

	// Told is "" if no limit is told.
	if told, err := throttle.ParseLimit(s.Told); err == nil {
		st.Told = told
	}

	// A snapshot has a negative wait for Never.
	if st.Wait < 0 {
		st.Wait = throttle.Never
	}
	return (&state{status: st}).words()
}

// rate formats a rate of starts.
func rate(r float64) string {
	switch {
	case r == 0:
		return "-"
	case r < 10:
		return fmt.Sprintf("%.1f/s", r)
	}
	return fmt.Sprintf("%.0f/s", r)
}

// write writes the head, the tables that have rows, and the foot as plain lines.
func (v *view) write(out io.Writer) error {
	var lines []string
	for _, line := range v.head {
		lines = append(lines, fleet.Clean(line, 1000))
	}

	for _, t := range []table{v.budgets, v.shares, v.nodes} {
		if len(t.rows) == 0 {
			continue
		}
		if len(lines) > 0 {
			lines = append(lines, "")
		}

		lines = append(lines, t.lines()...)
	}

	_, err := io.WriteString(out, strings.Join(append(lines, v.foot...), "\n")+"\n")
	return err
}

// sorts are the orders of budgets.
var sorts = []string{"urgent", "starts", "wait", "waiting", "closed", "name"}

// sortAndFilter sorts the budgets of a snapshot in an order of sorts, and removes budgets and nodes whose row does not contain
// filter, in any case of letters.
func sortAndFilter(s *fleet.Snapshot, by, filter string) {
	filter = strings.ToLower(filter)
	lacks := func(row []string) bool { return !strings.Contains(strings.ToLower(strings.Join(row, " ")), filter) }

	// Filter copies of the lists: the caller still needs the whole lists.
	s.Budgets = slices.DeleteFunc(append([]fleet.Budget{}, s.Budgets...), func(b fleet.Budget) bool { return lacks(budgetRow(&b)) })
	s.Nodes = slices.DeleteFunc(append([]fleet.Node{}, s.Nodes...), func(n fleet.Node) bool { return lacks(nodeRow(&n, s.File)) })
	slices.SortStableFunc(s.Budgets, func(a, b fleet.Budget) int {
		order := map[string]int{
			"urgent":  cmp.Or(-compareBool(a.Closed(), b.Closed()), cmp.Compare(b.Waiting(), a.Waiting()), cmp.Compare(b.Starts, a.Starts)),
			"starts":  cmp.Compare(b.Starts, a.Starts),
			"wait":    cmp.Compare(waitOf(&b), waitOf(&a)),
			"waiting": cmp.Compare(b.Waiting(), a.Waiting()),
			"closed":  cmp.Compare(b.State.Paused.Duration, a.State.Paused.Duration),
		}[by]

		// The names decide between equals, and in the order "name", which is not in the map.
		return cmp.Or(order, strings.Compare(a.Name, b.Name), strings.Compare(a.Node, b.Node))
	})
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// waitOf returns how long a new request would wait, or the longest duration if no start can be planned.
func waitOf(b *fleet.Budget) time.Duration {
	if b.State.Wait.Duration < 0 {
		return 1<<63 - 1
	}
	return b.State.Wait.Duration
}

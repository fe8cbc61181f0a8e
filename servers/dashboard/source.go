package dashboard

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/store"
)

// Source provides the data of a page: [Fleet] or a [Process]. Several pages can
// share one Source. It is safe for concurrent use.
type Source interface {
	// reader returns a reader for one page, of at most budgets budgets. State between two readings belongs to
	// the reader.
	reader(budgets int) reader

	// pause closes a budget for d. It returns a *fleet.LongerError if the pause of an operator lasts longer already.
	pause(ctx context.Context, budget string, d time.Duration, by, reason string) error

	// resume ends an operator's pause of a budget. Without such a pause it returns a *fleet.NotPausedError.
	resume(ctx context.Context, budget, by, reason string) error
}

// A reader reads a source for one page. One goroutine calls it at a time.
type reader interface {
	// read returns the present state: closed budgets first, then budgets with waiting requests, then the
	// busiest. fresh asks for uncached data, because somebody has acted.
	read(ctx context.Context, fresh bool) (*reading, error)
}

// A labelled adds labels to the budgets of a reader.
type labelled struct {
	reader
	label func(policy, budget string) string
}

// read implements [reader].
func (l *labelled) read(ctx context.Context, fresh bool) (*reading, error) {
	r, err := l.reader.read(ctx, fresh)
	if err != nil {
		return r, err
	}
	for i := range r.Budgets {
		b := &r.Budgets[i]
		b.Label = fleet.Clean(l.label(b.Policy, b.Name), longestName)
	}
	return r, nil
}

// A reading is a source at one moment. All its texts are safe to show.
type reading struct {
	At      time.Time // by the store's clock
	Kind    string    // kindFleet or kindProcess
	File    *file     // nil if no policy file is pushed
	Nodes   []node
	Budgets []budget
	Acts    []act // newest first

	// Closed are times in which budgets were closed, possibly between readings,
	// by budget id, oldest first.
	Closed map[string][]band

	BudgetsLeftOut int // at least so many
	ClosedLeftOut  int // closed budgets among BudgetsLeftOut
	NodesLeftOut   int
	Illegible      int // records that could not be parsed
}

// Kinds of sources.
const (
	kindFleet   = "fleet"
	kindProcess = "process"
)

// A file is the policy file that is pushed to the fleet.
type file struct {
	Number     int64  `json:"number"`
	Generation string `json:"generation"`
	By         string `json:"by"`
	Reason     string `json:"reason,omitempty"`
	At         int64  `json:"at"` // in Unix milliseconds, like all moments
}

// A node is a program.
type node struct {
	ID      string  `json:"id"`
	Program string  `json:"program"`
	Host    string  `json:"host"`
	PID     int     `json:"pid"`
	Library string  `json:"library,omitempty"`
	Since   int64   `json:"since"` // when it started
	Heard   int64   `json:"heard"` // its last report, 0 for this program itself
	Silent  bool    `json:"silent,omitempty"`
	Off     string  `json:"off,omitempty"` // who turned throttle off in the program, and why; "" while it is on
	Budgets int     `json:"budgets"`
	Starts  float64 `json:"starts"` // per second

	Follows bool   `json:"follows,omitempty"` // it follows what is pushed
	InForce string `json:"inForce,omitempty"` // generation in force, or the number of the pushed file
	Seen    string `json:"seen,omitempty"`    // generation read last, if different
	Waits   int64  `json:"waits,omitempty"`   // end of the grace time before a looser file comes into force
	Refused string `json:"refused,omitempty"` // why the generation in Seen is not in force, or why the text could not be read
}

// A budget is the present state of one budget, as JSON for the page.
type budget struct {
	ID       string   `json:"-"`
	Name     string   `json:"name"` // the policy and the beginning of the hashed key
	Policy   string   `json:"policy"`
	Key      string   `json:"key"`             // the beginning of the hashed key
	Label    string   `json:"label,omitempty"` // from Config.Label
	Upstream string   `json:"group"`           // hosts of the policy, as in its group
	Limits   []string `json:"limits"`
	Told     int64    `json:"told,omitempty"` // when an answer told the limit last, to the second; 0 if none did
	Kind     string   `json:"kind"`           // of limit: see kindOf
	Capacity int      `json:"capacity"`       // 0 for a limit without a number
	Shadow   bool     `json:"shadow,omitempty"`
	Node     string   `json:"node,omitempty"`  // owner of a budget per node, "" for the fleet
	Nodes    int      `json:"nodes,omitempty"` // number of nodes that used it lately
	Starts   float64  `json:"starts"`          // per second; -1 if unknown
	Cost     float64  `json:"cost"`            // per second; -1 if unknown

	Used       int     `json:"used"`               // cost of starts that count, and of requests in flight
	Booked     int     `json:"booked,omitempty"`   // cost of starts booked for later
	Callers    int     `json:"waiting,omitempty"`  // waiting requests, whatever they cost
	Wait       int64   `json:"wait"`               // until the next free start, in milliseconds; -1 if no start can be planned
	Until      int64   `json:"until,omitempty"`    // when it opens, 0 if open
	Since      int64   `json:"-"`                  // when it closed, 0 if unknown
	SinceLeast bool    `json:"-"`                  // it closed at Since or earlier
	Closer     string  `json:"closer,omitempty"`   // what closed it, such as fleet.ByAnswer, "" if unknown or open
	Met        string  `json:"met,omitempty"`      // program that was refused, "" if unknown
	Repeated   int     `json:"repeated,omitempty"` // refusals in a row, each right after the penalty before
	Ceiling    float64 `json:"ceiling,omitempty"`  // learned part of the limit, 0 if the limit alone counts
	By         string  `json:"by,omitempty"`       // operator who paused it
	Reason     string  `json:"reason,omitempty"`
	Err        string  `json:"error,omitempty"` // why its state is unknown

	Programs []use  `json:"programs,omitempty"` // programs that use it, most waiting requests first
	Oldest   int64  `json:"oldest,omitempty"`   // since when the oldest request waits, 0 if none waits, or unknown
	Left     int    `json:"left,omitempty"`     // requests that gave up waiting in the last minute
	Refused  int    `json:"refused,omitempty"`  // requests refused in the last minute
	Runbook  string `json:"runbook,omitempty"`  // URL of the runbook

	Shares []fleet.Share `json:"shares,omitempty"` // shares with waiting callers

	Waits    *waits  `json:"waits,omitempty"`    // nil if the source does not know
	Shadowed *shadow `json:"shadowed,omitempty"` // for a shadow policy, nil if the source does not know

	Bands []band  `json:"bands,omitempty"` // when it was closed lately
	Why   *phrase `json:"why,omitempty"`   // why requests wait, or nil
}

// A use is the use of a budget by all programs of one name.
type use struct {
	Program string  `json:"program"` // "" for the remaining programs together
	Nodes   int     `json:"nodes"`   // number of programs with the name
	Starts  float64 `json:"starts"`  // per second
	Waiting int     `json:"waiting,omitempty"`
	Oldest  int64   `json:"oldest,omitempty"` // since when the oldest request waits, 0 if none waits
	Left    int     `json:"left,omitempty"`
	Refused int     `json:"refused,omitempty"`
}

// waits are waiting times in the last minute, of requests that the policy held last.
type waits struct {
	Count int   `json:"count"`
	Half  int64 `json:"p50"` // milliseconds
	Most  int64 `json:"p99"`
}

// A shadow is the effect that a shadow policy would have had in the last minute.
type shadow struct {
	Count int   `json:"count"` // requests that it would have held
	Most  int64 `json:"p99"`   // additional wait, in milliseconds
}

// A band is a time in which a budget was closed.
type band struct {
	From   int64  `json:"from"`
	Before bool   `json:"before,omitempty"` // it closed at From or earlier
	Until  int64  `json:"until"`
	Closer string `json:"closer,omitempty"` // what closed it, as Closer of a budget
	By     string `json:"by,omitempty"`     // the operator, if one closed it
	Reason string `json:"reason,omitempty"`
}

// An act is an act of an operator.
type act struct {
	At     int64  `json:"at"`
	Act    string `json:"act"`
	What   string `json:"what"`
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	For    int64  `json:"for,omitempty"`
	Failed bool   `json:"failed,omitempty"`
}

// A phrase is a sentence in each language of the page.
type phrase struct {
	English string `json:"en"`
	Chinese string `json:"zh"`
}

// idOf returns the id of a budget on the page.
func idOf(b throttle.Budget) string { return b.String() }

// budgetOf converts a charge, and the status that the store gave for it at now, for the page of one process. averageCost is the
// average cost of a start. Starts, Cost and what events tell are left to the caller.
func budgetOf(c *store.Charge, st throttle.Status, averageCost float64, now time.Time) budget {
	kind, capacity := kindOf(keeps(c.Limit, st.Told))
	name := c.Budget.String() // the policy, "/", the beginning of the hashed key
	_, key, _ := cutLast(name, "/")
	b := budget{
		ID:       fleet.Clean(idOf(c.Budget), longestName),
		Name:     fleet.Clean(name, longestName),
		Policy:   fleet.Clean(c.Budget.Policy, longestName),
		Key:      key,
		Upstream: fleet.Clean(c.Budget.Group, longestName),
		Limits:   limitsOf(c.Limit, st.Told),
		Kind:     kind, Capacity: capacity, Shadow: c.Shadow,
		Nodes: 1, // this process

		Used: st.Used, Booked: st.Booked, Repeated: st.Repeated, Ceiling: st.Ceiling,
		Callers: requestsOf(st.Callers, st.Booked, st.Waiting, averageCost),
		Wait:    st.Wait.Milliseconds(),
		Shares:  fleet.StateOf(st).Shares,
	}

	// The page shows -1 as "no start can be planned". Never in milliseconds would be a wait of 292 years.
	if st.Wait == throttle.Never {
		b.Wait = -1
	} else if st.Wait > 0 {
		// A wait below a millisecond must not look like no wait.
		b.Wait = max(1, b.Wait)
	}

	if st.Paused > 0 {
		b.Until = now.Add(st.Paused).UnixMilli()
	}

	if st.Told.N() > 0 {
		b.Told = toldAt(now, st.ToldAgo)
	}

	return b
}

// toldAt returns when an answer told a limit, in Unix milliseconds. The moment is rounded to a second, so that it is the same
// in each reading until an answer tells the limit again.
func toldAt(now time.Time, ago time.Duration) int64 {
	return now.Add(-ago).Round(time.Second).UnixMilli()
}

// keeps returns the limit that a budget keeps: the limit that the upstream told, if there is one.
func keeps(l, told throttle.Limit) throttle.Limit {
	if told.N() > 0 {
		return told
	}
	return l
}

// limitsOf lists a limit, and behind it the limit that the upstream told.
func limitsOf(l, told throttle.Limit) []string {
	if told.N() > 0 {
		return []string{l.String(), told.String()}
	}
	return []string{l.String()}
}

// requestsOf estimates how many requests wait, in line or for a start that is booked for later. inLine is the number of
// requests in line. It is 0 if nobody is in line, or if the store knows only their cost. booked is the cost of the requests
// with a booked start, waiting the cost of all requests that wait, and averageCost the average cost of a start.
func requestsOf(inLine, booked, waiting int, averageCost float64) int {
	uncounted := booked // cost of the requests that inLine does not count
	if inLine == 0 {
		uncounted = waiting // equal to booked if nobody is in line
	}
	if uncounted <= 0 {
		return inLine
	}

	// A booking costs 1 or more, though the average may be less after settlements. A cost above 0 is at least one request.
	return inLine + max(1, int(math.Round(float64(uncounted)/max(1, averageCost))))
}

// average returns the average cost of a start, or 1 without starts. It may be below 1: see requestsOf.
func average(cost, starts float64) float64 {
	if starts <= 0 {
		return 1
	}
	return cost / starts
}

// cutLast is like strings.Cut, at the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(text, separator); i >= 0 {
		return text[:i], text[i+len(separator):], true
	}
	return text, "", false
}

// sortBudgets sorts closed budgets first, then budgets with waiting requests, then the others: of each class the busiest first.
func sortBudgets(all []budget) {
	class := func(b *budget) int {
		switch {
		case b.Until > 0:
			return 2
		case b.Callers > 0:
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b budget) int {
		return cmp.Or(class(&b)-class(&a), cmp.Compare(b.Starts, a.Starts), cmp.Compare(b.Used, a.Used), strings.Compare(a.ID, b.ID))
	})
}

// Kinds of limits that the page distinguishes.
const (
	windowed  = "window" // counts starts in a window
	spaced    = "spaced" // keeps starts apart
	bucketed  = "bucket" // holds tokens
	inFlight  = "flight" // counts work in flight
	unlimited = "unlimited"
)

// kindOf returns the kind of a limit and its capacity, 0 for a limit without a number.
func kindOf(l throttle.Limit) (kind string, capacity int) {
	switch l.Kind() {
	case store.KindSlidingWindow, store.KindFixedWindow:
		return windowed, l.Capacity()
	case store.KindLeakyBucket:
		return spaced, 1 // one start counts at a time
	case store.KindTokenBucket:
		return bucketed, l.Capacity()
	case store.KindConcurrency:
		return inFlight, l.Capacity()
	}
	return unlimited, 0
}

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

// A Source knows what a page shows: [Fleet] or a [Process]. One Source can be shown on
// several pages. All its methods are safe for concurrent use.
type Source interface {
	// reader returns what reads the source for one page: at most so many budgets. What
	// a page remembers from one reading to the next belongs to its reader.
	reader(budgets int) reader

	// pause closes a budget for d.
	pause(ctx context.Context, budget string, d time.Duration, by, reason string) error

	// resume ends an operator's pause of a budget.
	resume(ctx context.Context, budget, by, reason string) error
}

// A reader reads a source for one page. One goroutine calls it at a time.
type reader interface {
	// read returns what there is now: budgets that are closed first, then those that
	// hold requests, then those used most. fresh says that somebody has acted, so what
	// is kept for a while must be read anew.
	read(ctx context.Context, fresh bool) (*reading, error)
}

// A labelled reader labels the budgets of another one.
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

// A reading is what a source is like at one moment. All its texts are fit to be shown.
type reading struct {
	At      time.Time // by the clock of the store
	Kind    string    // what the source is: kindFleet, kindProcess
	File    *file     // nil: no file of policies is pushed
	Nodes   []node
	Budgets []budget
	Acts    []act // the newest first

	// Closed are times in which budgets were closed that no reading may have met, by the id of
	// the budget, the oldest first.
	Closed map[string][]band

	BudgetsLeftOut int // at least
	NodesLeftOut   int
	Illegible      int // records that could not be read
}

// The kinds of sources.
const (
	kindFleet   = "fleet"
	kindProcess = "process"
)

// A file is the file of policies that is pushed to the fleet.
type file struct {
	Number     int64  `json:"number"`
	Generation string `json:"generation"`
	By         string `json:"by"`
	Reason     string `json:"reason,omitempty"`
	At         int64  `json:"at"` // in milliseconds since 1970, as all moments
}

// A node is a program.
type node struct {
	ID      string  `json:"id"`
	Program string  `json:"program"`
	Host    string  `json:"host"`
	PID     int     `json:"pid"`
	Library string  `json:"library,omitempty"`
	Since   int64   `json:"since"` // when it began
	Heard   int64   `json:"heard"` // its last report; 0: it is this program
	Silent  bool    `json:"silent,omitempty"`
	Budgets int     `json:"budgets"`
	Starts  float64 `json:"starts"` // a second

	Follows bool   `json:"follows,omitempty"` // a file of policies
	InForce string `json:"inForce,omitempty"` // the generation in force; or the number that is pushed
	Seen    string `json:"seen,omitempty"`    // the generation that it has read last, if that is another
	Waits   int64  `json:"waits,omitempty"`   // until when a file that loosens waits
	Refused string `json:"refused,omitempty"` // why what it has seen is not in force
}

// A budget is one budget as it is now. It is what a page gets of it, as JSON.
type budget struct {
	ID       string   `json:"-"`
	Name     string   `json:"name"` // the policy and the beginning of its hashed key
	Policy   string   `json:"policy"`
	Key      string   `json:"key"`             // the beginning of its hashed key
	Label    string   `json:"label,omitempty"` // what Config.Label calls it
	Upstream string   `json:"group"`           // the hosts of the policy, as its group names them
	Limits   []string `json:"limits"`
	Kind     string   `json:"kind"`     // of limit: see kindOf
	Capacity int      `json:"capacity"` // 0: no number
	Shadow   bool     `json:"shadow,omitempty"`
	Node     string   `json:"node,omitempty"` // whose own it is; "": the fleet's
	Nodes    int      `json:"nodes,omitempty"`
	Starts   float64  `json:"starts"` // a second; -1: not known yet
	Cost     float64  `json:"cost"`   // a second; -1: not known yet

	Used       int     `json:"used"`
	Booked     int     `json:"booked,omitempty"`
	Callers    int     `json:"waiting,omitempty"` // how many requests wait, whatever they cost
	Wait       int64   `json:"wait"`              // until the next free start, in milliseconds; -1: none can be planned
	Until      int64   `json:"until,omitempty"`   // when it opens; 0: it is open
	Since      int64   `json:"-"`                 // when it closed; 0: unknown
	SinceLeast bool    `json:"-"`                 // it was closed at Since already, and nobody knows since when
	Closer     string  `json:"closer,omitempty"`  // what closed it, as fleet.ByAnswer; "": unknown, or it is open
	Met        string  `json:"met,omitempty"`     // the program that was refused; "": unknown
	Repeated   int     `json:"repeated,omitempty"`
	Ceiling    float64 `json:"ceiling,omitempty"`
	By         string  `json:"by,omitempty"` // who paused it
	Reason     string  `json:"reason,omitempty"`
	Err        string  `json:"error,omitempty"` // why its state is not known

	Programs []use  `json:"programs,omitempty"` // those that use it, the ones with most waiting requests first
	Oldest   int64  `json:"oldest,omitempty"`   // since when the oldest request waits; 0: none waits, or it is not known
	Left     int    `json:"left,omitempty"`     // requests that gave up waiting in the last minute
	Refused  int    `json:"refused,omitempty"`  // requests that were refused in the last minute
	Runbook  string `json:"runbook,omitempty"`  // the address of the page that says what to do

	Shares []fleet.Share `json:"shares,omitempty"` // whose callers wait

	Waits    *waits  `json:"waits,omitempty"`    // nil: the source does not know
	Shadowed *shadow `json:"shadowed,omitempty"` // of a policy that only counts; nil: the source does not know

	Bands []band  `json:"bands,omitempty"` // when it was closed lately
	Why   *phrase `json:"why,omitempty"`   // why requests wait for it; nil: nothing holds them
}

// A use is what programs of one name do with a budget.
type use struct {
	Program string  `json:"program"` // "" stands for all that are not named
	Nodes   int     `json:"nodes"`   // how many programs have the name
	Starts  float64 `json:"starts"`  // a second
	Waiting int     `json:"waiting,omitempty"`
	Oldest  int64   `json:"oldest,omitempty"` // since when the oldest request waits; 0: none waits
	Left    int     `json:"left,omitempty"`
	Refused int     `json:"refused,omitempty"`
}

// waits are how long requests were held that the policy held last, in the last minute.
type waits struct {
	Count int   `json:"count"`
	Half  int64 `json:"p50"` // milliseconds
	Most  int64 `json:"p99"`
}

// A shadow is what a policy would have done to requests in the last minute.
type shadow struct {
	Count int   `json:"count"` // requests that it would have held
	Most  int64 `json:"p99"`   // how much longer, in milliseconds
}

// A band is a time in which a budget was closed.
type band struct {
	From   int64  `json:"from"`
	Before bool   `json:"before,omitempty"` // it was closed at From already, and nobody knows since when
	Until  int64  `json:"until"`
	Closer string `json:"closer,omitempty"` // what closed it, as Closer of a budget
	By     string `json:"by,omitempty"`     // the operator, if one closed it
	Reason string `json:"reason,omitempty"`
}

// An act is what an operator did.
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

// budgetOf returns a budget of a charge as a store describes it. averageCost is what a start cost on the average.
func budgetOf(c *store.Charge, st throttle.Status, averageCost float64, now time.Time) budget {
	kind, capacity := kindOf(c.Limit)
	_, key, _ := cutLast(c.Budget.String(), "/")
	b := budget{
		ID: fleet.Clean(idOf(c.Budget), longestName), Name: fleet.Clean(c.Budget.String(), longestName), Policy: fleet.Clean(c.Budget.Policy, longestName),
		Key: key, Upstream: fleet.Clean(c.Budget.Group, longestName), Limits: []string{c.Limit.String()},
		Kind: kind, Capacity: capacity, Shadow: c.Shadow, Nodes: 1,
		Used: st.Used, Booked: st.Booked, Callers: requestsOf(st.Callers, st.Booked, st.Waiting, averageCost), Wait: st.Wait.Milliseconds(), Repeated: st.Repeated, Ceiling: st.Ceiling, Shares: fleet.StateOf(st).Shares,
	}

	if st.Wait == throttle.Never {
		b.Wait = -1
	} else if st.Wait > 0 {
		b.Wait = max(1, b.Wait)
	}

	if st.Paused > 0 {
		b.Until = now.Add(st.Paused).UnixMilli()
	}

	return b
}

// requestsOf returns how many requests wait: those in line, and those whose start is booked for later. Stores say of the
// latter only what they cost, and some say no more of the former, so the number is an estimate where starts do not all cost the
// same. waiting is what all of them cost.
func requestsOf(inLine, booked, waiting int, averageCost float64) int {
	unknown := booked
	if inLine == 0 {
		unknown = waiting
	}
	if unknown <= 0 {
		return inLine
	}
	return inLine + max(1, int(math.Round(float64(unknown)/max(1, averageCost))))
}

// average returns what a start cost on the average; 1 if there was none.
func average(cost, starts float64) float64 {
	if starts <= 0 {
		return 1
	}
	return cost / starts
}

// cutLast is strings.Cut at the last place.
func cutLast(text, at string) (before, after string, found bool) {
	if i := strings.LastIndex(text, at); i >= 0 {
		return text[:i], text[i+len(at):], true
	}
	return text, "", false
}

// sortBudgets sorts budgets: those that are closed first, then those that hold requests, then those used most.
func sortBudgets(all []budget) {
	weight := func(b *budget) int {
		switch {
		case b.Until > 0:
			return 2
		case b.Callers > 0:
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b budget) int {
		return cmp.Or(weight(&b)-weight(&a), cmp.Compare(b.Starts, a.Starts), cmp.Compare(b.Used, a.Used), strings.Compare(a.ID, b.ID))
	})
}

// The kinds of limits, as the page tells them apart.
const (
	windowed  = "window" // counts starts in a window
	spaced    = "spaced" // keeps starts apart
	bucketed  = "bucket" // holds tokens
	inFlight  = "flight" // counts what is in flight
	unlimited = "unlimited"
)

// kindOf returns the kind of a limit, and how much fits into it; 0: the limit has no number.
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

// Package telemetry is the common part of adapters that turn throttle's events into metrics and
// logs: the names of kinds, errors and attributes, series for each policy, the state of a program's
// budgets, and how long a store has not answered. Modules promthrottle and otelthrottle and package
// slogthrottle are built on it, and an adapter for a further system can be. A program that uses one
// of these three does not need this package.
package telemetry

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/outage"
)

// The names of policies where an event has none that is in a table.
const (
	None  = "none"  // no policy held the request
	Other = "other" // the policy is in no table: a caller asked for a name that no policy has
)

// The names of attributes, as [events] has them.
//
// [events]: https://github.com/fleetthrottle/throttle/blob/main/docs/reference/events.md#attributes
const (
	AttrPolicy       = "throttle.policy"      // Event.Policy
	AttrBudget       = "throttle.budget"      // Event.Budget
	AttrLimit        = "throttle.limit"       // Event.Limit
	AttrShare        = "throttle.share"       // the hashed name of a share, in metrics
	AttrResult       = "throttle.result"      // "started", "refused" or "gave_up", of Event.Kind
	AttrEvent        = "throttle.event"       // Event.Kind, as [Kind] names the kinds
	AttrPaused       = "throttle.paused"      // Event.Paused
	AttrHost         = "throttle.host"        // Event.Host
	AttrDuration     = "throttle.duration"    // Event.Duration
	AttrLeft         = "throttle.left"        // Event.Left
	AttrCallers      = "throttle.callers"     // Event.Callers
	AttrFrom         = "throttle.from"        // Event.From
	AttrTo           = "throttle.to"          // Event.To
	AttrNoteBy       = "throttle.note.by"     // the operator of Event.Note
	AttrNoteReason   = "throttle.note.reason" // the reason of Event.Note
	AttrErrorType    = "error.type"           // Event.Err, as [ErrorType] names errors; an OpenTelemetry name
	AttrErrorMessage = "error.message"        // the text of Event.Err; an OpenTelemetry name
)

// Buckets returns the boundaries of histograms of waits, in seconds: from 5 ms
// to ten minutes. Those that clients choose by default end at ten seconds.
func Buckets() []float64 {
	return []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
}

// Kind returns the name of a kind of events in snake case, such as
// "store_failed", or "unknown" for a kind of a later version of throttle.
func Kind(k throttle.EventKind) string { return strings.ReplaceAll(k.String(), " ", "_") }

// Kinds returns the names of all kinds, by kind. The name is "" for no kind,
// and for the kinds that say what becomes of a request,
// [throttle.EventStarted], [throttle.EventRefused] and [throttle.EventGaveUp]:
// adapters count those by result.
func Kinds() []string {
	names := []string{""}
	for k := throttle.EventKind(1); k.String() != "unknown"; k++ {
		switch k {
		case throttle.EventStarted, throttle.EventRefused, throttle.EventGaveUp:
			names = append(names, "")
		default:
			names = append(names, Kind(k))
		}
	}
	return names
}

// The words of [ErrorType].
const (
	ErrorLimit     = "limit"     // EventRefused: the wait would be too long
	ErrorStore     = "store"     // EventRefused: the store failed
	ErrorConfig    = "config"    // EventRefused: a function of a policy failed, or the demand fits no policy
	ErrorUnmatched = "unmatched" // the request is refused, because no policy matches it
	ErrorContext   = "context"   // EventGaveUp: the context of the caller ended
	ErrorOther     = "_OTHER"    // any error outside this list
)

// ErrorType returns the class of an event's error. For an [throttle.EventGaveUp] it is always [ErrorContext]. For an error of the store it is one of
// [Causes], or [ErrorStore] in an [throttle.EventRefused]. It is "" for any other event without an error.
func ErrorType(e *throttle.Event) string {
	if e.Kind == throttle.EventGaveUp {
		return ErrorContext
	}

	// A refusal does not name the cause of a store's failure: see ErrorStore.
	if e.Kind != throttle.EventRefused {
		if cause, failed := CauseOf(e); failed {
			return causes[cause]
		}
	}
	return errorWord(e.Err)
}

// errorWord returns the word for an error, whatever event it belongs to, and "" for nil.
func errorWord(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, throttle.ErrLimited):
		return ErrorLimit
	case errors.As(err, new(*throttle.StoreError)):
		return ErrorStore
	case errors.As(err, new(*throttle.ConfigError)):
		return ErrorConfig
	case errors.As(err, new(*throttle.UnmatchedError)):
		return ErrorUnmatched
	}

	return ErrorOther
}

// causes are the names of the causes, by the cause.
var causes = []string{outage.Away: outage.Away.String(), outage.Denied: outage.Denied.String(), outage.Failed: outage.Failed.String()}

// Causes returns the causes of a store's failures: "away", "denied" and "failed".
func Causes() []string { return slices.Clone(causes) }

// CauseOf returns the index in [Causes] of the store failure that an event reports. ok is false if
// the event reports none.
func CauseOf(e *throttle.Event) (cause int, ok bool) {
	if e.Err == nil {
		return 0, false
	}
	failed, ok := errors.AsType[*throttle.StoreError](e.Err)
	if !ok {
		return 0, false
	}
	return int(outage.CauseOf(failed)), true
}

// A Source is a table of policies with the state of its budgets: a [throttle.Transport] or
// [throttle.Limiters].
type Source interface {
	// Policies returns the policies as they are now.
	Policies() []throttle.Policy

	// Statuses returns the state of the budgets, as [throttle.Transport.Statuses] does.
	Statuses(context.Context) (map[throttle.Budget]throttle.Status, error)
}

// A Table has a value for each policy, such as its metrics. The values are made beforehand, so that an event does not delay its
// request. It is safe for concurrent use.
type Table[S any] struct {
	bind func(policy string) *S // makes the value of a policy

	mu      sync.Mutex // for changes
	sources []Source
	all     atomic.Pointer[map[string]*S] // the values by policy. The map itself never changes.
}

// NewTable returns a table with values for "", the requests that no policy held, and for [Other]. bind makes the
// value of a policy.
func NewTable[S any](bind func(policy string) *S) *Table[S] {
	t := &Table[S]{bind: bind}
	t.all.Store(new(map[string]*S))
	t.add("", Other)
	return t
}

// Follow makes values for the policies of the sources, now and later: at each
// [Table.Refresh], and when an event has a policy that the table does not know. A nil source is left out.
// The values of policies that are gone stay, as long as the program runs.
func (t *Table[S]) Follow(sources ...Source) {
	sources = slices.DeleteFunc(slices.Clone(sources), func(s Source) bool { return s == nil })

	// Refresh may use the former slice without the mutex, so append to a copy.
	t.mu.Lock()
	t.sources = append(slices.Clip(t.sources), sources...)
	t.mu.Unlock()

	t.Refresh()
}

// Refresh makes a value for each policy of the sources that has none.
func (t *Table[S]) Refresh() {
	t.mu.Lock()
	sources := t.sources
	t.mu.Unlock()

	var names []string
	for _, s := range sources {
		for _, p := range s.Policies() {
			names = append(names, p.Name)
		}
	}
	t.add(names...)
}

// add makes a value for each name that has none. It skips names that are not UTF-8, because throttle
// refuses policies with such names.
func (t *Table[S]) add(names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	// Keep the names that need a value. One of them may be twice in the list.
	all := *t.all.Load()
	names = slices.DeleteFunc(names, func(name string) bool { return all[name] != nil || !utf8.ValidString(name) })
	if len(names) == 0 {
		return
	}

	// Readers use the map without a lock, so add to a copy.
	next := make(map[string]*S, len(all)+len(names))
	maps.Copy(next, all)

	for _, name := range names {
		if next[name] == nil {
			next[name] = t.bind(name)
		}
	}

	t.all.Store(&next)
}

// Of returns the value of an event's policy, which it makes if need be, or the value of [Other] for a policy that it does not know. It
// takes a lock only for a policy without a value.
func (t *Table[S]) Of(e *throttle.Event) *S {
	if s := (*t.all.Load())[e.Policy]; s != nil {
		return s
	}

	// The policy of an event with a budget exists, even if the table does not follow its transport.
	// Without a budget the policy may be any name that a caller asked for, and such names would
	// fill the table: then only policies of the sources get a value.
	if e.Budget != "" {
		t.add(e.Policy)
	} else {
		t.Refresh()
	}

	all := *t.all.Load()
	if s := all[e.Policy]; s != nil {
		return s
	}

	return all[Other]
}

package store

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Switch turns throttle off for all callers of a store: while it is off each caller starts
// at once and the store is not asked, so no limit, no penalty and no pause holds anybody.
// Callers that wait when the Switch is turned off start at once, too. Each of them is counted
// by [Switch.Passed] and told to throttle.Config.Observe. The page on [off] says when to use
// it.
//
// A caller finds the Switch of its store in [Traits]. [WithSwitch] gives a store one. The
// Switch of a fleet.Reporter is turned by the commands "throttle off" and "throttle on".
//
// The zero Switch is on. A Switch is safe for concurrent use and must not be copied.
//
// [off]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/off.md
type Switch struct {
	off    atomic.Pointer[Off]
	passed atomic.Int64

	mu    sync.Mutex
	on    context.Context // ends when the Switch is turned off. It is nil until a caller waits.
	endOn context.CancelFunc
}

// Off says who turned a [Switch] off, why, and until when.
type Off struct {
	By     string    // the operator or the program, or ""
	Reason string    // why throttle is off, or ""
	Until  time.Time // the Switch is on again from then on. A zero Until means that only TurnOn turns it on.
}

// OffVariable is the environment variable that turns throttle off for a program from its
// start: see [OffByEnvironment].
const OffVariable = "THROTTLE_OFF"

// OffByEnvironment returns the Off that [OffVariable] states, and true if it turns throttle
// off. The variable turns throttle off unless it is empty, "0", "false" or "no", in upper or
// lower case. "1", "true" and "yes" state no reason, and every other text is the reason.
// Constructors of package throttle read the variable: no Switch and no command turns such a
// program on, only its restart without the variable.
func OffByEnvironment() (Off, bool) {
	text := os.Getenv(OffVariable)
	switch strings.ToLower(text) {
	case "", "0", "false", "no":
		return Off{}, false
	case "1", "true", "yes":
		text = ""
	}
	return Off{By: OffVariable, Reason: text}, true
}

// String returns one line without control characters, such as `off by anna@desk: "the limits
// are wrong"`. It leaves out Until.
func (o Off) String() string {
	text := "off"
	if o.By != "" {
		text += " by " + strings.Trim(strconv.Quote(o.By), `"`)
	}
	if o.Reason != "" {
		text += ": " + strconv.Quote(o.Reason)
	}
	return text
}

// TurnOff turns the Switch off, and lets all waiting callers start. A Switch that is off
// already gets the new operator, reason and end. An Off whose end has passed leaves the
// Switch on, also if it was off.
func (s *Switch) TurnOff(o Off) {
	s.mu.Lock()
	defer s.mu.Unlock()

	// The context of waiting callers ends only if the Switch is off now.
	s.off.Store(&o)
	if s.endOn != nil && s.IsOff() {
		s.endOn()
	}
}

// TurnOn turns the Switch on: callers that come from now on obey their limits again. It does
// nothing to a Switch that is on.
func (s *Switch) TurnOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turnOnLocked()
}

// turnOnLocked is TurnOn for a caller that has the lock.
func (s *Switch) turnOnLocked() {
	s.off.Store(nil)

	// WhileOn needs a new context in place of a context that has ended.
	if s.on != nil && s.on.Err() != nil {
		s.on, s.endOn = nil, nil
	}
}

// IsOff reports whether the Switch is off.
func (s *Switch) IsOff() bool {
	o := s.off.Load()
	return o != nil && o.lasts()
}

// lasts reports whether the end has not come.
func (o *Off) lasts() bool { return o.Until.IsZero() || time.Now().Before(o.Until) }

// State returns who turned the Switch off, and true while it is off.
func (s *Switch) State() (Off, bool) {
	if o := s.off.Load(); o != nil && o.lasts() {
		return *o, true
	}
	return Off{}, false
}

// WhileOn returns a context that ends when the Switch is turned off. While the Switch is off
// it returns a context that has ended.
func (s *Switch) WhileOn() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()

	// Nobody calls TurnOn at the end of an Off, so turn the Switch on here.
	if o := s.off.Load(); o != nil && !o.lasts() {
		s.turnOnLocked()
	}

	// One context serves all callers, until the Switch is turned off.
	if s.on == nil {
		s.on, s.endOn = context.WithCancel(context.Background())
		if s.off.Load() != nil {
			s.endOn()
		}
	}

	return s.on
}

// Passed returns how many callers have started because the Switch was off, since the program
// began.
func (s *Switch) Passed() int64 { return s.passed.Load() }

// Pass counts a caller that starts because the Switch is off. It is called by the callers of
// stores.
func (s *Switch) Pass() { s.passed.Add(1) }

// WithSwitch returns the store with a Switch, for a program that turns throttle off by itself:
// by a feature flag, or by a request of an operator. For a nil store it returns nil. If sw is
// nil, or the store has a Switch already, the Err of the store's [Traits] says so. Use the
// Switch in the Traits of a store that has one.
func WithSwitch(s Store, sw *Switch) Store {
	if s == nil {
		return nil // the constructors of callers refuse a nil store
	}

	w := &switched{s, s.Traits()}
	var mistake error
	switch {
	case sw == nil:
		mistake = &OptionError{"store", "WithSwitch", "the Switch is nil: give new(store.Switch)"}
	case w.traits.Switch != nil:
		mistake = &OptionError{"store", "WithSwitch", "the store has a Switch already: use Traits().Switch"}
	}

	// WithSwitch returns no error, so the constructors of callers find the mistake in the traits.
	w.traits.Err = errors.Join(w.traits.Err, mistake)
	w.traits.Switch = sw

	// The methods of a store in memory return at once through this store, too.
	if w.traits.InMemory == s {
		w.traits.InMemory = w
	}

	return w
}

// A switched store has a Switch.
type switched struct {
	Store
	traits Traits
}

// Traits implements [Store].
func (s *switched) Traits() Traits { return s.traits }

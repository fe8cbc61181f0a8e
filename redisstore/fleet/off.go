package fleet

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

//go:embed off.lua
var offSource string

var offScript = wire.FromSource(offSource)

const (
	// MaxOff is for how long throttle can be turned off at a time.
	MaxOff = store.MaxPenalty

	// A note of the switch is kept for longer than any program can be off by an earlier note:
	// so a program that finds no note knows nothing, and a Redis that has lost the note turns
	// nobody on.
	keepSwitch = MaxOff + time.Hour

	// lookEvery is how often a program looks for a note of the switch, unless it reports more often.
	lookEvery = time.Second

	// lookFor bounds how long one look takes, so that reports go on while Redis is slow.
	lookFor = 2 * time.Second
)

// Switch is an operator's word that turned throttle off or on for a fleet. Its texts are safe
// to print.
type Switch struct {
	Off    bool      `json:"off"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`    // by the server's clock
	Until  time.Time `json:"until"` // when throttle is on again, by the server's clock
}

// NodeSwitch is the switch of one node.
type NodeSwitch struct {
	At     int64  `json:"heard_us,omitempty"` // of the Switch that the node has taken, in microseconds since 1970; 0 without one
	Off    bool   `json:"off,omitempty"`
	By     string `json:"by,omitempty"` // THROTTLE_OFF if the node's environment turned it off
	Reason string `json:"reason,omitempty"`
	Left   Millis `json:"left_ms,omitzero"` // how long the node stays off; 0 while it is off: until it is told otherwise
	Passed int64  `json:"passed,omitempty"` // callers that started because it was off, since the node began
}

// Took reports whether the node has taken an operator's word.
func (n *NodeSwitch) Took(s *Switch) bool { return n.At >= s.At.UnixMicro() }

// TurnOff turns throttle off for all programs of the fleet with a reporter, for d, at most
// [MaxOff]: no limit, no ban and no pause holds anybody. Programs learn it within
// about a second. It returns the stored word, and whether throttle was off before.
func (f *Fleet) TurnOff(ctx context.Context, d time.Duration, by, reason string) (s Switch, was bool, err error) {
	if d <= 0 || d > MaxOff {
		return s, false, fmt.Errorf("throttle can be off for longer than nothing, and at most %v", MaxOff)
	}
	return f.turn(ctx, true, d, Act{Act: "off", What: "throttle", By: by, Reason: reason, For: Millis{d}})
}

// TurnOn turns throttle on for all programs of the fleet, also for programs that were turned
// off by a word that Redis has lost. It returns the stored word, and whether throttle was off
// before.
func (f *Fleet) TurnOn(ctx context.Context, by, reason string) (s Switch, was bool, err error) {
	return f.turn(ctx, false, 0, Act{Act: "on", What: "throttle", By: by, Reason: reason})
}

// turn stores the word of an act.
func (f *Fleet) turn(ctx context.Context, off bool, d time.Duration, act Act) (s Switch, was bool, err error) {
	ctx, stop := withDeadline(ctx)
	defer stop()

	text, err := act.encode()
	if err != nil {
		return s, false, err
	}

	word := "0"
	if off {
		word = "1"
	}

	by, reason := cut(act.By, longestName), cut(act.Reason, longestText)
	reply, err := f.conn.Run(ctx, offScript, []string{f.keys.off, f.keys.audit},
		word, by, reason, d.Microseconds(), keepSwitch.Microseconds(), text, mostActs)
	if err != nil {
		return s, false, storeError(err)
	}

	var numbers []int64
	for _, v := range reply {
		if n, ok := v.(int64); ok {
			numbers = append(numbers, n)
		}
	}
	if len(numbers) != 3 {
		return s, false, storeError(errors.New("fleet: Redis says what the script does not"))
	}

	s = Switch{off, Clean(by, longestName), Clean(reason, longestText), time.UnixMicro(numbers[0]).UTC(), time.UnixMicro(numbers[1]).UTC()}
	return s, numbers[2] == 1, nil
}

// Switch returns the last word of an operator that turned throttle off or on, or nil if Redis
// has none. Throttle is off while Off is true and Until has not come.
func (f *Fleet) Switch(ctx context.Context) (*Switch, error) {
	s, err := readSwitch(ctx, f.client, f.keys.off)
	if err != nil && !errors.Is(err, errNoSwitch) {
		return nil, f.commandError(err)
	}
	return s, nil
}

// errNoSwitch reports a note that is no word of an operator: somebody has written it by hand.
var errNoSwitch = errors.New("fleet: the note of the switch cannot be read: throttle off or throttle on writes it anew")

// switchFields are the fields of the note of the switch.
var switchFields = []string{"at", "off", "by", "reason", "until"}

// readSwitch reads the note of the switch, or nil if there is none.
func readSwitch(ctx context.Context, client redis.UniversalClient, key string) (*Switch, error) {
	v, err := client.HMGet(ctx, key, switchFields...).Result()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, errNoSwitch
	}
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(v, func(field any) bool { return field != nil }) {
		return nil, nil
	}

	text := func(i int) string { s, _ := v[i].(string); return s }
	at, isAt := moment(text(0))
	until, isUntil := moment(text(4))
	if !isAt || !isUntil || text(1) != "0" && text(1) != "1" {
		return nil, errNoSwitch
	}

	return &Switch{text(1) == "1", Clean(text(2), longestName), Clean(text(3), longestText), at, until}, nil
}

// A reporterSwitch is the switch of the program of a reporter.
type reporterSwitch struct {
	store.Switch
	byEnvironment store.Off // the words of store.OffVariable, zero if it turns nothing off
	isFixed       bool      // the variable has turned throttle off for good

	looking sync.Mutex // one look at a time

	mu  sync.Mutex
	at  int64 // the moment of the operator's word that counts, in microseconds
	err error // why the last look failed, unless Redis was away: then the report says so
}

// begin reads the environment.
func (s *reporterSwitch) begin() { s.byEnvironment, s.isFixed = store.OffByEnvironment() }

// look reads the word of an operator, and reports whether it is a new one. While Redis is away, and if it has
// lost the word, the switch stays as it is until its end.
func (r *Reporter) look(ctx context.Context) (fresh bool) {
	r.off.looking.Lock()
	defer r.off.looking.Unlock()

	ctx, stop := context.WithTimeout(ctx, lookFor)
	defer stop()

	fresh, err := r.takeSwitch(ctx)
	r.off.mu.Lock()
	defer r.off.mu.Unlock()
	r.off.err = nil
	if errors.Is(err, errNoSwitch) || err != nil && !conn.Transient(err) {
		r.off.err = err
	}
	return fresh
}

// takeSwitch is look, and returns why it failed.
func (r *Reporter) takeSwitch(ctx context.Context) (fresh bool, err error) {
	s, err := readSwitch(ctx, r.client, r.keys.off)
	if err != nil {
		return false, r.lookError(err)
	}

	r.off.mu.Lock()
	known := r.off.at
	r.off.mu.Unlock()
	if s == nil || s.At.UnixMicro() <= known {
		return false, nil
	}

	var left time.Duration
	if s.Off {
		// The end is by the server's clock. Until the server has said its time, nothing is turned.
		asked := time.Now()
		now, err := r.client.Time(ctx).Result()
		if err != nil {
			return false, r.lookError(err)
		}
		left = min(s.Until.Sub(now), MaxOff) - time.Since(asked)
	}

	if left > 0 {
		r.off.TurnOff(store.Off{By: s.By, Reason: s.Reason, Until: time.Now().Add(left)})
	} else {
		r.off.TurnOn()
	}

	r.off.mu.Lock()
	r.off.at = s.At.UnixMicro()
	r.off.mu.Unlock()
	return true, nil
}

// lookError returns the error of a look.
func (r *Reporter) lookError(err error) error {
	if errors.Is(err, errNoSwitch) {
		return err
	}
	return storeError(r.conn.Error(err))
}

// state describes the switch.
func (s *reporterSwitch) state() NodeSwitch {
	s.mu.Lock()
	n := NodeSwitch{At: s.at, Passed: s.Passed()}
	s.mu.Unlock()

	off, isOff := s.State()
	if s.isFixed {
		off, isOff = s.byEnvironment, true
	}
	if !isOff {
		return n
	}

	n.Off, n.By, n.Reason = true, Clean(off.By, longestName), Clean(off.Reason, longestText)
	if !off.Until.IsZero() {
		n.Left.Duration = max(time.Millisecond, time.Until(off.Until))
	}
	return n
}

// clip makes the texts safe to print, and subtracts the time since the report.
func (n NodeSwitch) clip(ago time.Duration) NodeSwitch {
	n.By, n.Reason = Clean(n.By, longestName), Clean(n.Reason, longestText)
	if n.Left.Duration > 0 {
		n.Left.Duration -= ago
		if n.Left.Duration <= 0 {
			n = NodeSwitch{At: n.At, Passed: n.Passed}
		}
	}
	return n
}

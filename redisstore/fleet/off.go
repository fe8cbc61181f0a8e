package fleet

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

	// keepSwitch is for how long Redis keeps the note of a command, which is longer than a
	// program can be off by an earlier command. So a missing note need not mean "on", and a
	// Redis that has lost the note turns nobody on.
	keepSwitch = MaxOff + time.Hour

	// lookEvery is how often a program looks for a note of the switch, unless it reports more often.
	lookEvery = time.Second

	// lookFor bounds how long one look takes, so that reports go on while Redis is slow.
	lookFor = 2 * time.Second
)

// Switch is the command of an operator that turned throttle off or on for a fleet. Its texts are safe
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
	At     int64  `json:"heard_us,omitempty"` // the At of the Switch that the node obeys, in microseconds since 1970, or 0 if it has none
	Off    bool   `json:"off,omitempty"`
	By     string `json:"by,omitempty"` // THROTTLE_OFF if the node's environment turned it off
	Reason string `json:"reason,omitempty"`
	Left   Millis `json:"left_ms,omitzero"` // how long the node stays off. While it is off 0 means without an end.
	Passed int64  `json:"passed,omitempty"` // callers that started because it was off, since the node began
}

// Took reports whether the node obeys an operator's command, or a later one.
func (n *NodeSwitch) Took(s *Switch) bool { return n.At >= s.At.UnixMicro() }

// TurnOff turns throttle off for all programs of the fleet with a reporter, for d, at most
// [MaxOff]: no limit, no ban and no pause holds anybody. Programs learn it within
// about a second. It returns the stored command, and whether throttle was off before.
func (f *Fleet) TurnOff(ctx context.Context, d time.Duration, by, reason string) (s Switch, was bool, err error) {
	if d <= 0 || d > MaxOff {
		return s, false, fmt.Errorf("throttle can be off for longer than nothing, and at most %v", MaxOff)
	}
	return f.turn(ctx, true, d, Act{Act: "off", What: "throttle", By: by, Reason: reason, For: Millis{d}})
}

// TurnOn turns throttle on for all programs of the fleet, also for programs that were turned
// off by a command that Redis has lost. It returns the stored command, and whether throttle was off
// before.
func (f *Fleet) TurnOn(ctx context.Context, by, reason string) (s Switch, was bool, err error) {
	return f.turn(ctx, false, 0, Act{Act: "on", What: "throttle", By: by, Reason: reason})
}

// turn stores the command to turn throttle off for d, or on, and logs the act. It returns the command. was says that throttle was off before.
func (f *Fleet) turn(ctx context.Context, off bool, d time.Duration, act Act) (s Switch, was bool, err error) {
	ctx, stop := withDeadline(ctx)
	defer stop()

	text, err := act.encode()
	if err != nil {
		return s, false, err
	}

	state := "0"
	if off {
		state = "1"
	}

	by, reason := cut(act.By, longestName), cut(act.Reason, longestText)
	reply, err := f.conn.Run(ctx, offScript, []string{f.keys.off, f.keys.audit},
		state, by, reason, d.Microseconds(), keepSwitch.Microseconds(), text, mostActs, rand.Text())
	if err != nil {
		return s, false, storeError(err)
	}

	// The script answers the time of the command, its end, and 1 if throttle was off before.
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

// Switch returns the operator's last command, off or on, or nil if Redis
// has none that can be read. Throttle is off while Off is true and Until has not come.
func (f *Fleet) Switch(ctx context.Context) (*Switch, error) {
	s, err := readSwitch(ctx, f.client, f.keys.off)
	if err != nil && !errors.Is(err, errNoSwitch) {
		return nil, f.commandError(err)
	}
	return s, nil
}

// errNoSwitch reports a note that is no command of an operator: somebody has written it by hand.
var errNoSwitch = errors.New("fleet: the note of the switch cannot be read: throttle off or throttle on writes it anew")

// switchFields are the fields of the note of the switch.
var switchFields = []string{"at", "off", "by", "reason", "until"}

// readSwitch reads the note of the switch. It returns nil if there is none. Its error is errNoSwitch for an illegible note, or the client's.
func readSwitch(ctx context.Context, client redis.UniversalClient, key string) (*Switch, error) {
	v, err := client.HMGet(ctx, key, switchFields...).Result()

	// A key of a different type was written by hand.
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, errNoSwitch
	}
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(v, func(field any) bool { return field != nil }) {
		return nil, nil
	}

	// The values are in the order of switchFields.
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
	byEnvironment store.Off // the text of store.OffVariable, zero if it turns nothing off
	isFixed       bool      // the variable has turned throttle off for good

	looking sync.Mutex // one look at a time

	mu  sync.Mutex
	at  int64 // the time of the operator's command that the switch obeys, in microseconds
	err error // why the last look failed. An absence of Redis is not noted here, because the report has its error.
}

// begin reads the environment.
func (s *reporterSwitch) begin() { s.byEnvironment, s.isFixed = store.OffByEnvironment() }

// look carries out the operator's last command (off or on) if it is new, and reports whether it is new. It notes why
// the command cannot be read. If Redis is away or has lost the command, the switch keeps its state: a program that is
// off turns on again when the time of its command is over.
func (r *Reporter) look(ctx context.Context) (fresh bool) {
	r.off.looking.Lock()
	defer r.off.looking.Unlock()

	ctx, stop := context.WithTimeout(ctx, lookFor)
	defer stop()

	fresh, err := r.takeSwitch(ctx)
	r.off.mu.Lock()
	defer r.off.mu.Unlock()
	r.off.err = nil

	// A Redis that is away for a moment is no error of the switch.
	if errors.Is(err, errNoSwitch) || err != nil && !conn.Transient(err) {
		r.off.err = err
	}
	return fresh
}

// takeSwitch carries out the operator's last command if it is new, and reports whether it is new.
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
		// The end is by the server's clock. If the server does not say its time, the switch stays as it is. The time since the question is taken off,
		// so that no program is off for too long, and a note that was written by hand counts for MaxOff at most.
		asked := time.Now()
		now, err := timeAt(ctx, r.client, r.keys.off)
		if err != nil {
			return false, r.lookError(err)
		}
		left = min(s.Until.Sub(now), MaxOff) - time.Since(asked)
	}

	// A command to turn off whose time is over turns the switch on.
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

// lookError returns the error of a look: errNoSwitch as it is, and an error of the client as an *Error.
func (r *Reporter) lookError(err error) error {
	if errors.Is(err, errNoSwitch) {
		return err
	}
	return storeError(r.conn.Error(err))
}

// state describes the switch. A program that its environment has turned off is off whatever the operator commands.
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

	// A Left of 0 would say that the node is off without an end.
	if !off.Until.IsZero() {
		n.Left.Duration = max(time.Millisecond, time.Until(off.Until))
	}
	return n
}

// clip makes the texts safe to print, and subtracts the time since the report. A node whose time is over is on.
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

// Note is an operator's statement about a pause.
type Note struct {
	Policy string    `json:"policy"`
	Budget string    `json:"budget"` // the policy and the beginning of its hashed key
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Until  time.Time `json:"until"` // by the server's clock

	key   [16]byte
	since time.Time // zero in notes of earlier versions
	terms policyUse // zero if unknown
}

// A storedNote is the JSON of a note in Redis. A field's value is the end of the pause in microseconds, a
// space, and the JSON.
type storedNote struct {
	Policy string `json:"policy"`
	By     string `json:"by"`
	Reason string `json:"reason"`

	// Earlier versions leave these out.
	For   Millis    `json:"for_ms,omitzero"`
	Terms policyUse `json:"terms,omitzero"`
	ID    string    `json:"id,omitempty"` // random, so that no two notes are equal
}

// readField parses a field name.
func readField(text string) (key [16]byte, ok bool) {
	b, err := hex.DecodeString(text)
	copy(key[:], b)
	return key, err == nil && len(b) == len(key)
}

// field returns the field name of a note: the budget's hashed key in hex.
func field(key [16]byte) string { return hex.EncodeToString(key[:]) }

// readNote parses a field and its value. ok is false for anything that is not a note: the hash may have been
// edited by hand.
func readNote(field, value string) (n Note, ok bool) {
	key, isField := readField(field)
	end, text, found := strings.Cut(value, " ")
	until, isMoment := moment(end)

	var s storedNote
	if !isField || !found || !isMoment || json.Unmarshal([]byte(text), &s) != nil {
		return n, false
	}

	// Escape each text once, here: the command line prints notes to a terminal.
	n.key, n.terms = key, s.Terms
	n.Policy, n.By, n.Reason = Clean(s.Policy, longestName), Clean(s.By, longestName), Clean(s.Reason, longestText)
	n.Budget = Clean(store.Budget{Policy: s.Policy, Key: n.key}.String(), longestName)
	n.Until = until

	// Earlier versions did not store the length, so the start stays unknown.
	if s.For.Duration > 0 {
		n.since = until.Add(-s.For.Duration)
	}
	return n, true
}

// readNotes parses a HGETALL reply of a script: fields and values in turn. It drops notes of pauses that are
// over, and everything that is not a note. The map is by hashed key of the budget.
func readNotes(reply []any, now time.Time) map[[16]byte]Note {
	all := make(map[[16]byte]Note)
	for i := 0; i+1 < len(reply); i += 2 {
		if n, ok := readNote(fmt.Sprint(reply[i]), fmt.Sprint(reply[i+1])); ok && n.Until.After(now) {
			all[n.key] = n
		}
	}
	return all
}

// notes returns the notes of pauses in force at now, by hashed key of the budget.
func (f *Fleet) notes(ctx context.Context, now time.Time) (map[[16]byte]Note, error) {
	reply, err := f.client.HGetAll(ctx, f.keys.pauses).Result()
	if err != nil {
		return nil, f.commandError(err)
	}
	all := make(map[[16]byte]Note)
	for field, value := range reply {
		if n, ok := readNote(field, value); ok && n.Until.After(now) {
			all[n.key] = n
		}
	}
	return all, nil
}

// notes is a reporter's copy of the notes of pauses.
type notes struct {
	all  atomic.Pointer[map[[16]byte]heldNote]
	wake chan struct{} // asks the reporter to read

	mu      sync.Mutex
	waiting chan struct{} // closed with the next answer, nil if nobody waits
	last    time.Time     // when the latest question was, or will be, asked
}

// A heldNote is a note in a reporter's copy. Moments are by this process' monotonic clock.
type heldNote struct {
	store.PauseNote
	since   time.Time // zero in notes of earlier versions
	end     time.Time
	isEnded bool // by a program: see compare
}

const (
	askEvery  = time.Second            // minimum interval of questions caused by closed budgets
	awaitNote = 100 * time.Millisecond // how long a refused caller waits for the answer
)

// of returns the note of a budget's pause, or the zero PauseNote if there is none that counts.
func (n *notes) of(key [16]byte) store.PauseNote {
	if note, ok := n.find(key); ok && !note.isEnded {
		return note.PauseNote
	}
	return store.PauseNote{}
}

// find returns a budget's note in the copy, unless the time of its pause is over.
func (n *notes) find(key [16]byte) (note heldNote, ok bool) {
	if all := n.all.Load(); all != nil {
		note, ok = (*all)[key]
	}
	return note, ok && note.end.After(time.Now())
}

// learn replaces the copy by notes that were read at serverNow, a time of the server's clock. now is the same moment by
// this program's clock, to which learn moves all times of the notes.
func (n *notes) learn(notes map[[16]byte]Note, serverNow, now time.Time) {
	all := make(map[[16]byte]heldNote, len(notes))
	for key, note := range notes {
		held := heldNote{PauseNote: store.PauseNote{By: note.By, Reason: note.Reason}, end: now.Add(note.Until.Sub(serverNow))}
		if !note.since.IsZero() {
			held.since = now.Add(note.since.Sub(serverNow))
		}
		all[key] = held
	}
	n.all.Store(&all)
}

// compare compares the note of a closed budget with the wait until the next start. If the pause of the note ends later, a program
// has ended the pause, and what closes the budget came afterwards: the note in the copy does not count any more.
func (n *notes) compare(c *store.Charge, wait time.Duration) {
	all, now := n.all.Load(), time.Now()
	if all == nil || c.Node {
		return
	}

	note, ok := (*all)[c.Budget.Key]
	if !ok || note.isEnded {
		return
	}

	// Ends that are close are the same, as in Note.isEnded. The pause of a young note may have come after the store's answer.
	endsLater, isYoung := note.end.Sub(now)-wait > patience, now.Sub(note.since) <= patience
	if !endsLater || isYoung {
		return
	}

	next := maps.Clone(*all)
	note.isEnded = true
	next[c.Budget.Key] = note

	// If a new copy has come meanwhile, the next answer is compared with it.
	n.all.CompareAndSwap(all, &next)
}

// meet asks for the note of a closed budget that a caller meets, because an operator may have paused it. A
// waiting caller has time to learn the reason. The error of a refused caller is created now, so meet waits for
// the answer.
func (n *notes) meet(ctx context.Context, c *store.Charge, waits bool) {
	// A node's own budget cannot be paused by an operator, and a known note needs no question, not even the note of a pause that a program has ended.
	if c.Node {
		return
	}
	if _, known := n.find(c.Budget.Key); known {
		return
	}

	answer, soon := n.ask()

	// A question that is due only later cannot be answered in time.
	if waits || !soon {
		return
	}

	timer := time.NewTimer(awaitNote)
	defer timer.Stop()

	select {
	case <-answer:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// ask triggers a question: now or, if the latest question was less than a second ago, after that second. It
// returns a channel that is closed with the answer. soon says that the question is due already.
func (n *notes) ask() (answer <-chan struct{}, soon bool) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.waiting == nil {
		n.waiting = make(chan struct{})
		wait := max(0, askEvery-time.Since(n.last))

		// The time may be in the future: callers that join the question learn below that it is not due yet.
		n.last = time.Now().Add(wait)

		if wait == 0 {
			n.poke()
		} else {
			time.AfterFunc(wait, n.poke)
		}
	}

	return n.waiting, !n.last.After(time.Now())
}

// poke wakes the reporter.
func (n *notes) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// takeQuestion returns the channel to close when the question has its answer, or has failed. Later questions wait for
// the next report.
func (n *notes) takeQuestion() chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	answer := n.waiting
	n.waiting = nil

	// Nobody asked. The caller closes the channel in any case.
	if answer == nil {
		answer = make(chan struct{})
	}
	if now := time.Now(); n.last.After(now) {
		n.last = now // a report came before the question was due
	}
	return answer
}

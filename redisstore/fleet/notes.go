package fleet

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

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

// A heldNote ends by this process' monotonic clock.
type heldNote struct {
	store.PauseNote
	end time.Time
}

const (
	askEvery  = time.Second            // minimum interval of questions caused by closed budgets
	awaitNote = 100 * time.Millisecond // how long a refused caller waits for the answer
)

// of returns the note of a budget.
func (n *notes) of(key [16]byte) store.PauseNote {
	if all := n.all.Load(); all != nil {
		if note, ok := (*all)[key]; ok && note.end.After(time.Now()) {
			return note.PauseNote
		}
	}
	return store.PauseNote{}
}

// learn replaces the copy, read at server on the server's clock and at here on this one.
func (n *notes) learn(notes map[[16]byte]Note, server, here time.Time) {
	all := make(map[[16]byte]heldNote, len(notes))
	for key, note := range notes {
		all[key] = heldNote{store.PauseNote{By: note.By, Reason: note.Reason}, here.Add(note.Until.Sub(server))}
	}
	n.all.Store(&all)
}

// meet is called for a caller that meets a closed budget, possibly paused by hand. A waiting caller has time
// to learn the reason. For a refused caller the error is created now, so meet waits for the answer.
func (n *notes) meet(ctx context.Context, c *store.Charge, waits bool) {
	// A node's own budget cannot be paused by an operator, and a known note needs no question.
	if c.Node || n.of(c.Budget.Key) != (store.PauseNote{}) {
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
// returns a channel that is closed with the answer.
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

// asked returns the channel to close when a question has its answer, or has failed. Later questions wait for
// the next report.
func (n *notes) asked() chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	answer := n.waiting
	n.waiting = nil
	// Nobody asked. The caller closes the channel in any case.
	if answer == nil {
		answer = make(chan struct{})
	}
	if now := time.Now(); n.last.After(now) {
		n.last = now // a report came before the question
	}
	return answer
}

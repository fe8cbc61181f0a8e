package fleet

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Note is what an operator said who closed a budget.
type Note struct {
	Policy string    `json:"policy"`
	Budget string    `json:"budget"` // the policy and the beginning of its hashed key
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Until  time.Time `json:"until"` // by the server's clock

	key   [16]byte
	since time.Time // zero: an earlier version stored the note
	terms policyUse // the zero policyUse: not known
}

// A storedNote is a note as Redis keeps it, as JSON: the value of a field is the end of the pause in
// microseconds, a space, and the note.
type storedNote struct {
	Policy string `json:"policy"`
	By     string `json:"by"`
	Reason string `json:"reason"`

	// What an earlier version leaves out.
	For   Millis    `json:"for_ms,omitzero"`
	Terms policyUse `json:"terms,omitzero"`
}

// readField reads what field returns.
func readField(text string) (key [16]byte, ok bool) {
	b, err := hex.DecodeString(text)
	copy(key[:], b)
	return key, err == nil && len(b) == len(key)
}

// field returns the field under which the note of a budget is stored, by the budget's hashed key.
func field(key [16]byte) string { return hex.EncodeToString(key[:]) }

// readNote reads a field and its value. ok is false if they are no note: somebody may have written them
// by hand.
func readNote(field, value string) (n Note, ok bool) {
	key, isField := readField(field)
	end, text, found := strings.Cut(value, " ")
	until, isMoment := moment(end)

	var s storedNote
	if !isField || !found || !isMoment || json.Unmarshal([]byte(text), &s) != nil {
		return n, false
	}

	n.key, n.terms = key, s.Terms
	n.Policy, n.By, n.Reason = Clean(s.Policy, longestName), Clean(s.By, longestName), Clean(s.Reason, longestText)
	n.Budget = Clean(store.Budget{Policy: s.Policy, Key: n.key}.String(), longestName)
	n.Until = until
	if s.For.Duration > 0 {
		n.since = until.Add(-s.For.Duration)
	}

	return n, true
}

// readNotes reads the reply of HGETALL in a script: fields and values, in turn. It leaves out notes of
// pauses that are over at now, and what is no note. The notes are by the hashed keys of their budgets.
func readNotes(reply []any, now time.Time) map[[16]byte]Note {
	all := make(map[[16]byte]Note)
	for i := 0; i+1 < len(reply); i += 2 {
		if n, ok := readNote(fmt.Sprint(reply[i]), fmt.Sprint(reply[i+1])); ok && n.Until.After(now) {
			all[n.key] = n
		}
	}
	return all
}

// notes returns the notes of pauses that are not over at now, by the hashed keys of their budgets.
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

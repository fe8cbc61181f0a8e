package fleet

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A Note is what an operator said who closed a budget.
type Note struct {
	Policy string    `json:"policy"`
	Budget string    `json:"budget"` // the policy and the beginning of its hashed key
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Until  time.Time `json:"until"` // by the server's clock

	key [16]byte
}

// note is how a note is stored, behind its end.
type storedNote struct {
	Policy string `json:"policy"`
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// field is the name of a budget's note.
func field(key [16]byte) string { return hex.EncodeToString(key[:]) }

// readNote reads a note, which somebody may have written by hand.
func readNote(field, value string) (n Note, ok bool) {
	key, err := hex.DecodeString(field)
	end, text, found := strings.Cut(value, " ")
	until, right := moment(end)
	var s storedNote
	if err != nil || len(key) != len(n.key) || !found || !right || json.Unmarshal([]byte(text), &s) != nil {
		return n, false
	}
	copy(n.key[:], key)
	n.Policy, n.By, n.Reason = Clean(s.Policy, longestName), Clean(s.By, longestName), Clean(s.Reason, longestText)
	n.Budget = Clean(throttle.Budget{Policy: s.Policy, Key: n.key}.String(), longestName)
	n.Until = until
	return n, true
}

// readNotes reads what HGETALL says, as a list. What is over at a time, or cannot be
// read, is left out.
func readNotes(reply []any, now time.Time) map[[16]byte]Note {
	all := make(map[[16]byte]Note)
	for i := 0; i+1 < len(reply); i += 2 {
		if n, ok := readNote(fmt.Sprint(reply[i]), fmt.Sprint(reply[i+1])); ok && n.Until.After(now) {
			all[n.key] = n
		}
	}
	return all
}

// notes returns what is noted of pauses that hold at a moment.
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

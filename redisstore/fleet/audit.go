package fleet

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"
	"time"
)

// A Change is a count before and after an act.
type Change struct {
	Before int `json:"before"`
	After  int `json:"after"`
}

// mostActs is how many acts are kept.
const mostActs = 1000

// An Act is what an operator did. Its texts are fit to be printed.
type Act struct {
	At     time.Time `json:"at,omitzero"` // by the server's clock
	Act    string    `json:"act"`         // pause, resume, reset, set-used, push, rollback
	What   string    `json:"what"`        // a budget, or the generation of a file
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	For    Millis    `json:"for_ms,omitzero"`  // of a pause
	Used   *Change   `json:"used,omitempty"`   // of set-used
	Number int64     `json:"number,omitempty"` // of a file
	Failed bool      `json:"failed,omitempty"` // it was begun, and taken back
}

// encode returns the act as it is stored, behind its moment.
func (a *Act) encode() (string, error) {
	own := *a
	own.By, own.Reason = cut(a.By, longestName), cut(a.Reason, longestText)
	text, err := json.Marshal(own)
	return string(text), err
}

// readAct reads an act, which somebody may have written by hand.
func readAct(text string) (a Act, ok bool) {
	at, text, _ := strings.Cut(text, " ")
	when, right := moment(at)
	if !right || json.Unmarshal([]byte(text), &a) != nil || a.Act == "" {
		return a, false
	}
	a.At = when
	a.Act, a.What = Clean(a.Act, longestName), Clean(a.What, longestName)
	a.By, a.Reason = Clean(a.By, longestName), Clean(a.Reason, longestText)
	return a, true
}

// Audit returns the last acts, at most so many, the newest first, and how many of them
// cannot be read and are left out.
func (f *Fleet) Audit(ctx context.Context, most int) (all []Act, illegible int, err error) {
	list, err := f.client.LRange(ctx, f.keys.audit, 0, int64(max(1, most))-1).Result()
	if err != nil {
		return nil, 0, f.commandError(err)
	}
	all = []Act{}
	for _, text := range list {
		if a, ok := readAct(text); ok {
			all = append(all, a)
		}
	}
	return all, len(list) - len(all), nil
}

// cut keeps a text from being longer than is read.
func cut(text string, most int) string {
	if all := []rune(text); len(all) > most {
		return string(all[:most])
	}
	return text
}

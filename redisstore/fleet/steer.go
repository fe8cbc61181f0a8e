package fleet

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

//go:embed note.lua
var noteSource string

//go:embed unnote.lua
var unnoteSource string

var (
	noteScript   = wire.FromSource(noteSource)
	unnoteScript = wire.FromSource(unnoteSource)
)

// A LongerError says that an operator has paused the budget for longer already.
type LongerError struct{ Note Note }

// Error implements error.
func (e *LongerError) Error() string {
	return fmt.Sprintf("%s is %v, until %s; to shorten that, resume it first", e.Note.Budget,
		store.PauseNote{By: e.Note.By, Reason: e.Note.Reason}, e.Note.Until.UTC().Format(time.RFC3339))
}

// A NotPausedError says that there is no pause of an operator to end.
type NotPausedError struct {
	Budget string
	Closed time.Duration // how long something else closes it still; 0: it is open
}

// Error implements error.
func (e *NotPausedError) Error() string {
	if e.Closed > 0 {
		return fmt.Sprintf("%s is closed by an answer of its upstream for %v, and by no operator; reset opens it all the same", e.Budget, e.Closed.Round(time.Millisecond))
	}
	return e.Budget + " is not paused"
}

// State returns what a target is like now, and what an operator said who paused it; nil:
// none did.
func (f *Fleet) State(ctx context.Context, t Target) (State, *Note, error) {
	st, note, err := f.Describe(ctx, t.charge)
	return StateOf(st), note, err
}

// Describe is [Fleet.State] for a charge, as [throttle.Transport.Explain] returns them.
func (f *Fleet) Describe(ctx context.Context, c store.Charge) (store.Status, *Note, error) {
	ctx, stop := withDeadline(ctx)
	defer stop()

	st, err := f.store.Status(ctx, c)
	if err != nil || st.Paused == 0 {
		return st, nil, storeError(err)
	}

	now, err := f.now(ctx)
	if err != nil {
		return st, nil, err
	}

	notes, err := f.notes(ctx, now)
	if n, ok := notes[c.Budget.Key]; ok {
		return st, &n, err
	}

	return st, nil, err
}

// Pause closes a budget for d, at most [store.MaxPenalty]. The note is stored first, so
// that nodes that meet the pause find it. It returns a *[LongerError] if a longer pause holds.
func (f *Fleet) Pause(ctx context.Context, t Target, d time.Duration, by, reason string) error {
	if d <= 0 || d > store.MaxPenalty {
		return fmt.Errorf("a pause is longer than nothing, and at most %v", store.MaxPenalty)
	}

	ctx, stop := withDeadline(ctx)
	defer stop()
	act := Act{Act: "pause", What: t.Name, By: by, Reason: reason, For: Millis{d}}

	note, err := json.Marshal(storedNote{t.charge.Budget.Policy, cut(by, longestName), cut(reason, longestText), Millis{d}, useOf(&t.charge)})
	if err != nil {
		return err
	}

	after, before, err := f.note(ctx, t, string(note), d, act)
	if err != nil {
		return err
	}

	if err := f.store.Pause(ctx, t.charge, d); err != nil {
		f.takeBackNote(t, after, before, act)
		return storeError(err)
	}

	return nil
}

// Resume ends the pause of an operator. Budgets that no operator paused are left alone, with
// a *[NotPausedError].
func (f *Fleet) Resume(ctx context.Context, t Target, by, reason string) error {
	state, note, err := f.State(ctx, t)
	if err != nil {
		return err
	}
	if note == nil {
		return &NotPausedError{t.Name, state.Paused.Duration}
	}
	return f.open(ctx, t, Act{Act: "resume", What: t.Name, By: by, Reason: reason})
}

// Pauses returns what operators said of the budgets that are paused now, by their names.
func (f *Fleet) Pauses(ctx context.Context) ([]Note, error) {
	ctx, stop := withDeadline(ctx)
	defer stop()
	now, err := f.now(ctx)
	if err != nil {
		return nil, err
	}

	all, err := f.notes(ctx, now)
	return slices.SortedFunc(maps.Values(all), func(a, b Note) int { return strings.Compare(a.Budget, b.Budget) }), err
}

// Reset opens a budget whatever closes it, and forgets how often a ban was met again, and
// a ceiling that was learned. Starts stay counted.
func (f *Fleet) Reset(ctx context.Context, t Target, by, reason string) error {
	return f.open(ctx, t, Act{Act: "reset", What: t.Name, By: by, Reason: reason})
}

// open opens a budget, and removes its note.
func (f *Fleet) open(ctx context.Context, t Target, act Act) error {
	ctx, stop := withDeadline(ctx)
	defer stop()
	if err := f.store.Resume(ctx, t.charge); err != nil {
		return storeError(err)
	}
	_, _, err := f.note(ctx, t, "", 0, act)
	return err
}

// note stores a note, or removes it if there is none, and notes the act. It returns the note
// as it is stored now, and the one before; "" for none.
func (f *Fleet) note(ctx context.Context, t Target, note string, d time.Duration, act Act) (after, before string, err error) {
	text, err := act.encode()
	if err != nil {
		return "", "", err
	}

	own := field(t.charge.Budget.Key)
	reply, err := f.conn.Run(ctx, noteScript, []string{f.keys.pauses, f.keys.audit, f.keys.ban + own}, own, note, d.Microseconds(), text, mostActs)
	if err != nil {
		return "", "", storeError(err)
	}

	if len(reply) == 2 && reply[0] == int64(0) {
		if longer, ok := readNote(own, fmt.Sprint(reply[1])); ok {
			return "", "", &LongerError{longer}
		}
	}

	if len(reply) == 3 {
		after, before = fmt.Sprint(reply[1]), fmt.Sprint(reply[2])
	}

	return after, before, nil
}

// takeBackNote takes back the note of a pause that could not be stored, and says so.
func (f *Fleet) takeBackNote(t Target, after, before string, act Act) {
	ctx, stop := context.WithTimeout(context.Background(), farewell) // the caller's may have ended
	defer stop()
	act.Failed = true
	if text, err := act.encode(); err == nil {
		_, _ = f.conn.Run(ctx, unnoteScript, []string{f.keys.pauses, f.keys.audit}, field(t.charge.Budget.Key), after, before, text, mostActs)
	}
}

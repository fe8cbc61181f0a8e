package fleet

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

//go:embed push.lua
var pushSource string

var pushScript = wire.FromSource(pushSource)

// Bounds of pushed files.
const (
	MostText  = 256 << 10 // of a file, in bytes
	mostFiles = 50        // in the history
)

// ErrNothingPushed reports that no policy file is pushed, or that Redis has
// lost it.
var ErrNothingPushed = errors.New("fleet: no file of policies is pushed")

// errUnreadable reports foreign data in the key of the pushed file.
var errUnreadable = errors.New("fleet: the pushed file cannot be read")

// Pushed is a pushed policy file. Its texts, except the file itself, are safe
// to print.
type Pushed struct {
	Number     int64     `json:"number"`     // one above its predecessor
	Generation string    `json:"generation"` // of its text: see package policyfile
	By         string    `json:"by"`
	Reason     string    `json:"reason,omitempty"`
	At         time.Time `json:"at"` // by the server's clock

	Text []byte `json:"-"` // nil from methods that do not read it
}

// ConflictError reports a concurrent push. Number is the pushed number, or 0
// for none.
type ConflictError struct{ Expected, Number int64 }

// Error implements error.
func (e *ConflictError) Error() string {
	if e.Number == 0 {
		return fmt.Sprintf("number %d is no longer pushed: nothing is", e.Expected)
	}
	return fmt.Sprintf("number %d has been pushed meanwhile: compare with it, and push again", e.Number)
}

// Push pushes a file in place of the file with number instead, 0 for none, and
// returns the new number. It returns a *[ConflictError] if the pushed file has
// a different number. It does not validate the text: package policyfile/pushed
// does. act is the name of the act in the audit log.
func (f *Fleet) Push(ctx context.Context, instead int64, p Pushed, act string) (number int64, err error) {
	if len(p.Text) > MostText {
		return 0, fmt.Errorf("a file of %d bytes is too long: at most %d can be pushed", len(p.Text), MostText)
	}

	own := kept{p.Generation, cut(p.By, longestName), cut(p.Reason, longestText), string(p.Text)}
	entry, err := json.Marshal(own)
	if err != nil {
		return 0, err
	}

	// The script counts on from the number it replaces, so the act can name the new number in advance.
	a := Act{Act: act, What: p.Generation, By: p.By, Reason: p.Reason, Number: instead + 1}
	acted, err := a.encode()
	if err != nil {
		return 0, err
	}

	reply, err := f.conn.Run(ctx, pushScript, []string{f.keys.policies, f.keys.history, f.keys.audit},
		instead, rand.Text(), own.Generation, own.Text, own.By, own.Reason, entry, mostFiles, acted, mostActs)
	if err != nil {
		return 0, storeError(err)
	}

	ok := len(reply) == 2
	if ok {
		number, ok = reply[1].(int64)
	}

	switch {
	case !ok:
		return 0, storeError(errors.New("fleet: Redis says what the script does not"))
	case reply[0] == int64(0):
		return 0, &ConflictError{instead, number}
	}

	return number, nil
}

// A kept is the JSON of a file in the history.
type kept struct {
	Generation string `json:"generation"`
	By         string `json:"by"`
	Reason     string `json:"reason,omitempty"`
	Text       string `json:"text"`
}

// Pushed returns the pushed file without its text, or nil without one. It fails
// if the key in Redis holds foreign data.
func (f *Fleet) Pushed(ctx context.Context) (*Pushed, error) {
	return f.pushed(ctx, "number", "generation", "by", "reason", "at")
}

// Pull returns the pushed file with its text, or nil without one. It fails as
// [Fleet.Pushed] does.
func (f *Fleet) Pull(ctx context.Context) (*Pushed, error) {
	return f.pushed(ctx, "number", "generation", "by", "reason", "at", "text")
}

func (f *Fleet) pushed(ctx context.Context, fields ...string) (*Pushed, error) {
	v, err := f.client.HMGet(ctx, f.keys.policies, fields...).Result()
	// A key of a different type was written by hand: report it as unreadable, not as an outage.
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, f.unreadable()
	}
	if err != nil {
		return nil, f.commandError(err)
	}

	text := func(i int) string { s, _ := v[i].(string); return s }
	// No field at all means that nothing was ever pushed.
	if !slices.ContainsFunc(v, func(field any) bool { return field != nil }) {
		return nil, nil
	}

	p, ok := pushedOf(text(0), text(4), text(1), text(2), text(3))
	if !ok {
		return nil, f.unreadable()
	}
	// The text is long, so most callers do not ask for it.
	if len(fields) > 5 {
		p.Text = []byte(text(5))
	}

	return p, nil
}

// unreadable returns the error for foreign data in the key of the pushed file.
func (f *Fleet) unreadable() error {
	return fmt.Errorf("%w: remove the key by PEXPIRE %s 0, which an operator may send, and push again; programs keep what they have in force", errUnreadable, f.keys.policies)
}

// pushedOf parses fields that may have been edited by hand.
func pushedOf(number, at, generation, by, reason string) (*Pushed, bool) {
	n, err := strconv.ParseInt(number, 10, 64)
	when, right := moment(at)
	return &Pushed{
		// The texts may have been edited in Redis, and are printed to a terminal.
		Number: n, Generation: Clean(generation, longestName), By: Clean(by, longestName),
		Reason: Clean(reason, longestText), At: when,
	}, err == nil && right && n > 0
}

// History returns the files pushed last, with their texts, newest first, and
// how many entries were illegible and are left out.
func (f *Fleet) History(ctx context.Context) (all []Pushed, illegible int, err error) {
	list, err := f.client.LRange(ctx, f.keys.history, 0, mostFiles-1).Result()
	if err != nil {
		return nil, 0, f.commandError(err)
	}

	all = []Pushed{}
	for _, entry := range list {
		number, entry, _ := strings.Cut(entry, " ")
		at, entry, _ := strings.Cut(entry, " ")

		var k kept
		if json.Unmarshal([]byte(entry), &k) != nil {
			continue
		}

		if p, ok := pushedOf(number, at, k.Generation, k.By, k.Reason); ok {
			p.Text = []byte(k.Text)
			all = append(all, *p)
		}
	}

	return all, len(list) - len(all), nil
}

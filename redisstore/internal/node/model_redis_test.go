package node

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A modelWire is the client of the model's store. It brings the server into the state
// of a world, makes one call there, and takes the new state back: all in one
// round trip.
type modelWire struct {
	redis.UniversalClient
	t     *testing.T
	world *modelWorld
	fate  modelFate
	reply string      // to be given to the next call
	know  modelStarts // that it tells of
	age   int64       // how long ago that was done
	plan  modelPlan   // of the call
	quiet bool        // it is no booking
	done  func(w *modelWorld, args []any, p modelPlan, text string) (know modelStarts, age int64)

	there map[string]bool // the keys that the server may have
	calls int             // how many scripts ran

	results map[[16]byte]modelResult
}

// A modelCommand is how the store calls a script.
type modelCommand interface {
	redis.Cmder
	SetVal(any)
	NoRetry() bool
}

// A modelFate is what becomes of a call.
type modelFate byte

const (
	modelFine    modelFate = iota
	modelLost              // it is done, and nobody hears
	modelSlow              // it is done, and the answer takes a while
	modelHeld              // it is not done yet, and the node does not wait for it
	modelArrives           // it was done before, and here is the answer
)

// errModelAway is what a node hears that does not get an answer.
var errModelAway = errors.New("away")

// Process implements [redis.UniversalClient] for calls of scripts.
func (c *modelWire) Process(ctx context.Context, cmd redis.Cmder) error {
	ask, ok := cmd.(modelCommand)
	require.True(c.t, ok, "the store sends %v", cmd)
	if c.fate == modelArrives {
		ask.SetVal(c.reply)
		return nil
	}
	args := ask.Args()
	if c.fate == modelHeld {
		c.world.late = append(c.world.late, modelLetter{args, c.plan, c.world.truth})
		return c.refuse(ask)
	}
	text, err := c.run(ctx, args)
	if err != nil {
		ask.SetErr(err)
		return err
	}
	if v := wire.Frame(text); v.Size() > 0 && (v.At(0) == int64(wire.NeedsBoundaries) || v.At(0) == int64(wire.NeedsTime)) {
		ask.SetVal(text) // the script asks back
		return nil
	}
	if !c.quiet {
		c.know, c.age = c.done(c.world, args, c.plan, text)
	}
	switch c.fate {
	case modelLost:
		return c.refuse(ask)
	case modelSlow:
		c.reply = text
		return c.refuse(ask)
	}
	ask.SetVal(text)
	return nil
}

func (c *modelWire) refuse(ask modelCommand) error {
	ask.SetErr(errModelAway)
	return errModelAway
}

// modelSpare is added to the lifetime of keys that are restored, so that one can
// see whether the call gave them another.
const modelSpare = time.Hour

// A modelResult is what a call did in one state of the server. It is the same each
// time: the seed that the call brings is made of that state.
type modelResult struct {
	keys map[string]modelKey
	text string
}

// modelMostResults bounds how many results are kept.
const modelMostResults = 1 << 16

// run runs a script in the world, at its time.
func (c *modelWire) run(ctx context.Context, args []any) (string, error) {
	w, count := c.world, args[2].(int)
	args = slices.Clone(args)
	args[3+count] = fmt.Sprint(w.clock)
	same := c.seed(args)
	r, ok := c.results[same]
	if !ok {
		var err error
		if r, err = c.really(ctx, args); err != nil {
			return "", err
		}
		if len(c.results) == modelMostResults {
			clear(c.results)
		}
		c.results[same] = r
	}
	w.keys = maps.Clone(r.keys)
	return r.text, nil
}

// seed gives the call a seed that is made of all that it depends on, and returns a
// name for that.
func (c *modelWire) seed(args []any) (name [16]byte) {
	count := args[2].(int)
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(c.world.keys)) {
		k := c.world.keys[name]
		fmt.Fprintf(h, "%s %d %d %d %d ", name, k.expires, k.know, k.at, len(k.value))
		h.Write([]byte(k.value))
	}
	blob := slices.Clone(args[4+count].([]byte))
	if !c.quiet {
		copy(blob[8:16], make([]byte, 8))
	}
	args[4+count] = blob
	for _, a := range args {
		if b, ok := a.([]byte); ok {
			h.Write(b)
		} else {
			fmt.Fprint(h, " ", a)
		}
	}
	copy(name[:], h.Sum(nil))
	if !c.quiet {
		copy(blob[8:16], wire.Frame(nil).Add(int64(binary.LittleEndian.Uint64(name[:])>>12+1)))
	}
	return name
}

// really runs the script.
func (c *modelWire) really(ctx context.Context, args []any) (r modelResult, err error) {
	w, count := c.world, args[2].(int)
	names := make(map[string]bool)
	pipe := c.UniversalClient.Pipeline()
	var old []string
	for name := range c.there {
		if _, ok := w.keys[name]; !ok {
			old = append(old, name)
		}
	}
	if len(old) > 0 {
		pipe.Del(ctx, old...)
	}
	for name, k := range w.keys {
		pipe.Set(ctx, name, k.value, modelSpare+time.Duration(k.expires-w.clock)*time.Microsecond)
		names[name] = true
	}
	cmd := redis.NewCmd(ctx, args...)
	pipe.Process(ctx, cmd)
	for _, name := range args[3 : 3+count] {
		names[name.(string)] = true
	}
	values, lives := make(map[string]*redis.StringCmd), make(map[string]*redis.DurationCmd)
	for name := range names {
		values[name], lives[name] = pipe.Get(ctx, name), pipe.PTTL(ctx, name)
	}
	c.there = names
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return r, err
	}
	c.calls++
	r.keys = make(map[string]modelKey, len(names))
	for name, v := range values {
		if value, err := v.Result(); err == nil {
			k := modelKey{value, w.expiry(w.keys[name], lives[name].Val()), 0, 0}
			if value == w.keys[name].value {
				k.know, k.at = w.keys[name].know, w.keys[name].at
			}
			r.keys[name] = k
		}
	}
	r.text, err = cmd.Text()
	return r, err
}

// modelCoarse is how exactly lifetimes are read: the server lives in real time.
const modelCoarse = 500 * time.Millisecond

// modelNever is when a key is over that has no expiry.
const modelNever = 1 << 60

// expiry is when a key is over that lives for so long; as before, if that is what
// it was restored with.
func (w *modelWorld) expiry(was modelKey, life time.Duration) int64 {
	switch {
	case life < 0:
		return modelNever
	case life > modelSpare/2 && was.expires != 0:
		return was.expires
	}
	return w.clock + wire.Micros((life + modelCoarse - 1).Truncate(modelCoarse))
}

// modelUnpadded is the script with keys that live as long as they should: the stores of
// tests have them live longer, because they live in real time.
func modelUnpadded(t *testing.T) wire.Script {
	const old, now = "IDLE, record_ms = IDLE + 3600 * 1000000, '3660000'", "IDLE = IDLE"
	require.Equal(t, 1, strings.Count(wire.BookScript.Source, old))
	return wire.FromSource(strings.Replace(wire.BookScript.Source, old, now, 1))
}

package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

// What every script begins with, in this order.
var (
	//go:embed lua/row.lua
	rowLua string
	//go:embed lua/penalty.lua
	penaltyLua string
	//go:embed lua/entries.lua
	entriesLua string
	//go:embed lua/rule.lua
	ruleLua string
	//go:embed lua/ceiling.lua
	ceilingLua string
	//go:embed lua/age.lua
	ageLua string
	//go:embed lua/bucket.lua
	bucketLua string
	//go:embed lua/ramp.lua
	rampLua string
	//go:embed lua/search.lua
	searchLua string
	//go:embed lua/turn.lua
	turnLua string
	//go:embed lua/queue.lua
	queueLua string
)

// What each does with it.
var (
	//go:embed lua/gates.lua
	gatesLua string
	//go:embed lua/hot.lua
	hotLua string
	//go:embed lua/place.lua
	placeLua string
	//go:embed lua/repair.lua
	repairLua string
	//go:embed lua/flight.lua
	flightLua string
	//go:embed lua/line.lua
	lineLua string
	//go:embed lua/book.lua
	bookLua string
	//go:embed lua/stand.lua
	standLua string
	//go:embed lua/serve.lua
	serveLua string
	//go:embed lua/pause.lua
	pauseLua string
	//go:embed lua/reconcile.lua
	reconcileLua string
	//go:embed lua/closed.lua
	closedLua string
	//go:embed lua/presence.lua
	presenceLua string
	//go:embed lua/status.lua
	statusLua string
	//go:embed lua/flight_pause.lua
	flightPauseLua string
	//go:embed lua/flight_status.lua
	flightStatusLua string
)

var (
	scriptBook      = newScript(gatesLua+hotLua, bookParts())
	scriptPause     = newScript("", pauseLua)
	scriptStatus    = newScript("", statusLua)
	scriptReconcile = newScript("", placeLua+reconcileLua)
	scriptClosed    = script{closedLua, sha(closedLua)}
	scriptPresence  = script{presenceLua, sha(presenceLua)}

	scriptFlightPause  = newScript("", flightLua+flightPauseLua)
	scriptFlightStatus = newScript("", flightLua+flightStatusLua)
)

// bookParts is what lua/book.lua is made of.
func bookParts() string {
	return placeLua + repairLua + flightLua + lineLua + bookLua + standLua + serveLua
}

// A script is what Redis runs, and the name that it knows it by.
type script struct{ source, hash string }

func newScript(before, main string) script {
	source := before + penaltyLua + rowLua + entriesLua + ruleLua + bucketLua + ceilingLua + ageLua + rampLua + searchLua + turnLua + queueLua + main
	return script{source, sha(source)}
}

// sha is the name that EVALSHA wants.
func sha(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}

// run runs the script and returns its answer.
func (p script) run(c redis.UniversalClient, keys []string, args []any) (numbers, error) {
	v, err := send(c, "evalsha", p.hash, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return send(c, "eval", p.source, keys, args)
	}
	return v, err
}

// send sends one command. It belongs to nobody's context: how long it may take
// is up to the client's own timeouts.
func send(c redis.UniversalClient, name, script string, keys []string, args []any) (numbers, error) {
	words := append(make([]any, 0, 3+len(keys)+len(args)), name, script, len(keys))
	for _, k := range keys {
		words = append(words, k)
	}
	ctx := context.Background()
	cmd := once{redis.NewCmd(ctx, append(words, args...)...)}
	if err := c.Process(ctx, cmd); err != nil {
		return nil, err
	}
	text, err := cmd.Text()
	return numbers(text), err
}

// A once is a command that the client must not repeat by itself: the lane does,
// because it knows how to ask what became of it.
type once struct{ *redis.Cmd }

// NoRetry tells the client so.
func (once) NoRetry() bool { return true }

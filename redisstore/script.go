package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// eval runs a script on a client and returns its answer.
func eval(c redis.UniversalClient, p wire.Script, keys []string, args []any) (numbers, error) {
	v, err := send(c, "evalsha", p.Hash, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return send(c, "eval", p.Source, keys, args)
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

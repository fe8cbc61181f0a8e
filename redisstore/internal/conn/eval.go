package conn

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// eval runs a script once and returns its answer.
func (c *Conn) eval(call wire.Call) (string, error) {
	args := call.Args(c.now())
	reply, err := c.send("evalsha", call.Script.Hash, call.Keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return c.send("eval", call.Script.Source, call.Keys, args)
	}
	return reply, err
}

// Run runs a script that is no call, and returns the list that it answers.
func (c *Conn) Run(ctx context.Context, s wire.Script, keys []string, args ...any) ([]any, error) {
	reply, err := c.client.EvalSha(ctx, s.Hash, keys, args...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = c.client.Eval(ctx, s.Source, keys, args...).Result()
	}
	if err != nil {
		return nil, c.failed(err, s)
	}
	list, _ := reply.([]any)
	return list, nil
}

// send sends one command. It belongs to no caller's context: how long it may take
// is up to the client's own timeouts.
func (c *Conn) send(name, script string, keys []string, args []any) (string, error) {
	words := append(make([]any, 0, 3+len(keys)+len(args)), name, script, len(keys))
	for _, k := range keys {
		words = append(words, k)
	}
	ctx := context.Background()
	cmd := once{redis.NewCmd(ctx, append(words, args...)...)}
	if err := c.client.Process(ctx, cmd); err != nil {
		return "", err
	}
	return cmd.Text()
}

// A once is a command that the client must not repeat by itself: only the owner of a
// call knows how to ask what became of it.
type once struct{ *redis.Cmd }

// NoRetry tells the client so.
func (once) NoRetry() bool { return true }

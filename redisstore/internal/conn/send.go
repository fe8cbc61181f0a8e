package conn

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// send sends a command that runs a script, evalsha or eval, and waits for its answer. It belongs to
// no caller's context: how long it may take is up to the client's own timeouts.
func (c *Conn) send(name, script string, keys []string, args []any) *redis.Cmd {
	words := append(make([]any, 0, 3+len(keys)+len(args)), name, script, len(keys))
	for _, k := range keys {
		words = append(words, k)
	}
	ctx := context.Background()
	cmd := noRetryCmd{redis.NewCmd(ctx, append(words, args...)...)}
	_ = c.client.Process(ctx, cmd) // the command has the error
	return cmd.Cmd
}

// A noRetryCmd is a command that the client must not repeat by itself: only the package that makes
// a call knows how to find out whether the call was done.
type noRetryCmd struct{ *redis.Cmd }

// NoRetry is the method by which go-redis asks a command.
func (noRetryCmd) NoRetry() bool { return true }

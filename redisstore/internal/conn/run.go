package conn

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// eval runs the script of a call once and returns its answer.
func (c *Conn) eval(call wire.Call) (string, error) {
	args := call.Args(c.now())
	return c.run(call.Script, call.Keys, func(name, script string) *redis.Cmd {
		return c.send(name, script, call.Keys, args)
	}).Text()
}

// Run runs a script that is not written as a wire.Call, such as those of package fleet, and returns
// the list that the script answers.
func (c *Conn) Run(ctx context.Context, s wire.Script, keys []string, args ...any) ([]any, error) {
	reply, err := c.run(s, keys, func(name, script string) *redis.Cmd {
		if name == "eval" {
			return c.client.Eval(ctx, script, keys, args...)
		}
		return c.client.EvalSha(ctx, script, keys, args...)
	}).Result()
	if err != nil {
		return nil, c.failed(err, s)
	}
	list, _ := reply.([]any)
	return list, nil
}

// run runs a script by its hash. To a server that does not know the script it sends the text, once
// the server is admitted. Exec sends a command, evalsha or eval.
func (c *Conn) run(s wire.Script, keys []string, exec func(name, script string) *redis.Cmd) *redis.Cmd {
	keyed := c.textIsRead.Load()
	if keyed {
		s = c.keyedScript(s)
	}
	cmd := exec("evalsha", s.Hash)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		if err := c.admit(keys); err != nil {
			cmd.SetErr(err)
			return cmd
		}
		cmd = exec("eval", s.Source)
	}
	if isRefusedText(cmd.Err()) && !keyed {
		c.textIsRead.Store(true)
		return c.run(s, keys, exec)
	}
	return cmd
}

// keyedScript returns the form of a script that proxies take which read the text.
func (c *Conn) keyedScript(s wire.Script) wire.Script {
	if keyed, ok := c.keyed.Load(s.Hash); ok {
		return keyed.(wire.Script)
	}
	keyed := s.Keyed()
	c.keyed.Store(s.Hash, keyed)
	return keyed
}

package conn

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// eval runs the script of a call once and returns its answer.
func (c *Conn) eval(call wire.Call) (string, error) {
	args := call.Args(c.now())
	return c.run(call.Script, call.Keys, func(name, script string) *redis.Cmd {
		cmd := c.send(name, script, call.Keys, args)
		if name == "eval" && call.Script.Hash == wire.BookScript.Hash && cmd.Err() == nil {
			c.bringStatus(call.Keys)
		}
		return cmd
	}).Text()
}

// Run runs a script that is not written as a wire.Call, such as those of package fleet, and returns
// the list that the script answers.
func (c *Conn) Run(ctx context.Context, s wire.Script, keys []string, args ...any) ([]any, error) {
	reply, err := c.run(s, keys, func(name, script string) *redis.Cmd {
		if name == "eval" {
			c.bringStatus(keys)
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
	describes := s.Hash == wire.StatusScript.Hash || s.Hash == wire.SlotsStatusScript.Hash
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
		if Denied(cmd.Err()) && describes {
			cmd.SetErr(errUnbrought)
		}
	}
	if isRefusedText(cmd.Err()) && !keyed {
		c.textIsRead.Store(true)
		return c.run(s, keys, exec)
	}
	return cmd
}

// errUnbrought is the final error of a question for the state of a budget by a user that may run only scripts that the server knows.
const errUnbrought = reply("this server does not know yet how to describe a budget: the next program that books there brings that")

// bringStatus brings the scripts that describe budgets to the server that has some keys and that does not know a script which every
// program runs. From then on users that may not send scripts, such as the watcher of docs/redis.md, can run the two. A failure
// is not told: the call that follows meets the same server.
func (c *Conn) bringStatus(keys []string) {
	if len(keys) == 0 {
		return
	}
	for _, limit := range []store.Limit{store.Unlimited(), store.Concurrency(1)} {
		q := wire.StatusRequest{Key: keys[0] + lockKey, Charge: &store.Charge{Limit: limit, Cost: 1}}
		_, _ = c.eval(q.Call(wire.Boundaries{}))
	}
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

package conn

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// admittedFor is for how long a server that was admitted is not looked at again. After a failover the
// same address may lead to a server that was not looked at.
const admittedFor = time.Minute

// admit finds out whether the server that has some keys can keep budgets. It is called when the server does not know
// a script, before the script is sent: so a server that knows a script was examined before, and a start costs no further
// call. A server that was admitted is not examined again for admittedFor. A server that would pass a limit, or that tells
// no time, gets no script: then the error wraps ErrUnfit, and says in one sentence the fault and the remedy. An error that
// does not wrap ErrUnfit says why the server did not answer.
func (c *Conn) admit(keys []string) error {
	// Without keys nobody can say which server the script is for.
	if len(keys) == 0 {
		return nil
	}

	s, addr, err := c.serverOf(keys[0])
	if err != nil {
		return err
	}
	if at, known := c.admitted.Load(addr); known && time.Since(at.(time.Time)) < admittedFor {
		return nil
	}

	// The cheap question comes first. Only a Garnet can be set so that its scripts are not atomic.
	id, err := identify(s)
	if err == nil {
		err = c.admitScripts(keys[:1], id)
	}
	if err == nil && id.garnet {
		err = c.admitLocks(keys[0])
	}
	if err == nil {
		c.admitted.Store(addr, time.Now())
	}

	return err
}

// unfit is the error of a server with a fault, or nil if the fault is "".
func unfit(fault string) error {
	if fault == "" {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUnfit, fault)
}

// A server answers commands.
type server interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// serverOf returns the server that has a key, and its address: a fixed text for a client of Sentinel, and "" for a type of
// client that does not tell it.
func (c *Conn) serverOf(key string) (_ server, addr string, err error) {
	// A cluster or a ring has many servers, and the key says which of them gets the script.
	var node *redis.Client
	switch client := c.client.(type) {
	case *redis.Client:
		node = client
	case *redis.ClusterClient:
		node, err = client.MasterForKey(context.Background(), key)
	case *redis.Ring:
		node, err = client.GetShardClientForKey(key)
	default:
		return client, "", nil
	}

	if err != nil {
		return nil, "", err
	}

	return node, node.Options().Addr, nil
}

// An identity is the answer of a server to HELLO.
type identity struct {
	version string // of Redis, that it is or is compatible with. It is "" if the server does not say.
	role    string
	garnet  bool
}

// identify asks a server who it is, by HELLO, which every user may send. The identity of a server, or of
// a proxy, that does not know HELLO is empty.
func identify(s server) (id identity, err error) {
	ctx := context.Background()
	hello := redis.NewCmd(ctx, "hello")
	err = s.Process(ctx, noRetryCmd{hello})

	// Any error in the server's own words is an answer: the server does not know HELLO. All of these begin with "".
	if begins(err, []string{""}) {
		return id, nil
	}

	each(hello.Val(), func(name, value string) {
		switch name {
		case "version":
			id.version = value
		case "role":
			id.role = value
		case "garnet_version":
			id.garnet = true
		}
	})

	return id, err
}

// each calls f with each name and value of a reply that is a map: in RESP2 a map is a list of names and values.
func each(reply any, f func(name, value string)) {
	switch reply := reply.(type) {
	case map[any]any:
		for name, value := range reply {
			f(fmt.Sprint(name), fmt.Sprint(value))
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			f(fmt.Sprint(reply[i]), fmt.Sprint(reply[i+1]))
		}
	}
}

// admitScripts finds out whether the scripts of a server with an identity have the functions that they need, and the time.
func (c *Conn) admitScripts(keys []string, id identity) error {
	answer, err := c.send("eval", wire.CheckScript.Source(), keys, []any{c.now()}).Slice()
	switch {
	// The next script needs more rights, and its error names the missing right.
	case Denied(err):
		return nil
	case err != nil:
		return err
	}
	return unfit(fault(id, answer))
}

// oldest is the oldest version of Redis that works.
const oldest = 7

// isOld reports whether the version that a server tells is too old, or is no version.
func isOld(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return err != nil || n < oldest
}

// fault says why a server with an identity, and with this answer to wire.CheckScript, cannot keep budgets. It is "" if the
// server can.
func fault(id identity, answer []any) string {
	const newer = "use Redis 7.0 or later, or Valkey"
	if len(answer) != 4 {
		return "it answers scripts with something else: " + newer
	}

	lacks, refusal, seconds, version := fmt.Sprint(answer[0]), fmt.Sprint(answer[1]), fmt.Sprint(answer[2]), fmt.Sprint(answer[3])
	switch {
	case id.role == "active-replica":
		return "it is an active replica of KeyDB, and so is the other master, which grants the same starts once more: " + newer
	case isOld(id.version) && isOld(version):
		return fmt.Sprintf("it says that it is Redis %s: %s", cmp.Or(id.version, version, "without a version, as before 7.0"), newer)
	case lacks != "":
		return "its scripts lack " + lacks + ": " + newer
	case Denied(serverError(refusal)):
		return "" // the error of the next script says which right is missing
	case refusal != "":
		return "it refuses TIME in scripts, the one clock of the fleet: use a service whose scripts may call TIME, as docs/run/redis.md says (" + refusal + ")"
	case seconds == "0":
		return "its TIME tells no time: " + newer
	}

	return ""
}

const (
	lockTime = 20 * time.Millisecond // for how long wire.CheckLockScript looks
	lockKey  = ":check"              // the end of the key that the script writes, behind a key of the same slot
)

// admitLocks finds out whether a script of Garnet has its keys to itself: a second connection writes the script's key while
// the script runs.
func (c *Conn) admitLocks(key string) error {
	key += lockKey

	// A second connection writes the key as fast as it can, while the script looks whether its own text stays.
	var writer sync.WaitGroup
	over := make(chan struct{})
	writer.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				c.client.Set(context.Background(), key, "another", 10*time.Second) // the last write expires
			}
		}
	})

	alone, err := c.send("eval", wire.CheckLockScript.Source(), []string{key}, []any{c.now(), "script", lockTime.Microseconds()}).Int()

	// The writer must be gone before the answer is judged, so that nothing writes the key afterwards.
	close(over)
	writer.Wait()

	switch {
	case err != nil:
		return err
	case alone != 1:
		return unfit("its scripts are not atomic, so it would grant more than the limit: start Garnet with --lua-transaction-mode")
	}

	return nil
}

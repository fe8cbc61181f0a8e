package waits

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// memberEnv holds the orders of a process that is started as a member of a fleet.
const memberEnv = "THROTTLE_WAITS_MEMBER"

// Orders are what a member does. Times are in nanoseconds since the Unix epoch.
type orders struct {
	Redis     string // host and port
	PerSecond int
	Callers   int
	Loop      bool // each caller asks again and again
	From, To  int64
}

// A start is what a member says of each: whose it was, and when.
type start struct {
	Caller   int
	Came, At int64
}

// beMember turns the test binary into a member, if it was started as one, and then
// never returns.
func beMember() {
	text, ok := os.LookupEnv(memberEnv)
	if !ok {
		return
	}
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	o.work()
	os.Exit(0)
}

// work lets all callers ask, and prints each start at once: the member may be
// killed.
func (o orders) work() {
	client := redis.NewClient(&redis.Options{Addr: o.Redis})
	defer client.Close()
	l := newLimiter(redisstore.New(client, nil), throttle.PerSecond(o.PerSecond))
	ctx, over := context.WithCancel(context.Background())
	defer over()
	time.AfterFunc(time.Until(time.Unix(0, o.To)), over)
	time.Sleep(time.Until(time.Unix(0, o.From)))
	var mu sync.Mutex
	say := json.NewEncoder(os.Stdout)
	var all sync.WaitGroup
	for i := range o.Callers {
		all.Go(func() {
			for again := true; again; again = o.Loop {
				came := time.Now().UnixNano()
				if _, err := l.Acquire(ctx, "", 1); err != nil {
					if ctx.Err() == nil {
						fmt.Fprintln(os.Stderr, "waits:", err)
					}
					return
				}
				mu.Lock()
				_ = say.Encode(start{i, came, time.Now().UnixNano()})
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

// A member is a process that works.
type member struct {
	cmd    *exec.Cmd
	gone   <-chan struct{}
	starts chan []start // all, when it has ended
}

// enlist starts a member.
func enlist(t *testing.T, o orders) *member {
	cmd := exec.Command(must(os.Executable()))
	cmd.Env = append(os.Environ(), memberEnv+"="+string(must(json.Marshal(o))))
	cmd.Stderr = os.Stderr
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout = w
	m := &member{cmd: cmd, starts: make(chan []start, 1)}
	m.gone = must(redistest.Spawn(cmd))
	require.NoError(t, w.Close())
	go func() {
		defer r.Close()
		var list []start
		for lines := bufio.NewScanner(r); lines.Scan(); {
			var s start
			if json.Unmarshal(lines.Bytes(), &s) == nil { // the last line of one that was killed may be torn
				list = append(list, s)
			}
		}
		m.starts <- list
	}()
	return m
}

// kill ends the member as a crash would.
func (m *member) kill() {
	_ = m.cmd.Process.Kill() // it may have ended
	<-m.gone
}

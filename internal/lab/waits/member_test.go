package waits

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

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

// work lets all callers ask, and tells of each start at once: the member may be killed.
func work(program *crew.Link) error {
	var o orders
	if err := program.Hear(&o); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: o.Redis})
	defer client.Close()
	l := newLimiter(redisstore.New(client, redisstore.Options{}), store.PerSecond(o.PerSecond))
	ctx, over := context.WithCancel(context.Background())
	defer over()
	time.AfterFunc(time.Until(time.Unix(0, o.To)), over)
	time.Sleep(time.Until(time.Unix(0, o.From)))
	var all sync.WaitGroup
	for i := range o.Callers {
		all.Go(func() {
			for again := true; again; again = o.Loop {
				came := time.Now().UnixNano()
				if _, err := l.Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1); err != nil {
					if ctx.Err() == nil {
						fmt.Fprintln(os.Stderr, "waits:", err)
					}
					return
				}
				_ = program.Tell(start{i, came, time.Now().UnixNano()})
			}
		})
	}
	all.Wait()
	return nil
}

// A member is a process that works.
type member struct {
	*crew.Member
	starts chan []start // all, when it has ended
}

// enlist starts a member.
func enlist(t *testing.T, o orders) *member {
	m := &member{must(crew.Start(t.Context(), "waits", o)), make(chan []start, 1)}
	go func() {
		var list []start
		for {
			var s start
			if m.Link.Hear(&s) != nil { // the last of one that was killed may be torn
				break
			}
			list = append(list, s)
		}
		m.starts <- list
	}()
	return m
}

package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/redis/go-redis/v9"
)

// memberEnv holds a member's orders.
const memberEnv = "THROTTLE_FLEET_MEMBER"

// orders are what a member is told when it starts.
type orders struct {
	Config  Config
	Process int
	URL     string // of the upstream; "": none, every request is answered at once
	Root    []byte // the certificate of the upstream; nil: plain HTTP
}

// A result is what a member says in the end.
type result struct {
	Samples []Sample
	Trips   int // to Redis, until the end of the load
	Events  map[string]int
}

// Main turns the program into a member of a fleet if [Run] started it as one,
// and then never returns. Limiters are known to Run by their names.
func Main(more map[string]Limiter) {
	text, ok := os.LookupEnv(memberEnv)
	if !ok {
		return
	}
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.serve(limiters(more)[o.Config.Limiter], os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve prepares the member, writes a line when it is ready, waits for a line,
// works, and writes its result. It gives up when in ends: the program that
// started it is gone.
func (o orders) serve(limiter Limiter, in io.Reader, out io.Writer) error {
	if limiter == nil {
		return fmt.Errorf("unknown limiter %q", o.Config.Limiter)
	}
	limit, err := o.Config.check()
	if err != nil {
		return err
	}
	m := Member{Config: o.Config, Limit: limit, Base: o.base(), events: &events{count: map[string]int{}}}
	trips := &Trips{}
	if o.Config.Redis != "" {
		options, err := redis.ParseURL(o.Config.Redis)
		if err != nil {
			return err
		}
		m.Redis = redis.NewClient(options)
		defer m.Redis.Close()
		m.Redis.AddHook(trips)
	}
	transport, err := limiter(m)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	lines := bufio.NewReader(in)
	if _, err := lines.ReadString('\n'); err != nil {
		return err
	}
	ctx, orphaned := context.WithCancelCause(context.Background())
	go func() {
		_, err := lines.ReadString('\n')
		orphaned(err)
	}()
	var r result
	r.Samples, err = o.work(ctx, transport, func() {
		r.Trips = trips.Count() // what the end of the load causes is not its cost
	})
	if err != nil {
		return err
	}
	r.Events = m.events.total()
	return json.NewEncoder(out).Encode(r)
}

package fleet

import (
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
)

// role is the role of the members.
const role = "fleet"

// A result is a member's last message.
type result struct {
	Samples []Sample
	Trips   int // to Redis, until the end of the load
	Events  map[string]int
}

// Main turns the program into a member of a fleet if [Run] started it as one,
// and then never returns. Limiters are known to Run by their names.
func Main(more map[string]Limiter) {
	crew.Main(role, func(program *crew.Link) error {
		var o orders
		if err := program.Hear(&o); err != nil {
			return err
		}
		return o.serve(limiters(more)[o.Config.Limiter], program)
	})
}

// serve prepares the member, tells the program that it is ready, waits for the program's word, works, and tells its result.
// It returns an error if the orders are wrong, a worker fails, or the program is gone.
func (o orders) serve(limiter Limiter, program *crew.Link) error {
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
	if err := program.Tell("ready"); err != nil {
		return err
	}

	var word string
	if err := program.Hear(&word); err != nil {
		return err
	}

	var r result
	// Count the round trips at the end of the load: callers that leave later make calls, too.
	r.Samples, err = o.work(program.Alone(), transport, func() { r.Trips = trips.Count() })
	if err != nil {
		return err
	}

	r.Events = m.events.total()
	return program.Tell(r)
}

package benchmarks

import (
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

// role is that of a member of a crew.
const role = "benchmarks"

func TestMain(m *testing.M) {
	fleet.Main(fleetLimiters())
	crew.Main(role, newMember().serve)
	os.Exit(m.Run())
}

// An order is what a crew is told to do: to take starts from a peer, in a
// closed loop for each worker.
type order struct {
	Peer    string
	Redis   string // the URL of the peer's own database
	Limit   limit
	Process int // which member this is
	Workers int
	Crowd   bool // many keys instead of one
	Load    time.Duration

	Patience time.Duration // how long calls may take after the load; 0: straggling
}

// A done is what a member reports.
type done struct {
	Calls  int
	Took   time.Duration
	Trips  int           // round trips to Redis
	Median time.Duration // of a worker's calls, if it was alone; 0: it was not
}

// A member is one process of a crew.
type member struct {
	open map[string]*opened // by peer and limit: later orders find it ready
}

// An opened peer has a client of its own.
type opened struct {
	ask   ask
	trips fleet.Trips
}

func newMember() *member { return &member{open: make(map[string]*opened)} }

// serve carries out orders until the program is gone. It prepares for an order, says so,
// waits for a word, works, and reports.
func (m *member) serve(program *crew.Link) error {
	var none struct{}
	if err := program.Hear(&none); err != nil {
		return err
	}
	if err := program.Tell("ready"); err != nil {
		return err
	}
	for {
		var o order
		if err := program.Hear(&o); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		p, err := m.peer(o)
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
		d, err := o.work(p)
		if err != nil {
			return fmt.Errorf("%s: %w", o.Peer, err)
		}
		if err := program.Tell(d); err != nil {
			return err
		}
	}
}

// poolSize lets many workers have a connection of their own.
const poolSize = 64

func (m *member) peer(o order) (*opened, error) {
	name := fmt.Sprint(o.Peer, o.Limit, o.Redis)
	if p := m.open[name]; p != nil {
		return p, nil
	}
	p, ok := findPeer(o.Peer)
	if !ok {
		return nil, fmt.Errorf("unknown peer %q", o.Peer)
	}
	options, err := redis.ParseURL(o.Redis)
	if err != nil {
		return nil, err
	}
	options.PoolSize = poolSize
	client, got := redis.NewClient(options), &opened{}
	client.AddHook(&got.trips)
	got.ask, err = p.open(client, o.Limit)
	m.open[name] = got
	return got, err
}

// work carries out an order.
func (o order) work(p *opened) (done, error) {
	before := p.trips.Count()
	d, err := o.rush(p.ask)
	d.Trips = p.trips.Count() - before
	return d, err
}

package rowstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// TestP7_CrowdsThatLeave: crowds of callers of several nodes come and leave, more than a row lists, and those that stay start all the time:
// requests under way and a rate bound them, and no place of a caller that has left holds them up.
func TestP7_CrowdsThatLeave(t *testing.T) {
	soak.WithoutRace(t) // the fleets of pgstore and sqlstore have crowds, too
	for seed := range uint64(soak.Most(300, 12)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := crowds{T: t, rand: rand.New(rand.NewPCG(seed, 1)), started: make(chan struct{}, 1)}
				c.play(2 + int(seed%3))
			})
		})
	}
}

// crowds are the callers of a scene.
type crowds struct {
	*testing.T
	started chan struct{}

	mu   sync.Mutex
	rand *rand.Rand
}

// below waits for less than d.
func (c *crowds) below(d time.Duration) {
	c.mu.Lock()
	d = time.Duration(c.rand.Int64N(int64(d)))
	c.mu.Unlock()
	time.Sleep(d)
}

func (c *crowds) play(nodes int) {
	m := notifier{newMemory()}
	ctx, leave := context.WithCancel(c.Context())
	var all sync.WaitGroup
	var over atomic.Bool
	for range nodes {
		l, err := throttle.NewLimiters(throttle.Config{MaxWait: throttle.Forever, Store: must(rowstore.New(m, rowstore.Options{})), Policies: []throttle.Policy{
			{Name: "rate", Limit: store.PerSecond(40)}, {Name: "slots", Limit: store.Concurrency(8)},
		}})
		require.NoError(c, err)
		for range 8 {
			all.Go(func() {
				for !over.Load() {
					c.start(ctx, l)
				}
			})
		}
		all.Go(func() {
			for !over.Load() {
				c.crowd(ctx, l)
			}
		})
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		select {
		case <-c.started:
		case <-time.After(1500 * time.Millisecond):
			c.Error("nothing starts any more")
			end = time.Now()
		}
	}
	over.Store(true)
	leave()
	all.Wait()
}

// start takes a start, and holds the slot for some time.
func (c *crowds) start(ctx context.Context, l *throttle.Limiters) {
	p, err := l.Acquire(ctx, throttle.Demand{Policy: "rate"}, throttle.Demand{Policy: "slots"})
	if err != nil {
		if ctx.Err() == nil {
			c.Error(err)
		}
		return
	}
	select {
	case c.started <- struct{}{}:
	default:
	}
	c.below(150 * time.Millisecond)
	p.Release()
}

// crowd is callers that come together, and leave together.
func (c *crowds) crowd(ctx context.Context, l *throttle.Limiters) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { c.start(ctx, l) })
	}
	c.below(400 * time.Millisecond)
	leave()
	all.Wait()
	c.below(300 * time.Millisecond)
}

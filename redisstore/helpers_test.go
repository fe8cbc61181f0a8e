package redisstore_test

import (
	"context"
	"crypto/sha256"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// bubbleClock is the time of the bubble that it is asked in.
func bubbleClock() int64 { return time.Now().UnixMicro() }

// charge returns a charge of 1 without jitter to a budget of that name.
func charge(name string, l throttle.Limit) throttle.Charge {
	key := sha256.Sum256([]byte(name))
	return throttle.Charge{
		Budget: throttle.Budget{Policy: name, Group: "group", Key: [16]byte(key[:])},
		Limit:  l, Cost: 1,
	}
}

// atRest has the test end when the store makes no call any more. Some are made for
// nobody, and time stands still in a bubble that has ended.
func atRest(t *testing.T, s *redisstore.Store) *redisstore.Store {
	t.Cleanup(func() {
		calls := func() {
			for s.Running() > 0 {
				time.Sleep(time.Millisecond)
			}
		}
		calls()
		time.Sleep(time.Minute) // the client's own pauses
		calls()                 // what has come up meanwhile
	})
	return s
}

// inGroup returns the charge with another group.
func inGroup(group string, c throttle.Charge) throttle.Charge {
	c.Budget.Group = group
	return c
}

// booking is patient.
func booking(charges ...throttle.Charge) *throttle.Booking {
	return &throttle.Booking{Charges: slices.Clone(charges), MaxWait: -1}
}

// book books, however long the wait, and returns the wait.
func book(t *testing.T, s throttle.Store, charges ...throttle.Charge) time.Duration {
	t.Helper()
	g, err := s.Book(t.Context(), booking(charges...))
	require.NoError(t, err)
	require.True(t, g.OK)
	return g.Wait
}

// telling is for how long nobody starts under a budget that was lost, or for a window
// if that is less: so long the others have to tell what they know.
const telling = time.Second

// bookLost books after a loss, and returns in how long from now the start is.
func bookLost(t *testing.T, s throttle.Store, charges ...throttle.Charge) time.Duration {
	t.Helper()
	asked := time.Now()
	wait := book(t, s, charges...)
	return time.Since(asked) + wait
}

// isScript reports whether a command runs a script.
func isScript(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") }

// A tap is a hook that keeps the commands that pass it, and may hold back the
// answers of some until it is told to go on.
type tap struct {
	mu   sync.Mutex
	cmds []redis.Cmder

	hold func(redis.Cmder) bool // whose answers are held back; nil: none
	pass chan struct{}          // each value, or closing, lets one answer through
}

// newTap adds a tap to the client. A tap that holds answers back must be made in
// the bubble that uses it.
func newTap(c redis.UniversalClient, hold func(redis.Cmder) bool) *tap {
	p := &tap{hold: hold, pass: make(chan struct{})}
	c.AddHook(p)
	return p
}

func (p *tap) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (p *tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		p.mu.Lock()
		p.cmds = append(p.cmds, cmd)
		p.mu.Unlock()
		err := next(ctx, cmd)
		if p.hold != nil && p.hold(cmd) {
			<-p.pass
		}
		return err
	}
}

func (p *tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// names returns the names of the commands since it was last asked.
func (p *tap) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, cmd := range p.cmds {
		names = append(names, cmd.Name())
	}
	p.cmds = nil
	return names
}

// loaded returns a store on an empty database whose scripts the server knows
// already, and a tap that has seen nothing yet.
func loaded(t *testing.T, c redis.UniversalClient, hold func(redis.Cmder) bool) (*redisstore.Store, *tap) {
	t.Helper()
	require.NoError(t, c.FlushDB(t.Context()).Err())
	s := atRest(t, redisstore.NewAt(c, nil, bubbleClock))
	first := charge("first", throttle.PerSecond(1))
	book(t, s, first)
	require.NoError(t, s.Pause(t.Context(), first, 0))
	_, err := s.Status(t.Context(), first)
	require.NoError(t, err)
	return s, newTap(c, hold)
}

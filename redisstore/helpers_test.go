package redisstore_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// bubbleClock is the time of the bubble that it is asked in.
func bubbleClock() int64 { return time.Now().UnixMicro() }

// defaultJitter is what throttle.Policy.Jitter is by default.
const defaultJitter = 35 * time.Millisecond

// charge returns a charge of 1 without jitter to a budget of that name.
func charge(name string, l store.Limit) store.Charge {
	key := sha256.Sum256([]byte(name))
	return store.Charge{
		Budget: store.Budget{Policy: name, Group: "group", Key: [16]byte(key[:])},
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

// beside lets a test run beside others. Its subtests run one after the other.
func beside(t *testing.T) {
	if !strings.Contains(t.Name(), "/") {
		t.Parallel()
	}
}

// inBubble runs a test in virtual time, with an empty database. Others run beside it.
func inBubble(t *testing.T, test func(t *testing.T, server *redistest.Server)) {
	t.Helper()
	beside(t)
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) { test(t, server) })
}

// runBubble runs a subtest in virtual time, with an empty database.
func runBubble(t *testing.T, name string, test func(t *testing.T, server *redistest.Server)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}

// each runs a subtest for each value, which is its name. Other tests run beside them.
func each[V any](t *testing.T, values []V, test func(t *testing.T, v V)) {
	t.Helper()
	beside(t)
	for _, v := range values {
		t.Run(fmt.Sprint(v), func(t *testing.T) { test(t, v) })
	}
}

// eachBubble does so in virtual time, with an empty database for each.
func eachBubble[V any](t *testing.T, values []V, test func(t *testing.T, server *redistest.Server, v V)) {
	t.Helper()
	each(t, values, func(t *testing.T, v V) {
		inBubble(t, func(t *testing.T, server *redistest.Server) { test(t, server, v) })
	})
}

// seeds returns so many.
func seeds(many int) (all []uint64) {
	for i := range many {
		all = append(all, uint64(i))
	}
	return all
}

// onTap runs a test in virtual time with what loaded returns, and the store's client.
func onTap(t *testing.T, hold func(redis.Cmder) bool, test func(t *testing.T, c *redis.Client, s *redisstore.Store, tap *tap)) {
	t.Helper()
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		c := server.Client(t)
		s, tap := loaded(t, c, hold)
		test(t, c, s, tap)
	})
}

// onEmpty runs a test in virtual time with a store on an empty database.
func onEmpty(t *testing.T, test func(t *testing.T, c *redis.Client, s *redisstore.Store)) {
	t.Helper()
	onTap(t, nil, func(t *testing.T, c *redis.Client, s *redisstore.Store, _ *tap) {
		test(t, c, s)
		time.Sleep(2 * time.Second) // calls that are left behind come to their end
	})
}

// rest lets time pass in a bubble, and all happen that is due then.
func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// forAtMost returns a context that ends after d, or with the test.
func forAtMost(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// clientOf returns a client that is closed with the test.
func clientOf(t *testing.T, o *redis.Options) *redis.Client {
	client := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// inGroup returns the charge with another group.
func inGroup(group string, c store.Charge) store.Charge {
	c.Budget.Group = group
	return c
}

// booking is patient.
func booking(charges ...store.Charge) *store.Booking {
	return &store.Booking{Charges: slices.Clone(charges), MaxWait: -1}
}

// bookingFor is patient for so long.
func bookingFor(d time.Duration, charges ...store.Charge) *store.Booking {
	k := booking(charges...)
	k.MaxWait = d
	return k
}

// book books, however long the wait, and returns the wait.
func book(t *testing.T, s store.Store, charges ...store.Charge) time.Duration {
	t.Helper()
	g := ask(t, s, booking(charges...))
	require.True(t, g.OK)
	return g.Wait
}

// ask books, and returns what it was told.
func ask(t *testing.T, s store.Store, k *store.Booking) store.Grant {
	t.Helper()
	g, err := s.Book(t.Context(), k)
	require.NoError(t, err)
	return g
}

// status returns how a budget stands.
func status(t *testing.T, s store.Store, c store.Charge) store.Status {
	t.Helper()
	st, err := s.Status(t.Context(), c)
	require.NoError(t, err)
	return st
}

// forgets makes a server lose all that its database holds.
func forgets(t *testing.T, c redis.UniversalClient) {
	t.Helper()
	require.NoError(t, c.FlushDB(t.Context()).Err())
}

// refused books what must not have room, and does not wait.
func refused(t *testing.T, s store.Store, charges ...store.Charge) store.Grant {
	t.Helper()
	g := ask(t, s, bookingFor(0, charges...))
	require.False(t, g.OK)
	require.Nil(t, g.Ready)
	return g
}

// startNow books so many starts that have room at once.
func startNow(t *testing.T, s store.Store, many int, charges ...store.Charge) {
	t.Helper()
	for range many {
		require.Zero(t, book(t, s, charges...))
	}
}

// limiter returns a limiter of one policy.
func limiter(t require.TestingT, s store.Store, p throttle.Policy) *throttle.Limiter {
	l, err := throttle.NewLimiter(s, p)
	require.NoError(t, err)
	return l
}

// telling is for how long nobody starts under a budget that was lost, or for a window
// if that is less: so long the others have to tell what they know.
const telling = time.Second

// bookLost books after a loss, and returns in how long from now the start is.
func bookLost(t *testing.T, s store.Store, charges ...store.Charge) time.Duration {
	t.Helper()
	asked := time.Now()
	wait := book(t, s, charges...)
	return time.Since(asked) + wait
}

// booked returns how many starts a budget has, those to come among them.
func booked(t *testing.T, s store.Store, c store.Charge) int {
	t.Helper()
	st := status(t, s, c)
	return st.Used + st.Waiting
}

// loaded returns a store on an empty database whose scripts the server knows
// already, and a tap that has seen nothing yet.
func loaded(t *testing.T, c redis.UniversalClient, hold func(redis.Cmder) bool) (*redisstore.Store, *tap) {
	t.Helper()
	forgets(t, c)
	s := atRest(t, redisstore.NewAt(c, redisstore.Options{}, bubbleClock))
	first := charge("first", store.PerSecond(1))
	book(t, s, first)
	require.NoError(t, s.Pause(t.Context(), first, 0))
	state(t, s, first, 0, time.Second)
	status(t, s, first)
	return s, newTap(c, hold)
}

// isScript reports whether a command runs a script.
func isScript(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") }

// A tap is a hook that keeps the commands that pass it, and may hold back the
// answers of some until it is told to go on.
type tap struct {
	mu   sync.Mutex
	cmds []redis.Cmder

	hold func(redis.Cmder) bool // whose answers are held back. Nil means none.
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

// letOne lets one answer through that is held back, and all happen that comes of it.
func (p *tap) letOne() {
	p.pass <- struct{}{}
	synctest.Wait()
}

// open lets all answers through, and all happen that comes of it.
func (p *tap) open() {
	close(p.pass)
	synctest.Wait()
}

// A middle is a hook that stands between a client and the server's scripts.
type middle func(cmd redis.Cmder, next func() error) error

func (m middle) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m middle) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !isScript(cmd) {
			return next(ctx, cmd)
		}
		return m(cmd, func() error { return next(ctx, cmd) })
	}
}

func (m middle) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// failing lets a command fail with an error.
func failing(cmd redis.Cmder, err error) error {
	cmd.SetErr(err)
	return err
}

// A says is a hook that answers script calls in the server's place for as long
// as err is set.
type says struct {
	tap
	err   atomic.Pointer[error]
	calls atomic.Int64
}

func (h *says) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.err.Load(); err != nil && isScript(cmd) {
			h.calls.Add(1)
			cmd.SetErr(*err)
			return *err
		}
		return next(ctx, cmd)
	}
}

func (h *says) set(err error) { h.err.Store(&err) }

// saying returns a store whose server says err to everything, and the hook.
func saying(t *testing.T, c redis.UniversalClient, err error) (*redisstore.Store, *says) {
	t.Helper()
	s, _ := loaded(t, c, nil)
	h := &says{}
	h.set(err)
	c.AddHook(h)
	return s, h
}

// A said is an error that comes from the server itself.
type said string

func (e said) Error() string { return string(e) }

func (said) RedisError() {}

var errAway = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// must returns the value of a constructor that has no error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

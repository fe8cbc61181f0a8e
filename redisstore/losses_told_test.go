package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// A forgetfulFleet is programs that start under one budget of a server that forgets. What the
// programs know is a prefix of the starts, because each answer tells all starts before it.
type forgetfulFleet struct {
	*testing.T
	rng      *rand.Rand
	client   *redis.Client
	charge   store.Charge
	programs []*redisstore.Store
	started  int
	known    []int // of the starts, by each program
}

// start books a start for a program, after the others had time to tell what was lost.
func (f *forgetfulFleet) start(program int) {
	require.LessOrEqual(f, bookLost(f.T, f.programs[program], f.charge), telling)
	f.started++
	f.known[program] = f.started
}

func (f *forgetfulFleet) join() {
	f.programs = append(f.programs, redisstore.NewAt(f.client, redisstore.Options{}, bubbleClock))
	f.known = append(f.known, 0)
}

// deploy replaces so many programs by new ones, which know nothing.
func (f *forgetfulFleet) deploy(programs int) {
	for i := range programs {
		f.programs[i], f.known[i] = redisstore.NewAt(f.client, redisstore.Options{}, bubbleClock), 0
	}
}

// recall lets each program start once, in random order, and requires that the row has what any
// of them knew and what they started since, and no more, or no more than so many too many.
func (f *forgetfulFleet) recall(tooMany int, what string) {
	known := 0
	for _, n := range f.known {
		known = max(known, n)
	}
	f.started = known
	for _, i := range f.rng.Perm(len(f.programs)) {
		f.start(i)
	}
	n := booked(f.T, f.programs[0], f.charge)
	require.GreaterOrEqual(f, n, f.started, what)
	require.LessOrEqual(f, n, f.started+tooMany, what)
}

// TestP12_ALossIsToldOnce: after each loss a row has what any living program knew, once, however
// many tell it and in whatever order, and also the starts of programs that are gone.
func TestP12_ALossIsToldOnce(t *testing.T) {
	t.Parallel()
	losses := map[string]func(*forgetfulFleet){
		"emptied": func(f *forgetfulFleet) { forgets(f.T, f.client) },
		"key lost": func(f *forgetfulFleet) {
			require.NoError(f, f.client.Del(f.Context(), f.programs[0].Key(f.charge.Budget)).Err())
		},
		"restarted": func(f *forgetfulFleet) { forgets(f.T, f.client); time.Sleep(2 * time.Minute) },
	}
	limits := []store.Limit{
		store.PerHour(2000), store.CalendarWindow(5000, store.Month, time.UTC), store.FixedWindow(2000, time.Hour),
		store.SlidingWindow(2000, 24*time.Hour),
	}
	for _, limit := range limits[:soak.Most(len(limits), 2)] {
		for _, programs := range soak.Most([]int{1, 8, 60}, []int{1, 20}) {
			for name, lose := range losses {
				t.Run(fmt.Sprint(limit, " ", programs, " ", name), func(t *testing.T) {
					forgotten(t, func(t *testing.T, client *redis.Client, _ func()) {
						f := &forgetfulFleet{T: t, rng: rand.New(rand.NewPCG(uint64(programs), 17)), client: client, charge: charge("budget", limit)}
						for range programs {
							f.join()
						}
						for range 142 {
							f.start(f.rng.IntN(programs))
							time.Sleep(time.Duration(f.rng.IntN(1000)) * time.Millisecond)
						}
						for i := range 3 {
							lose(f)
							f.recall(0, fmt.Sprint("loss ", i))
							f.deploy(programs / 2)
							lose(f)
							f.recall(0, fmt.Sprint("deployment and loss ", i))
						}
					})
				})
			}
		}
	}
}

// TestP12_ALossOfOtherRowsIsToldOnce is TestP12_ALossIsToldOnce for a bucket, whose level goes on,
// for a window that is shorter than the time to tell, and for programs that cancel: then what they
// told of is counted, so that a row may have as many starts too many as were cancelled. All tell
// before any of them starts.
func TestP12_ALossOfOtherRowsIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		limit  store.Limit
		gap    time.Duration
		cancel bool
	}{
		"bucket":  {store.TokenBucket(1, time.Hour, 300), time.Second, false},
		"short":   {store.SlidingWindow(200, 800*time.Millisecond), 2 * time.Millisecond, false},
		"cancels": {store.PerHour(2000), time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
				const programs = 8
				f := &forgetfulFleet{T: t, rng: rand.New(rand.NewPCG(8, 19)), client: client, charge: charge("budget", x.limit)}
				for range programs {
					f.join()
				}
				cancelled := 0
				for range 142 {
					program := f.rng.IntN(programs)
					f.start(program)
					if x.cancel && f.rng.IntN(5) == 0 {
						k := booking(f.charge)
						f.programs[program].Cancel(k, ask(t, f.programs[program], k))
						cancelled++
					}
					time.Sleep(time.Duration(f.rng.Int64N(int64(x.gap))))
				}
				forget()
				var told []**outcome
				for _, program := range f.rng.Perm(programs) {
					told = append(told, bookAside(t.Context(), f.programs[program], booking(f.charge)))
				}
				n := booked(t, f.programs[0], f.charge)
				require.GreaterOrEqual(t, n, f.started)
				require.LessOrEqual(t, n, f.started+cancelled)
				rest(2 * time.Second)
				for _, outcome := range told {
					require.True(t, (*outcome).grant.OK)
				}
			})
		})
	}
}

// TestP12_ABackupIsToldOnce: a server that is back at an earlier state, as a replica that lags or
// one that was restarted from a snapshot, is told what it forgot, once. Starts of one entry of the
// row, a 128th of the window, cannot be told apart: those that share an entry with the last start
// before may count twice, and no more, however many programs there are.
func TestP12_ABackupIsToldOnce(t *testing.T) {
	t.Parallel()
	const before, lost = 120, 22
	for _, fleet := range []struct {
		limit    store.Limit
		programs int
		gap      time.Duration // the longest between two starts
		inEntry  int           // how many starts may share an entry
	}{
		{store.PerHour(2000), 1, 4 * time.Second, 30}, // an entry of the hour is 28 s long
		{store.PerHour(2000), 8, 4 * time.Second, 30},
		{store.PerHour(2000), soak.Most(60, 30), 100 * time.Millisecond, before},
		{store.CalendarWindow(5000, store.Month, time.UTC), 8, time.Second, before},
	} {
		for _, deployed := range []int{0, fleet.programs / 2} {
			for seed := range uint64(soak.Seeds(6, 2)) {
				t.Run(fmt.Sprint(fleet.limit, " ", fleet.programs, " ", deployed, " ", seed), func(t *testing.T) {
					forgotten(t, func(t *testing.T, client *redis.Client, _ func()) {
						f := &forgetfulFleet{T: t, rng: rand.New(rand.NewPCG(seed, 18)), client: client, charge: charge("budget", fleet.limit)}
						for range fleet.programs {
							f.join()
						}
						starts := func(n int) {
							for range n {
								f.start(f.rng.IntN(fleet.programs))
								time.Sleep(time.Duration(f.rng.Int64N(int64(fleet.gap))))
							}
						}
						starts(before)
						kept := keepRows(t, client)
						starts(lost)
						f.deploy(deployed)
						kept.restore(t, client)
						f.recall(fleet.inEntry, "back")
					})
				})
			}
		}
	}
}

// A starts is which starts a row has, or a program knows of.
type starts map[int]bool

// A lossyFleet is programs and a server that loses a row again and again, while programs are
// replaced by new ones, and some are silent from one loss to the next. Its definition is that a row
// has all that programs told it, once, and that a program knows all that rows had when it called.
type lossyFleet struct {
	*forgetfulFleet
	row    starts
	knows  []starts
	silent []bool
}

func (f *lossyFleet) start(program int) {
	f.forgetfulFleet.start(program)
	maps.Copy(f.row, f.knows[program])
	f.row[f.started] = true
	maps.Copy(f.knows[program], f.row)
	f.silent[program] = false
}

func (f *lossyFleet) startSome(most int) {
	for range f.rng.IntN(most) {
		f.start(f.rng.IntN(len(f.programs)))
		time.Sleep(time.Duration(f.rng.IntN(1000)) * time.Millisecond)
	}
}

// TestP12_LossesAmongNewAndSilentPrograms: whoever tells first after a loss, one that knows
// nothing, one that knows a little, or one that was silent during the loss before.
func TestP12_LossesAmongNewAndSilentPrograms(t *testing.T) {
	soak.WithoutRace(t)
	t.Parallel()
	first := []uint64{141, 184, 281} // a program knew less than others of a generation that had no name any more
	for _, seed := range append(seeds(soak.Seeds(40, 7)), first...) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			lossesAmongPrograms(t, seed, 8, func(t *testing.T, want, booked int) { require.Equal(t, want, booked) })
		})
	}
}

// lossesAmongPrograms loses a row so often, and has judge look after each loss at how many starts the
// row must have, and has.
func lossesAmongPrograms(t *testing.T, seed uint64, losses int, judge func(t *testing.T, want, booked int)) {
	limits := []store.Limit{
		store.PerHour(4000), store.SlidingWindow(4000, 24*time.Hour), store.FixedWindow(4000, 24*time.Hour),
		store.CalendarWindow(5000, store.Month, time.UTC),
	}
	forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
		rng := rand.New(rand.NewPCG(seed, 77))
		c := charge("budget", limits[rng.IntN(len(limits))])
		programs := []int{1, 2, 8, 60}[rng.IntN(4)]
		f := &lossyFleet{&forgetfulFleet{T: t, rng: rng, client: client, charge: c}, make(starts), nil, make([]bool, programs)}
		for range programs {
			f.join()
			f.knows = append(f.knows, make(starts))
		}
		f.startSome(80)
		for range losses {
			time.Sleep(2 * time.Second) // generations rise by the second
			if rng.IntN(2) == 0 {
				forget()
			} else {
				require.NoError(t, client.Del(t.Context(), f.programs[0].Key(c.Budget)).Err())
			}
			clear(f.row)
			if rng.IntN(2) == 0 {
				replaced := rng.IntN(programs)
				f.deploy(replaced)
				for i := range replaced {
					f.knows[i] = make(starts)
				}
			}
			someSilent := rng.IntN(2) == 0
			for _, i := range rng.Perm(programs) {
				f.silent[i] = someSilent && rng.IntN(2) == 0 && !f.silent[i]
				if !f.silent[i] {
					f.start(i)
				}
			}
			f.startSome(30)
			judge(t, len(f.row), booked(t, f.programs[rng.IntN(programs)], c))
		}
	})
}

// A word is what a store said while it was away.
type word struct {
	text  string
	after time.Duration
}

// observed returns a context whose owner observes why there is no answer, and what it was
// told so far.
func observed(ctx context.Context) (context.Context, func() []word) {
	var mu sync.Mutex
	var told []word
	begin := time.Now()
	ctx = outage.WithObserver(ctx, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, word{err.Error(), time.Since(begin)})
	})
	return ctx, func() []word {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(told)
	}
}

// TestP12_WhoWaitsIsTold: once, as soon as a call fails while it waits, on its own
// call or on the one before.
func TestP12_WhoWaitsIsTold(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	refused := "redisstore: " + server.Addr + ": dial tcp: connection refused"
	synctest.Test(t, func(t *testing.T) {
		s, away := saying(t, server.Client(t), errAway)
		one := charge("one", store.PerSecond(1))
		ctx := forAtMost(t, time.Minute)
		ctx, told := observed(ctx)
		gone := bookAside(ctx, s, booking(one))
		require.Equal(t, []word{{refused, 0}}, told())
		time.Sleep(20 * time.Millisecond) // calls at 0, 10, 30 ms

		forEver, toldLater := observed(context.Background())
		served := bookAside(forEver, s, booking(one))
		require.Empty(t, toldLater())
		rest(10 * time.Millisecond)
		require.Equal(t, []word{{refused, 10 * time.Millisecond}}, toldLater())

		rest(time.Minute)
		require.ErrorIs(t, (*gone).err, context.DeadlineExceeded)
		require.ErrorIs(t, (*gone).err, errAway)
		// At 0, 10, 30, 70, 150, 310, 630 ms, then every 500.
		require.EqualError(t, (*gone).err, fmt.Sprintf("redisstore: no answer for 1m0s (failed calls: %d): %s: dial tcp: connection refused", 7+118, server.Addr))
		away.err.Store(nil)
		rest(time.Second)
		require.NoError(t, (*served).err)
		require.Len(t, told(), 1)
		require.Len(t, toldLater(), 1)
	})
}

// TestP12_WhoWaitsIsToldOfSilence: a call that is on its way for a second makes one
// wonder, also who came when it was there already.
func TestP12_WhoWaitsIsToldOfSilence(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, tap := loaded(t, server.Client(t), isScript)
		one := charge("one", store.PerSecond(1))
		silent := word{"redisstore: no answer for 1s from " + server.Addr, time.Second}
		forEver, told := observed(context.Background())
		got := bookAside(forEver, s, booking(one))
		time.Sleep(500 * time.Millisecond)
		ctx := forAtMost(t, 2*time.Second)
		ctx, toldLater := observed(ctx)
		gone := bookAside(ctx, s, booking(one))
		time.Sleep(499 * time.Millisecond)
		require.Empty(t, told())
		rest(501 * time.Millisecond)
		require.Equal(t, []word{silent}, told())
		rest(time.Minute)
		require.Equal(t, []word{silent}, told())
		require.Equal(t, []word{silent}, toldLater())
		require.ErrorIs(t, (*gone).err, context.DeadlineExceeded)
		require.EqualError(t, (*gone).err, "redisstore: no answer for 2s from "+server.Addr)
		tap.open()
		require.NoError(t, (*got).err)
	})
}

// TestP12_WhoLeavesInTimeBlamesNobody: an answer that is not late is no trouble.
func TestP12_WhoLeavesInTimeBlamesNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for after, want := range map[time.Duration]string{
		49 * time.Millisecond: errLeft.Error(),
		50 * time.Millisecond: "redisstore: no answer for 50ms from " + server.Addr,
	} {
		synctest.Test(t, func(t *testing.T) {
			s, tap := loaded(t, server.Client(t), isScript)
			one := charge("one", store.PerSecond(1))
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(errLeft) })
			_, err := s.Book(ctx, booking(one))
			require.ErrorIs(t, err, errLeft)
			require.EqualError(t, err, want)

			ctx, cancel = context.WithCancelCause(t.Context())
			time.AfterFunc(after, func() { cancel(errLeft) })
			err = s.Pause(ctx, one, time.Second)
			require.ErrorIs(t, err, errLeft)
			require.EqualError(t, err, want)
			close(tap.pass)
		})
	}
}

// TestP12_WhoConfirmsIsTold: a start that cannot be confirmed is worth a word too.
func TestP12_WhoConfirmsIsTold(t *testing.T) {
	t.Parallel()
	confirm := func(t *testing.T, s *redisstore.Store, fault func()) ([]word, error) {
		k := booking(charge("one", store.PerSecond(1)))
		g := ask(t, s, k)
		w := s.Watch(k, g, nil)
		defer w.Stop()
		fault()
		ctx := forAtMost(t, 3*time.Second)
		ctx, told := observed(ctx)
		_, err := w.Confirm(ctx, -1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return told(), err
	}
	runBubble(t, "refused", func(t *testing.T, server *redistest.Server) {
		s, away := saying(t, server.Client(t), errAway)
		away.err.Store(nil)
		told, err := confirm(t, s, func() { away.set(errAway) })
		require.ErrorIs(t, err, errAway)
		text := server.Addr + ": dial tcp: connection refused"
		require.EqualError(t, err, fmt.Sprintf("redisstore: no answer for 3s (failed calls: %d): %s", 7+4, text))
		require.Equal(t, []word{{"redisstore: " + text, 0}}, told)
	})
	runBubble(t, "silent", func(t *testing.T, server *redistest.Server) {
		s, tap := loaded(t, server.Client(t), nil)
		told, err := confirm(t, s, func() { tap.hold = isScript })
		require.EqualError(t, err, "redisstore: no answer for 3s from "+server.Addr)
		require.Equal(t, []word{{"redisstore: no answer for 1s from " + server.Addr, time.Second}}, told)
		close(tap.pass)
	})
}

// TestP12_OnlyWhoWaitsIsTold: what was booked is no concern of what is told later.
func TestP12_OnlyWhoWaitsIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		s, away := saying(t, server.Client(t), errAway)
		away.err.Store(nil)
		k := booking(charge("one", store.PerSecond(1)))
		ctx, told := observed(t.Context())
		g, err := s.Book(ctx, k)
		require.NoError(t, err)
		away.set(errAway)
		s.Cancel(k, g)
		atRest(t, s)
		require.Empty(t, told())
	})
}

// TestP12_EveryErrorSaysWhy: whatever is asked of a store that is away.
func TestP12_EveryErrorSaysWhy(t *testing.T) {
	t.Parallel()
	one := charge("one", store.PerSecond(1))
	ways := map[string]func(context.Context, *redisstore.Store) error{
		"book": func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Book(ctx, booking(one))
			return err
		},
		"settle": func(ctx context.Context, s *redisstore.Store) error {
			return s.Settle(ctx, booking(one), store.Grant{OK: true, Handle: store.Handle{Start: 1}}, []int{2})
		},
		"pause":  func(ctx context.Context, s *redisstore.Store) error { return s.Pause(ctx, one, time.Second) },
		"resume": func(ctx context.Context, s *redisstore.Store) error { return s.Resume(ctx, one) },
		"reconcile": func(ctx context.Context, s *redisstore.Store) error {
			return s.Reconcile(ctx, one, store.Quota{Reset: time.Second})
		},
		"status": func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Status(ctx, one)
			return err
		},
	}
	for name, try := range ways {
		ask := func(t *testing.T, s *redisstore.Store, want string) {
			ctx := forAtMost(t, time.Second)
			begin := time.Now()
			err := try(ctx, s)
			require.Equal(t, time.Second, time.Since(begin))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.EqualError(t, err, "redisstore: no answer for 1s"+want)
		}
		runBubble(t, name+", refused", func(t *testing.T, server *redistest.Server) {
			s, _ := saying(t, server.Client(t), errAway)
			ask(t, s, " (failed calls: 7): "+server.Addr+": dial tcp: connection refused")
		})
		runBubble(t, name+", silent", func(t *testing.T, server *redistest.Server) {
			s, tap := loaded(t, server.Client(t), isScript)
			ask(t, s, " from "+server.Addr)
			close(tap.pass)
		})
	}
}

// TestP12_WhoWaitsOnABridgeIsTold: with Share there are some seconds in which Redis
// is not believed any more and is not given up yet. Who books then, or confirms, is
// told why there is no answer, once.
func TestP12_WhoWaitsOnABridgeIsTold(t *testing.T) {
	t.Parallel()
	const believed, leaves = 3500 * time.Millisecond, 1400 * time.Millisecond
	server := redistest.Shared(t)
	refused := word{"redisstore: " + server.Addr + ": dial tcp: connection refused", 0}
	silent := word{"redisstore: no answer for 1s from " + server.Addr, time.Second}
	for _, c := range []struct {
		name string
		err  error // nil: no answer
		want word
	}{{"refused", errAway, refused}, {"silent", nil, silent}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := roomy(t, server)
				forgets(t, client)
				var away atomic.Bool
				tap := newTap(client, func(cmd redis.Cmder) bool { return away.Load() && c.err == nil && isScript(cmd) })
				says := &says{}
				client.AddHook(says)
				s := redisstore.NewAt(client, share, bubbleClock)
				mark := booking(charge("one", store.PerSecond(1)))
				g := ask(t, s, mark)
				w := s.Watch(mark, g, nil)
				time.Sleep(4 * time.Second)
				away.Store(true)
				if c.err != nil {
					says.set(c.err)
				}
				time.Sleep(believed)

				ctx := forAtMost(t, leaves)
				books, booked := observed(ctx)
				confirms, watched := observed(ctx)
				book := bookAside(books, s, booking(mark.Charges...))
				_, err := w.Confirm(confirms, -1)
				synctest.Wait()
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, (*book).err, context.DeadlineExceeded)
				require.Equal(t, []word{c.want}, booked())
				require.Equal(t, []word{c.want}, watched())

				says.err.Store(nil)
				close(tap.pass)
				w.Stop()
				atRest(t, s)
				time.Sleep(time.Minute)
			})
		})
	}
}

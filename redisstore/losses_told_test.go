package redisstore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
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
// many tell it and in whatever order, and also what programs started that are gone.
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
			for seed := range soak.Most[uint64](20, 2) {
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
	t.Parallel()
	first := []uint64{141, 184, 281} // a program knew less than others of a generation that had no name any more
	for _, seed := range soak.Most(seeds(300), append(seeds(7), first...)) {
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
				if f.silent[i] = someSilent && rng.IntN(2) == 0 && !f.silent[i]; !f.silent[i] {
					f.start(i)
				}
			}
			f.startSome(30)
			judge(t, len(f.row), booked(t, f.programs[rng.IntN(programs)], c))
		}
	})
}

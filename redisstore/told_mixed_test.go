package redisstore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/soak"
)

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
	limits := []throttle.Limit{
		throttle.PerHour(4000), throttle.SlidingWindow(4000, 24*time.Hour), throttle.FixedWindow(4000, 24*time.Hour),
		throttle.CalendarWindow(5000, throttle.Month, time.UTC),
	}
	for seed := range uint64(soak.Most(300, 40)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
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
				for loss := range 8 {
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
					require.Equal(t, len(f.row), booked(t, f.programs[rng.IntN(programs)], c), "loss %d", loss)
				}
			})
		})
	}
}

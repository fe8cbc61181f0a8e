package waits

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// crashLoop kills a process with 200 waiters, again and again. Its successor comes at
// once.
func crashLoop(t *testing.T) []row {
	every := inFull(2*time.Second, time.Second)
	server := redistest.Single(t)
	o := orders{Redis: server.Addr, PerSecond: 40, Callers: 200, To: time.Now().Add(time.Hour).UnixNano()}
	var counts []int
	for range inFull(6, 1) {
		m := enlist(t, o)
		time.Sleep(every)
		m.Kill()
		counts = append(counts, len(<-m.starts))
	}
	l := newLimiter(redisstore.New(server.Client(t), redisstore.Options{}), perSecond(40).Limit)
	died := time.Now()
	must(l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1))
	first := time.Since(died)
	for range 77 { // two windows
		must(l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1))
	}
	least := counts[0]
	for _, n := range counts {
		least = min(least, n)
	}
	return []row{
		above(fmt.Sprintf("a process with 200 waiters at 40/s is killed every %v: the least starts of one", every), float64(least), startsGeneration).also("%v", counts),
		atMost("the next one after the last death", first, forgotten).also("78 more by %v", short(time.Since(died))),
	}
}

// A census is what Redis has done so far.
type census struct {
	at    time.Duration
	calls int     // of scripts
	busy  float64 // seconds of a processor
}

// census asks a server.
func (s stage) census(server *redistest.Server) census {
	text := must(server.Client(s.t).Info(s.t.Context(), "commandstats", "cpu").Result())
	c := census{at: s.now()}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case strings.HasPrefix(name, "cmdstat_eval"), strings.HasPrefix(name, "cmdstat_fcall"):
			n, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			c.calls += must(strconv.Atoi(n))
		case name == "used_cpu_user", name == "used_cpu_sys":
			c.busy += must(strconv.ParseFloat(value, 64))
		}
	}
	return c
}

// fleet lets four processes share a limit.
func fleet(t *testing.T) []row {
	const processes, callers = 4, 16
	server := redistest.Single(t)
	s, length := newStage(t), inFull[time.Duration](20, 3)*time.Second
	s.begin = s.begin.Add(500 * ms) // when all are there
	o := orders{Redis: server.Addr, PerSecond: 40, Callers: callers, Loop: true,
		From: s.begin.UnixNano(), To: s.begin.Add(length).UnixNano()}
	var members []*member
	for range processes {
		members = append(members, enlist(t, o))
	}
	from, to := length/5, length-100*ms
	time.Sleep(from - s.now())
	first := s.census(server)
	time.Sleep(to - s.now())
	last := s.census(server)
	all := make([][]visit, 0, processes*callers)
	for _, m := range members {
		mine := make([][]visit, callers)
		for _, one := range <-m.starts {
			mine[one.Caller] = append(mine[one.Caller], visit{
				came: time.Duration(one.Came - s.begin.UnixNano()), start: time.Duration(one.At - s.begin.UnixNano())})
		}
		all = append(all, mine...)
		<-m.Gone
	}
	return inSteadyState("4 processes × 16 callers, 40/s, Redis", all, first, last, true)
}

// many lets 60 stores in one process, each with a client of its own, share a
// limit.
func many(t *testing.T) []row {
	const stores, callers = 60, 4
	server := redistest.Single(t)
	limiters := make([]ask, stores)
	length := inFull[time.Duration](20, 3) * time.Second
	s := newStage(t)
	for i := range limiters {
		limiters[i] = s.limiter(newLimiter(redisstore.New(newClient(t, server.Addr, 4), redisstore.Options{}), perSecond(40).Limit))
	}
	var first, last census
	var taken sync.WaitGroup
	taken.Go(func() {
		time.Sleep(length/5 - s.now())
		first = s.census(server)
		time.Sleep(length - 100*ms - s.now())
		last = s.census(server)
	})
	all := make([][][]visit, stores)
	var ended sync.WaitGroup
	for i, asked := range limiters {
		ended.Go(func() { all[i] = s.loop(callers, length, asked) })
	}
	ended.Wait()
	taken.Wait()
	var visits [][]visit
	for _, v := range all {
		visits = append(visits, v...)
	}
	return inSteadyState("60 stores × 4 callers in one process, 40/s, Redis", visits, first, last, false)
}

// inSteadyState is what a fleet did between two censuses. In that time each caller
// of a few starts often enough to compare them.
func inSteadyState(what string, callers [][]visit, first, last census, few bool) []row {
	var starts []spend
	grants := 0
	for _, c := range callers {
		starts = append(starts, spends(c)...)
		grants += len(between(c, first.at, last.at))
	}
	line := lineOf(40)
	share := used(starts, first.at, last.at, line.n, line.span)
	trips := float64(last.calls-first.calls) / float64(max(grants, 1))
	busy := (last.busy - first.busy) / (last.at - first.at).Seconds()
	fair := fairness(callers, first.at, last.at)
	if few {
		return []row{
			atLeast(what+": used", share, usedFleet),
			below(what+": trips a grant", trips, tripsFleet),
			above(what+": Jain", fair, jainFleet),
		}
	}
	return []row{
		below(what+": trips a grant", trips, tripsMany),
		below(what+": share of a processor of Redis", busy, busyMany),
		told(what+": used", "%s", percent(share)),
	}
}

// newClient returns a client that is closed when the test ends.
func newClient(t *testing.T, addr string, conns int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: conns})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

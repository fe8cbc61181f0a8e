//go:build unix

package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// A troupe is a fleet whose processes can be disturbed while they work, before an
// upstream that counts.
type troupe struct {
	*testing.T
	orders
	up      *Upstream
	members crew.Members
	begin   time.Time
	stall   func() time.Duration
}

// troupeOf lets three processes go on for the given time.
func troupeOf(t *testing.T, limiter string, load time.Duration) *troupe {
	c := Config{Name: t.Name(), Limiter: limiter, Redis: redistest.Single(t).URL(), Limit: "40/s",
		Processes: 3, Workers: 16, Load: load}
	tr := &troupe{T: t, orders: orders{Config: c}, up: NewUpstream(40, time.Second, time.Minute)}
	server := Serve(tr.up, 0)
	t.Cleanup(server.Close)
	tr.URL = server.URL
	var err error
	tr.members, err = crew.Muster(t.Context(), role, tr.each())
	require.NoError(t, err)
	tr.stall, tr.begin = watchStalls(t), time.Now()
	require.NoError(t, tr.members.Tell("go"))
	return tr
}

// at waits for a moment of the performance.
func (tr *troupe) at(d time.Duration) {
	require.NoError(tr, sleep(tr.Context(), time.Until(tr.begin.Add(d))))
}

// end waits for those that are not gone, and returns by how much the limit may seem
// to be passed because the machine stood still.
func (tr *troupe) end(gone ...*crew.Member) (slack int) {
	for _, p := range tr.members {
		var r result
		if err := p.Hear(&r); err != nil {
			require.Contains(tr, gone, p, "%v", err)
		}
	}
	stall := tr.stall()
	tr.Logf("longest stall %v; %d arrivals, at most %d in a second", stall, len(tr.up.Arrivals()), tr.up.Worst())
	if stall <= onTheWay {
		return 0
	}
	return 1 + int(40*stall/time.Second)
}

// between returns when requests arrived, counted from the begin, and of which process
// they were.
func (tr *troupe) between(from, to time.Duration) (at []time.Duration, of map[byte]int) {
	of = map[byte]int{}
	for _, a := range tr.up.Arrivals() {
		if t := a.At - tr.begin.Sub(tr.up.epoch); t >= from && t < to {
			at = append(at, t)
			of[a.Worker[0]]++
		}
	}
	return at, of
}

// TestP2_StoppedProcess stops a process for five seconds in the middle of its waits.
// When it goes on its grants are old: none of them is sent, and it goes on.
func TestP2_StoppedProcess(t *testing.T) {
	t.Parallel()
	tr := troupeOf(t, "", 9*time.Second)
	tr.at(1500 * ms)
	require.NoError(t, tr.members[0].Pause())
	tr.at(6500 * ms)
	_, of := tr.between(2*time.Second, 6500*ms)
	require.NoError(t, tr.members[0].Continue())
	slack := tr.end()
	require.LessOrEqual(t, tr.up.Worst(), 40+slack)
	require.Zero(t, of['0'])
	require.NotZero(t, of['1']+of['2'], "the others go on")
	_, of = tr.between(6500*ms, 9*time.Second)
	require.NotZero(t, of['0'], "and so does it, later")
}

// TestP12_KilledProcess kills a process that has bookings. The others go on at once,
// and have all of the limit when those are over.
func TestP12_KilledProcess(t *testing.T) {
	t.Parallel()
	tr := troupeOf(t, "", 7*time.Second)
	tr.at(2 * time.Second)
	tr.members[0].Kill()
	slack := tr.end(tr.members[0])
	require.LessOrEqual(t, tr.up.Worst(), 40+slack)
	at, of := tr.between(2100*ms, 3600*ms)
	require.Zero(t, of['0'])
	require.Greater(t, len(at), 10, "the others go on")
	at, _ = tr.between(4*time.Second, 7*time.Second)
	require.Greater(t, len(at), 80, "with all of the limit")
}

package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

func TestWorst(t *testing.T) {
	for _, c := range []struct {
		name string
		at   []time.Duration
		want int
	}{
		{"nothing", nil, 0},
		{"one", []time.Duration{5}, 1},
		{"the end of a window is outside", []time.Duration{0, time.Second}, 1},
		{"a nanosecond less is inside", []time.Duration{1, time.Second}, 2},
		{"equal times", []time.Duration{7, 7, 7}, 3},
		{"order does not matter", []time.Duration{2900 * ms, 0, 2 * time.Second, 2500 * ms}, 3},
		{"across an edge", []time.Duration{900 * ms, 950 * ms, 1100 * ms, 1899 * ms, 1900 * ms}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, Worst(c.at, time.Second))
		})
	}
}

func TestUsed(t *testing.T) {
	spaced := func(every time.Duration, bunch int) []time.Duration {
		var at []time.Duration
		for when := time.Duration(0); when < 20*time.Second; when += every {
			for range bunch {
				at = append(at, when)
			}
		}
		return at
	}
	used := func(at []time.Duration, from, to time.Duration) float64 {
		return Used(at, from, to, 40, time.Second)
	}
	require.Equal(t, 1.0, used(spaced(25*ms, 1), 2*time.Second, 10*time.Second))
	require.Equal(t, 1.0, used(spaced(time.Second, 40), 2*time.Second, 10*time.Second))
	require.Equal(t, 1.0, used(spaced(time.Second, 40), 2300*ms, 10300*ms), "bunches do not decide")
	require.Equal(t, 0.5, used(spaced(50*ms, 1), 2*time.Second, 10*time.Second))
	require.Equal(t, 0.5, used(spaced(2*time.Second, 40), 2*time.Second, 11*time.Second))
	require.Equal(t, 0.0, used(nil, 0, 10*time.Second))
	require.Equal(t, 0.0, used(spaced(25*ms, 1), 30*time.Second, 40*time.Second))
	require.Equal(t, 0.0, used(spaced(25*ms, 1), 0, time.Second), "too short to say")
}

func calls(worker string, n int) []Sample {
	var s []Sample
	for range n {
		s = append(s, Sample{Worker: worker, OK: true})
	}
	return append(s, Sample{Worker: worker})
}

func TestJain(t *testing.T) {
	require.Equal(t, 1.0, Jain(append(calls("a", 7), calls("b", 7)...)))
	require.Equal(t, 0.5, Jain(append(calls("a", 7), calls("b", 0)...)))
	require.Equal(t, 0.8, Jain(append(calls("a", 3), calls("b", 1)...)))
	require.Equal(t, 0.0, Jain(calls("a", 0)))
}

func TestInversions(t *testing.T) {
	call := func(key string, asked, served time.Duration) Sample {
		return Sample{Key: key, Asked: asked, Served: served, OK: true}
	}
	first := call("", 0, 10)
	for _, c := range []struct {
		name string
		with []Sample
		want float64
	}{
		{"alone", nil, 0},
		{"in order", []Sample{call("", 1, 11)}, 0},
		{"the other way round", []Sample{call("", 1, 9)}, 1},
		{"equal starts", []Sample{call("", 1, 10)}, 0},
		{"came together", []Sample{call("", 0, 9)}, 0},
		{"came later", []Sample{call("", 10, 10)}, 0},
		{"another budget", []Sample{call("other", 1, 9)}, 0},
		{"gave up", []Sample{{Asked: 1, Served: 9}}, 0},
		{"one pair of three", []Sample{call("", 1, 11), call("", 2, 9)}, 2. / 3},
		{"the store's clock decides", []Sample{{Asked: 1, Served: 9, Start: 12, OK: true}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, Inversions(append([]Sample{first}, c.with...)))
		})
	}
}

func TestOvertaken(t *testing.T) {
	first := Sample{Asked: 0, Booked: 3, Served: 10, Start: 10, OK: true}
	call := func(asked, start time.Duration) Sample {
		return Sample{Asked: asked, Booked: asked + 1, Served: start, Start: start, OK: true}
	}
	require.Equal(t, 0, Overtaken([]Sample{first, call(4, 10), call(5, 11)}))
	require.Equal(t, 0, Overtaken([]Sample{first, call(3, 9)}), "the first did not know its start yet")
	require.Equal(t, 2, Overtaken([]Sample{first, call(4, 9), call(5, 9)}))
	untold := first
	untold.Booked = 0
	require.Equal(t, 0, Overtaken([]Sample{untold, call(4, 9)}))
}

func TestLongest(t *testing.T) {
	require.Equal(t, 9*ms, Longest([]Sample{
		{Asked: 1 * ms, Served: 4 * ms, OK: true},
		{Asked: 2 * ms, Served: 11 * ms},
		{Asked: 5 * ms, Served: 6 * ms, OK: true},
	}))
	require.Zero(t, Longest(nil))
}

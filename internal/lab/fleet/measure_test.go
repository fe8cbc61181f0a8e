package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

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

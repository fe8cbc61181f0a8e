package stat

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

func TestQuantile(t *testing.T) {
	all := []int{30, 10, 40, 20}
	for share, want := range map[float64]int{0: 10, 0.25: 20, 0.5: 30, 0.99: 40, 1: 40} {
		require.Equal(t, want, Quantile(all, share), share)
	}
	require.Equal(t, []int{30, 10, 40, 20}, all, "it is only read")
	require.Zero(t, Quantile([]time.Duration(nil), 0.5))
}

func TestMost(t *testing.T) {
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
			require.Equal(t, c.want, Most(c.at, time.Second))
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

func TestJain(t *testing.T) {
	require.InDelta(t, 1, Jain([]int{3, 3, 3}), 1e-9)
	require.InDelta(t, 0.5, Jain([]int{7, 0}), 1e-9)
	require.InDelta(t, 0.8, Jain([]int{3, 1}), 1e-9)
	require.Zero(t, Jain([]int{0, 0}))
	require.Zero(t, Jain(nil))
}

func TestCount(t *testing.T) {
	require.Equal(t, "0 policies", Count(0, "policy", "policies"))
	require.Equal(t, "1 policy", Count(1, "policy", "policies"))
	require.Equal(t, "2 policies", Count(2, "policy", "policies"))
}

package waits

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func startsOf(visits []visit) (starts []time.Duration) {
	for i := range visits {
		starts = append(starts, visits[i].start)
	}
	return starts
}

func TestPerfect(t *testing.T) {
	second := time.Second
	two := line{n: 2, span: second}
	visits := arriving(5, 0)
	require.Equal(t, []time.Duration{0, 0, second, second, 2 * second}, startsOf(two.perfect(visits)))
	require.False(t, visits[0].started(), "the visits are as they were")

	visits[2].maxWait = second - 1
	require.Equal(t, []time.Duration{0, 0, never, second, second}, startsOf(two.perfect(visits)), "a visit that leaves takes nothing")

	raised := line{2, second, []change{{500 * ms, 4}, {2 * second, 1}}}
	require.Equal(t, []time.Duration{0, 0, 500 * ms, 500 * ms, second, second, 1500 * ms, 1500 * ms, 2500 * ms, 3500 * ms},
		startsOf(raised.perfect(arriving(10, 0))))
}

func TestShared(t *testing.T) {
	second := time.Second
	visits := arriving(6, 0)
	visits[4].api, visits[5].api = 1, 1
	got := shared(line{n: 3, span: second}, line{n: 2, span: second}, 2, visits)
	require.Equal(t, []time.Duration{0, 0, second, second, 0, second}, startsOf(got), "one that has room does not wait behind one that has not")
}

func TestFigures(t *testing.T) {
	second := time.Second
	visits := []visit{{came: 0, start: 5 * second}, {came: second, start: 6 * second}, {came: 3 * second, start: 4 * second}, {came: 4 * second, start: never}}
	require.InDelta(t, 2*second, passed(visits), float64(ms), "the second by the third")
	require.InDelta(t, 3*second, passedByLater(visits), float64(ms))
	require.Equal(t, 11*second/3, mean(only(visits, anyVisit)))
	require.Equal(t, 5*second, longest(only(visits, anyVisit)))
	require.Equal(t, 6*second, last(visits))
	require.Equal(t, 2, worst(visits, second+1))
	require.Equal(t, 1, worst(visits, second))

	var evenly []spend
	for i := range 100 {
		evenly = append(evenly, spend{time.Duration(i) * 100 * ms, 1})
	}
	require.InDelta(t, 1, used(evenly, second, 9*second, 10, second), 1e-9)
	require.InDelta(t, 0.5, used(evenly, second, 9*second, 20, second), 1e-9)
}

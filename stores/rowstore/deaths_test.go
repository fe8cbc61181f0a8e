package rowstore

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestP10_SlowLooksAreSeldom: where looks for dead nodes take long, a node looks less often, so that many nodes do not keep a busy server from its work. It does not where slots
// are held or waited for, or while a node is missed.
func TestP10_SlowLooksAreSeldom(t *testing.T) {
	for _, c := range []struct{ took, every time.Duration }{
		{time.Millisecond, lineAttend},
		{lineAttend / lookPart, lineAttend},
		{100 * time.Millisecond, 2 * time.Second},
		{time.Second, maxLineAttend},
	} {
		synctest.Test(t, func(t *testing.T) {
			slots := false
			d := &deaths{isUrgent: func() bool { return slots }, checked: time.Now(), took: c.took, peers: map[int64]*peer{1: {present: true}}}
			time.Sleep(c.every - attendEvery/2 - 1)
			require.False(t, d.isDue())

			d.peers[1].absent = 1
			require.True(t, d.isDue(), "a node is missed")
			d.peers[1].dead = true
			require.False(t, d.isDue())

			slots = true
			require.True(t, d.isDue(), "slots are held")
			slots = false

			time.Sleep(time.Nanosecond)
			require.True(t, d.isDue())
		})
	}
}

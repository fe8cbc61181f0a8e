package throttle_test

import (
	"fmt"

	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestP2_OtherHostsAreNotHandedOnEarly asks for so many hosts that some share a
// place in the memory of what dialling takes.
func TestP2_OtherHostsAreNotHandedOnEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(always(200 * ms))
		tr := newTransport(t, d, onePerSecond)
		line(t, tr, 1, home)
		d.dial = always(0)
		want := []time.Duration{0}
		for i := range 500 {
			line(t, tr, 1, fmt.Sprintf("https://%d.example.org/", i))
			want = append(want, 200*ms+time.Duration(i+1)*spanOfOne)
		}
		require.Equal(t, want, d.handed.seen())
	})
}

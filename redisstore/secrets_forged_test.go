package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// listening has a store wait for a start, so that it listens, and returns the
// watch and what it tells.
func listening(t *testing.T, s *redisstore.Store, c throttle.Charge) (throttle.Watch, chan struct{}) {
	t.Helper()
	require.Zero(t, book(t, s, c))
	b := booking(c)
	g, err := s.Book(t.Context(), b)
	require.NoError(t, err)
	require.Positive(t, g.Wait)
	news := make(chan struct{}, 1)
	w := s.Watch(b, g, news)
	t.Cleanup(func() {
		w.Stop()
		s.Cancel(b, g)
	})
	require.Eventually(t, func() bool {
		ok, err := w.Confirm(t.Context(), -1)
		return err == nil && ok && s.Complete(c.Budget.Group, time.Now())
	}, 30*time.Second, time.Millisecond)
	return w, news
}

// TestForgedMessages says on a store's channels what no script says. Whoever can
// do that can stall a budget for as long as the longest penalty: nobody panics,
// and no longer.
func TestForgedMessages(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	s := redisstore.New(client, &redisstore.Options{Namespace: server.Namespace})
	waits, idle := charge("waits", throttle.PerMinute(1)), charge("idle", throttle.PerMinute(1))
	listening(t, s, waits)

	key := s.Key(waits.Budget)
	long := strings.Repeat("9", 400)
	for _, text := range []string{
		"", " ", "  ", "~", "~x", "~-1", "~" + long, "~9223372036854775807", "-1 -1 " + key, "0 0", "1", "1 2", "x y " + key,
		long + " " + long + " " + key, "9223372036854775807 9223372036854775807 ", "-9223372036854775808 -9223372036854775808 " + key,
		"anew ", "anew 1 2", "anew -1 9223372036854775807 " + key, "anew " + long + " " + long + " " + key, strings.Repeat(",", 1<<16) + " " + key, strings.Repeat("1,", 1<<16) + " " + s.LeasesKey(waits.Budget),
		"\x00\xff", strings.Repeat("x", 1<<20),
	} {
		for _, channel := range []string{s.PauseChannel("group"), s.WakeChannel("group")} {
			require.NoError(t, client.Publish(t.Context(), channel, text).Err())
		}
	}
	// The worst: a century for a budget that Redis knows nothing of.
	century := int64(100 * 365 * 24 * time.Hour / time.Microsecond)
	forged := fmt.Sprintf("%d %d %s", time.Now().UnixMicro()+century, century, s.Key(idle.Budget))
	require.NoError(t, client.Publish(t.Context(), s.PauseChannel("group"), forged).Err())
	require.Eventually(t, func() bool { return s.Closed(s.Key(idle.Budget)) > 0 }, 30*time.Second, time.Millisecond)
	require.LessOrEqual(t, s.Closed(s.Key(idle.Budget)), throttle.MaxPenalty)
	g, err := s.Book(t.Context(), booking(idle))
	require.NoError(t, err)
	require.LessOrEqual(t, g.Wait, throttle.MaxPenalty)
	require.True(t, g.Paused)
	s.Cancel(booking(idle), g)
}

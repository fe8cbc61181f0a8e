package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// A stumble is a hook that loses one booking: before it is done, or its answer.
type stumble struct {
	after bool
	then  func()
}

func (st *stumble) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (st *stumble) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		then := st.then
		if then == nil || !isScript(cmd) {
			return next(ctx, cmd)
		}
		st.then = nil
		if st.after {
			if err := next(ctx, cmd); err != nil {
				return err
			}
		}
		then()
		cmd.SetErr(io.EOF)
		return io.EOF
	}
}

func (st *stumble) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestP8_LostWhileAGateIsShut loses a call, or its answer, and closes the budget before it
// is made again: by another program, or so that this one knows. One start is charged. It
// counts as booked before the penalty if it was.
func TestP8_LostWhileAGateIsShut(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, after := range []bool{false, true} {
		for _, knows := range []bool{false, true} {
			t.Run(fmt.Sprintf("answer %t, known %t", after, knows), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client := server.Client(t)
					s, _ := loaded(t, client, nil)
					who := s
					if !knows {
						who = atRest(t, redisstore.NewAt(server.Client(t), nil, bubbleClock))
					}
					row, one, dark := free("row"), charge("one", throttle.PerHour(2)), free("dark")
					dark.Shadow = true
					st := &stumble{after: after}
					client.AddHook(st)
					st.then = func() { require.NoError(t, who.Pause(t.Context(), row, time.Minute)) }
					k := booking(dark, row, one)
					g, err := s.Book(t.Context(), k)
					require.NoError(t, err)
					require.True(t, g.OK)
					if after {
						require.Equal(t, -1, g.Held)
						require.Zero(t, g.Wait)
					} else {
						require.Equal(t, 1, g.Held)
						require.True(t, g.Paused)
						require.Greater(t, g.Wait, 59*time.Second)
					}
					status, err := s.Status(t.Context(), one)
					require.NoError(t, err)
					require.Equal(t, 1, status.Used+status.Waiting)
					w := s.Watch(k, g, nil)
					good, err := w.Confirm(t.Context(), -1)
					require.NoError(t, err)
					require.Equal(t, !after, good, "a start of before the penalty is of no use")
					w.Stop()
				})
			})
		}
	}
}

// TestP12_LostWithWhatItKnew loses a call. Then its program closes an unlimited budget that
// the call names as a gate, and the server forgets that. The program remembers.
func TestP12_LostWithWhatItKnew(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client := server.Client(t)
		s, _ := loaded(t, client, nil)
		row, st := free("row"), &stumble{}
		client.AddHook(st)
		st.then = func() {
			require.NoError(t, s.Pause(t.Context(), row, time.Minute))
			require.NoError(t, client.FlushDB(t.Context()).Err())
		}
		require.Greater(t, book(t, s, row), 59*time.Second)
		require.Greater(t, book(t, atRest(t, redisstore.NewAt(server.Client(t), nil, bubbleClock)), row), 59*time.Second)
	})
}

// TestP12_UnlimitedOnAReplicaThatLags has a server forget the second penalty of an
// unlimited budget, and the calls since the first one. Who was held by it remembers.
func TestP12_UnlimitedOnAReplicaThatLags(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client := server.Client(t)
		s, _ := loaded(t, client, nil)
		row := free("row")
		require.NoError(t, s.Pause(t.Context(), row, time.Millisecond))
		was, err := client.Dump(t.Context(), s.Key(row.Budget)).Result()
		require.NoError(t, err)
		require.NoError(t, s.Pause(t.Context(), row, time.Hour))
		require.Equal(t, time.Hour, book(t, s, row))
		require.NoError(t, client.FlushDB(t.Context()).Err())
		require.NoError(t, client.RestoreReplace(t.Context(), s.Key(row.Budget), time.Hour, was).Err())
		require.GreaterOrEqual(t, book(t, s, row), time.Hour)
	})
}

// TestP11_LiftedForThoseWhoDidNotHear closes an unlimited budget for an hour and opens it.
// Redis remembers that for as long as a program may that did not hear of it.
func TestP11_LiftedForThoseWhoDidNotHear(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		client := server.Client(t)
		operator, _ := loaded(t, client, nil)
		held := atRest(t, redisstore.NewAt(server.Client(t), nil, bubbleClock))
		row := free("row")
		require.NoError(t, operator.Pause(t.Context(), row, time.Hour))
		g, err := held.Book(t.Context(), &throttle.Booking{Charges: []throttle.Charge{row}})
		require.NoError(t, err)
		require.False(t, g.OK)
		require.NoError(t, operator.Resume(t.Context(), row))
		left, err := client.PTTL(t.Context(), operator.Key(row.Budget)).Result()
		require.NoError(t, err)
		require.Greater(t, left, time.Hour)
		time.Sleep(10 * time.Minute)
		require.Zero(t, book(t, held, row))
		require.Zero(t, book(t, operator, row))
	})
}

// TestP12_UnlimitedIsToldWithOthers empties a server while somebody waits for the end of a
// penalty. A program that knows nothing of that finds that another budget was lost: then
// the one that waits tells of the penalty, before anybody starts.
func TestP12_UnlimitedIsToldWithOthers(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	client := server.Client(t)
	require.NoError(t, client.FlushDB(t.Context()).Err())
	options := &redisstore.Options{Namespace: "told with others"}
	waits, finds := redisstore.New(client, options), redisstore.New(server.Client(t), options)
	row, one := free("row"), charge("one", throttle.PerMinute(1000))
	tap := newTap(client, nil)
	require.NoError(t, waits.Pause(t.Context(), row, time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	k := booking(row)
	k.Horizon = near
	g, err := waits.Book(t.Context(), k)
	require.NoError(t, err)
	require.NotNil(t, g.Ready)
	all.Go(func() {
		for {
			select {
			case <-ctx.Done():
				waits.Cancel(k, g)
				return
			case <-g.Ready:
			}
			k.Turn, k.Returns = g.Turn, true
			next, err := waits.Book(ctx, k)
			if err != nil || next.Ready == nil {
				return
			}
			g = next
		}
	})
	book(t, finds, one)
	calls := 0
	require.Eventually(t, func() bool { // it asks once how its line stands, and then not for a minute
		for _, name := range tap.names() {
			if strings.HasPrefix(name, "eval") {
				calls++
			}
		}
		return calls >= 3
	}, 10*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { // until it listens
		channels, err := client.PubSubChannels(t.Context(), "told with others*pause").Result()
		return err == nil && len(channels) > 0
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, client.FlushDB(t.Context()).Err())
	late := booking(row, one)
	late.MaxWait = time.Minute
	got, err := finds.Book(t.Context(), late)
	require.NoError(t, err)
	require.False(t, got.OK, "%+v", got)
	require.Greater(t, got.Wait, 50*time.Minute)
}

package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// TestWrongOptions: a store that was made of what cannot be meant is refused before the first request, with all mistakes.
func TestWrongOptions(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "localhost:1"})
	var none *redis.Client
	for _, c := range []struct {
		name   string
		client redis.UniversalClient
		o      redisstore.Options
		wrong  []string // the options; none: nothing is wrong
	}{
		{"nothing", client, redisstore.Options{}, nil},
		{"all that is right", client, redisstore.Options{Namespace: "a b:{c}%ü", HashTags: true, Outage: redisstore.OutageFailOpen}, nil},
		{"no client", nil, redisstore.Options{}, []string{"client"}},
		{"a client that was not made", none, redisstore.Options{}, []string{"client"}},
		{"an unknown outage", client, redisstore.Options{Outage: redisstore.OutageFailOpen + 1}, []string{"Options.Outage"}},
		{"a line's end in the namespace", client, redisstore.Options{Namespace: "shop\n"}, []string{"Options.Namespace"}},
		{"a blank before the namespace", client, redisstore.Options{Namespace: " shop"}, []string{"Options.Namespace"}},
		{"a namespace of blanks", client, redisstore.Options{Namespace: "  "}, []string{"Options.Namespace"}},
		{"a namespace that is no text", client, redisstore.Options{Namespace: "\xff"}, []string{"Options.Namespace"}},
		{"everything", nil, redisstore.Options{Namespace: "\x00", Outage: 99}, []string{"client", "Options.Namespace", "Options.Outage"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := redisstore.New(c.client, c.o)
			p := throttle.Policy{Name: "p", Match: "api.example.com/", Limit: throttle.PerSecond(1)}
			config := throttle.Config{Store: s, Policies: []throttle.Policy{p}}
			_, transport := throttle.New(config)
			_, limiters := throttle.NewLimiters(config)
			_, limiter := throttle.NewLimiter(s, throttle.Policy{Name: "p", Limit: throttle.PerSecond(1)})

			for _, err := range []error{transport, limiters, limiter} {
				if len(c.wrong) == 0 {
					require.NoError(t, err)
					continue
				}
				var mistake *store.OptionError
				require.ErrorAs(t, err, &mistake)
				require.Equal(t, "redisstore", mistake.Package)
				for _, option := range c.wrong {
					require.ErrorContains(t, err, "redisstore: "+option+": ")
				}
				require.Equal(t, len(c.wrong), strings.Count(err.Error(), "redisstore: "), "%v", err)
			}
		})
	}
}

// TestWrongOptionsOfAStoreInUse: without a constructor of throttle each call says what is wrong, and none panics.
func TestWrongOptionsOfAStoreInUse(t *testing.T) {
	s, ctx := redisstore.New(nil, redisstore.Options{}), context.Background()
	c := store.Charge{Budget: store.Budget{Policy: "p"}, Limit: store.PerSecond(1), Cost: 1}
	b := &store.Booking{Charges: []store.Charge{c}}
	g, book := s.Book(ctx, b)
	require.Equal(t, store.Grant{HeldBy: store.NotHeld}, g)
	_, _, refuse := s.Refuse(ctx, c, store.Refusal{Length: time.Second})
	_, status := s.Status(ctx, c)
	_, appoint := s.Appoint(ctx, c, time.Second, false)
	_, _, setUsed := s.SetUsed(ctx, c, 1)
	w := s.Watch(b, g, nil)
	_, confirm := w.Confirm(ctx, time.Second)
	w.Stop()
	s.Cancel(b, g)
	s.Release(b, g)
	s.OnPause(func() {})
	for _, err := range []error{
		book, refuse, status, appoint, setUsed, confirm,
		s.Settle(ctx, b, g, []int{1}), s.Pause(ctx, c, time.Second), s.Resume(ctx, c), s.Reconcile(ctx, c, store.Quota{}),
	} {
		require.ErrorAs(t, err, new(*store.OptionError))
	}
}

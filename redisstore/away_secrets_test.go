package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// spelled returns an error and all that it wraps, in all spellings.
func spelled(err error) string {
	text := fmt.Sprintf("%v\n%+v\n%#v\n", err, err, err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			text += spelled(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			text += spelled(inner)
		}
	}
	return text
}

// TestP14_WhatRedisSaysIsNoSecret: servers repeat what they do not understand, and
// dialling repeats addresses.
func TestP14_WhatRedisSaysIsNoSecret(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	for _, c := range []struct {
		says error
		want string
	}{
		{said("ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'me' 'pa55word' "), "ERR unknown command 'HELLO'"},
		{said("LOADING the dataset of\nredis://me:pa55word@10.0.0.1:6379/0"), "LOADING the dataset of\n…@10.0.0.1:6379/0"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: &net.AddrError{Err: "too many colons in address", Addr: "redis://me:pa55word@host:6379"}},
			"dial tcp: address …@host:6379: too many colons in address"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "me:pa55@word@host", IsNotFound: true}},
			"dial tcp: lookup …@host: no such host"},
	} {
		t.Run(c.want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := saying(t, server.Client(t), c.says)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				ctx, told := observed(ctx)
				_, err := s.Book(ctx, booking(charge("one", throttle.PerSecond(1))))
				require.ErrorContains(t, err, server.Addr+": "+c.want)
				text := spelled(&throttle.StoreError{Err: err})
				for _, w := range told() {
					text += w.text
				}
				require.NotContains(t, text, "pa55")
				require.NotContains(t, text, "word")
				require.Equal(t, errors.As(c.says, new(redis.Error)), errors.As(err, new(redis.Error)), "it is as final as before")
			})
		})
	}
}

// TestP14_NoKeyOfACommandThatIsNotThere: operators take commands away by name.
func TestP14_NoKeyOfACommandThatIsNotThere(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t, "--rename-command", "EVALSHA", "")
	l, err := throttle.NewLimiter(redisstore.New(server.Client(t), nil), throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)})
	require.NoError(t, err)
	_, err = l.Acquire(t.Context(), "tenant", 1)
	require.EqualError(t, err, "throttle: the store could not be asked: redisstore: "+server.Addr+": ERR unknown command 'evalsha'")
	require.NotContains(t, spelled(err), redisstore.DefaultNamespace+":5:")
}

// TestP14_AnAddressWithAPassword is a mistake, and no reason to print it.
func TestP14_AnAddressWithAPassword(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "redis://me:pa55word@localhost:6379/0", DialerRetries: 1})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	l, err := throttle.NewLimiter(redisstore.New(client, nil), throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)})
	require.NoError(t, err)
	_, err = l.TryAcquire(t.Context(), "", 1)
	require.ErrorContains(t, err, "too many colons in address")
	require.NotContains(t, spelled(err), "pa55word")
	require.True(t, strings.HasPrefix(err.Error(), "throttle: the store could not be asked: redisstore: no answer for "))
}

// TestP12_TheClientsDeadlineIsNotTheCallers, whose context is fine.
func TestP12_TheClientsDeadlineIsNotTheCallers(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s, _ := saying(t, server.Client(t), fmt.Errorf("dial: %w", context.DeadlineExceeded))
		k := booking(charge("one", throttle.PerSecond(1)))
		k.MaxWait = time.Second
		_, err := s.Book(t.Context(), k)
		require.EqualError(t, err, "redisstore: no answer for 1s (failed calls: 7): "+server.Addr+": dial: context deadline exceeded")
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}

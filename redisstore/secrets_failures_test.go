package redisstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// panics has functions of the program's own panic with a secret. Whether the panic
// goes on or becomes an error, throttle tells of nothing but itself.
func (s *sweep) panics() {
	for _, p := range []throttle.Policy{
		{Key: func(*http.Request) string { panic(canaryPanic) }},
		{Cost: func(*http.Request) int { panic(errors.New(canaryPanic)) }},
		{Penalty: func(*http.Response) time.Duration { panic(canaryPanic) }},
		{Settle: func(*http.Response) int { panic(canaryPanic) }},
	} {
		p.Name, p.Limit = "a canary's panic", throttle.PerMinute(99)
		tr := throttle.Must(throttle.New(throttle.Config{Store: s.store, Base: secretUpstream, Observe: s.observe, Policies: []throttle.Policy{p}}))
		func() {
			defer func() { _ = recover() }()
			_ = s.send(tr, s.request(s.Context(), ""))
		}()
	}
}

// strangers are clients that the server does not let in.
func (s *sweep) strangers(server *redistest.Server) {
	for _, change := range []func(*redis.Options){
		func(*redis.Options) {},
		func(o *redis.Options) { o.Password = canaryWrong },
		func(o *redis.Options) { o.Username, o.Password = canaryUser, canaryWrong },
		func(o *redis.Options) { o.Password, o.DB = canaryPassword, 999 },
		func(o *redis.Options) {
			o.Password, o.TLSConfig = canaryPassword, &tls.Config{ServerName: "redis.example.com", MinVersion: tls.VersionTLS12}
		},
	} {
		o := server.Options()
		o.MaxRetries, o.DialTimeout = -1, time.Second
		change(o)
		client := redis.NewClient(o)
		s.refused(client)
		require.NoError(s, client.Close())
	}
}

// refused sends what cannot be booked and asks what cannot be answered.
func (s *sweep) refused(client *redis.Client) {
	store := redisstore.New(client, nil)
	tr := s.transport(store)
	soon, cancel := context.WithTimeout(s.Context(), 50*time.Millisecond)
	defer cancel()
	for _, ctx := range []context.Context{throttle.WithMaxWait(s.Context(), 50*time.Millisecond), soon} {
		require.Error(s, s.send(tr, s.request(ctx, "")))
	}
	l, err := throttle.NewLimiter(store, throttle.Policy{Name: "a canary's work", Limit: throttle.PerMinute(9)})
	require.NoError(s, err)
	for _, ask := range []func() error{
		func() error { _, err := l.Status(soon, canaryLimiter); return err },
		func() error { return l.Pause(soon, canaryLimiter, time.Second) },
		func() error { return l.Resume(soon, canaryLimiter) },
	} {
		err := ask()
		require.Error(s, err)
		s.told.see(err)
	}
}

// away is when there is no server any more.
func (s *sweep) away() {
	o := &redis.Options{Addr: "127.0.0.1:1", Password: canaryPassword, MaxRetries: -1}
	client := redis.NewClient(o)
	s.refused(client)
	require.NoError(s, client.Close())
	require.Error(s, s.send(s.transport(s.store), s.request(throttle.WithMaxWait(s.Context(), 50*time.Millisecond), "")))
}

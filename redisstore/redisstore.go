// Package redisstore keeps budgets in Redis, so that all processes that use the
// same Redis and the same policy names share them. It works with standalone
// servers, Sentinel and Cluster, and takes nothing but the client: there is no
// set-up, no list of nodes, and nothing to close.
//
// A booking is one script call, decided by the server's clock. Each budget is
// one key of at most 4 KB that expires when it is idle.
package redisstore

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
)

// DefaultNamespace is the Namespace of Options that do not set one.
const DefaultNamespace = "throttle"

// Options are all optional; nil means the defaults.
type Options struct {
	// Namespace begins every key. Programs share budgets only within one
	// namespace. Defaults to [DefaultNamespace].
	Namespace string

	// HashTags puts the budgets that one request can need into one slot of a
	// Redis Cluster, by a hash tag that the policies' hosts give. It is always
	// so with a cluster client or a ring; set it for a plain client that talks
	// to a cluster through a proxy. All programs that share budgets must agree.
	// Defaults to false.
	HashTags bool
}

// A Store keeps budgets in Redis. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	prefix string
	tagged bool // see Options.HashTags
	lanes  lanes
	now    func() string // the time for the scripts; "" lets them ask the server
	skew   atomic.Int64  // the server's clock less ours, in microseconds: a guess for calendar edges
}

// New returns a store on client, which stays the caller's: throttle never
// closes it. New sends nothing, so Redis need not be up.
func New(client redis.UniversalClient, o *Options) *Store {
	s := &Store{client: client, now: func() string { return "" }}
	s.lanes.queue = make(map[string][]*caller)
	name := DefaultNamespace
	if o != nil && o.Namespace != "" {
		name = o.Namespace
	}
	// The version of the stored form is part of every key, so that programs
	// with different forms never share a row.
	s.prefix = escape.Replace(name) + ":1:"
	_, single := client.(*redis.Client)
	s.tagged = !single || o != nil && o.HashTags
	return s
}

// escape keeps names from ending a hash tag early.
var escape = strings.NewReplacer("{", "%7B", "}", "%7D")

// key returns the budget's key. In a cluster its hash tag is the group, so that
// the budgets of one request lie in one slot. The group depends on the other
// policies, so it stays out of the key where it is not needed: a budget keeps
// its state by policy and key, whatever happens to the table around it.
func (s *Store) key(b *throttle.Budget) string {
	tag := ""
	if s.tagged {
		tag = "{" + escape.Replace(b.Group) + "}:"
	}
	return s.prefix + tag + escape.Replace(b.Policy) + ":" + base64.RawURLEncoding.EncodeToString(b.Key[:])
}

// Book implements [throttle.Store]. While Redis is away it tries again, with a
// growing pause, for as long as ctx and b.MaxWait allow.
func (s *Store) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	// The booking is the caller's again when Book returns, even if a call is
	// still on its way.
	charges, instead := slices.Clone(b.Charges), b.Instead
	var g throttle.Grant
	err := retry(ctx, b.MaxWait, func(ctx context.Context, left time.Duration) error {
		c := &caller{charges: charges, instead: instead, maxWait: waitArg(left), spread: b.Spread}
		instead = 0 // if the answer is lost it may have been given back: never twice
		if err := s.ask(ctx, c); err != nil {
			return err
		}
		v := c.got
		g = throttle.Grant{
			OK:     v[0] == 1,
			Wait:   waitOf(v[1]),
			Age:    time.Since(c.sent),
			Mark:   v[2],
			Held:   int(v[3]) - 1,
			Paused: v[4] == 1,
		}
		for i, over := range v[answerHead:] {
			b.Charges[i].Over = time.Duration(over) * time.Microsecond
		}
		return nil
	})
	return g, err
}

// cancelSoon is how long a caller that leaves waits for its place to be given
// back, so that who comes next finds it free.
const cancelSoon = 50 * time.Millisecond

// Cancel implements [throttle.Store]. A Redis that does not answer soon is told
// in the background. It is told once: if that is lost, the place stays taken,
// which is safe; a place that is given back twice may be another's.
func (s *Store) Cancel(b *throttle.Booking, g throttle.Grant) {
	if !g.OK {
		return
	}
	c := &caller{
		charges: slices.Clone(b.Charges), instead: g.Mark, maxWait: giveBack, spread: b.Spread,
		done: make(chan struct{}),
	}
	s.join(c)
	soon := time.NewTimer(cancelSoon)
	defer soon.Stop()
	select {
	case <-c.done:
	case <-soon.C:
	}
}

// Release implements [throttle.Store].
func (s *Store) Release(b *throttle.Booking, g throttle.Grant) {}

// Settle implements [throttle.Store].
func (s *Store) Settle(ctx context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
	return nil
}

// Pause implements [throttle.Store].
func (s *Store) Pause(ctx context.Context, c throttle.Charge, d time.Duration) error {
	return retry(ctx, -1, func(ctx context.Context, _ time.Duration) error {
		_, err := await(ctx, func() ([]int64, error) {
			return s.call(scriptPause, func(e edges) ([]string, []any) {
				return []string{s.key(&c.Budget)}, e.appendRule([]any{s.now(), micros(d)}, &c)
			})
		})
		return err
	})
}

// Status implements [throttle.Store].
func (s *Store) Status(ctx context.Context, c throttle.Charge) (throttle.Status, error) {
	st := throttle.Status{Limit: c.Limit}
	err := retry(ctx, -1, func(ctx context.Context, _ time.Duration) error {
		v, err := await(ctx, func() ([]int64, error) {
			return s.call(scriptStatus, func(e edges) ([]string, []any) {
				return []string{s.key(&c.Budget)}, e.appendRule([]any{s.now()}, &c)
			})
		})
		if err != nil {
			return err
		}
		st.Used, st.Waiting = int(v[1]), int(v[2])
		st.Wait = time.Duration(v[3]) * time.Microsecond
		st.Paused = time.Duration(v[4]) * time.Microsecond
		return nil
	})
	return st, err
}

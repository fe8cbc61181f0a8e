package redisstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// DefaultNamespace is the Namespace of Options that do not set one.
const DefaultNamespace = "throttle"

// Options configure a [Store]. The zero value of each field is useful.
type Options struct {
	// Namespace begins every key. Programs share budgets only within one
	// namespace. A name with control characters, or with blanks around it, is
	// refused. Defaults to [DefaultNamespace].
	Namespace string

	// HashTags puts all keys of the namespace into one slot of a Redis Cluster, because one
	// script books all budgets of a request. A cluster client and a ring always do so; set
	// HashTags for a plain client that talks to a cluster through a proxy. All programs that
	// share budgets must agree. To spread upstreams over the masters of a
	// cluster, give each upstream a Store with a Namespace of its own. Defaults to false.
	HashTags bool

	// Outage is what to do while Redis is away. Programs that share budgets
	// should agree: a program with OutageWait leaves no room for programs with OutageSplit.
	// Defaults to [OutageWait].
	Outage Outage
}

// An Outage says what a [Store] does with bookings while Redis is away. The page
// about [failures] has the guarantees and the costs.
//
// [failures]: https://github.com/fleetthrottle/throttle/blob/main/docs/run/failures.md#while-redis-is-away
type Outage uint8

const (
	// OutageWait asks Redis again until it answers, with a growing pause, for as
	// long as the caller's context and MaxWait allow. It is the default, and
	// never passes a limit.
	OutageWait Outage = iota

	// OutageSplit gives each node an equal part of each limit, which it keeps by
	// itself: the limit divided by the last known number of nodes in use. It
	// begins some seconds and a window after Redis went away, and ends when
	// Redis has answered for half a second. The fleet passes no limit while all
	// nodes have lost Redis, nor for 20 seconds if only some have. It
	// costs a call a second. Limits that cannot be divided wait, except that a limit
	// that only the upstream's answers tell holds nothing back.
	OutageSplit

	// OutageFailOpen holds nothing back, except for budgets that a known penalty closes.
	// It begins some seconds after Redis went away. It is for limits that are only kept
	// out of politeness.
	OutageFailOpen
)

// String returns the mode's name in lower case.
func (o Outage) String() string {
	switch o {
	case OutageSplit:
		return "split"
	case OutageFailOpen:
		return "failopen"
	}
	return "wait"
}

// check returns all mistakes in the arguments of [New].
func check(client redis.UniversalClient, o *Options) error {
	var mistakes []error
	mistake := func(option, problem string) {
		mistakes = append(mistakes, &store.OptionError{Package: "redisstore", Option: option, Problem: problem})
	}

	// nil needs a look at the value, because an interface that holds a nil pointer is not nil.
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		mistake("client", "is nil: use redis.NewClient, redis.NewClusterClient or redis.NewUniversalClient")
	}
	if problem := wire.NamespaceProblem(o.Namespace); problem != "" {
		mistake("Options.Namespace", problem)
	}
	if o.Outage > OutageFailOpen {
		mistake("Options.Outage", fmt.Sprintf("%d is unknown: use OutageWait, OutageSplit or OutageFailOpen", uint8(o.Outage)))
	}

	return errors.Join(mistakes...)
}

// misused stands in a [Store] that was made of wrong options: each call returns the mistakes.
type misused struct {
	store.Minimal
	err error
}

func (m misused) Traits() store.Traits { return store.Traits{Err: m.err} }

func (m misused) Book(context.Context, *store.Booking) (store.Grant, error) {
	return store.Grant{HeldBy: store.NotHeld}, m.err
}
func (m misused) Cancel(*store.Booking, store.Grant)                               {}
func (m misused) Release(*store.Booking, store.Grant)                              {}
func (m misused) Settle(context.Context, *store.Booking, store.Grant, []int) error { return m.err }
func (m misused) Pause(context.Context, store.Charge, time.Duration) error         { return m.err }
func (m misused) Resume(context.Context, store.Charge) error                       { return m.err }
func (m misused) Reconcile(context.Context, store.Charge, store.Quota) error       { return m.err }
func (m misused) Watch(*store.Booking, store.Grant, chan<- struct{}) store.Watch   { return m }
func (m misused) Status(context.Context, store.Charge) (store.Status, error) {
	return store.Status{}, m.err
}
func (m misused) Confirm(context.Context, time.Duration) (bool, error) { return false, m.err }
func (m misused) Stop()                                                {}
func (m misused) Refuse(context.Context, store.Charge, store.Refusal) (from, to float64, err error) {
	return 0, 0, m.err
}
func (m misused) Appoint(context.Context, store.Charge, time.Duration, bool) (time.Duration, error) {
	return 0, m.err
}

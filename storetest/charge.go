package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
)

const (
	tick = time.Microsecond // the unit of every store's time
	ms   = time.Millisecond
	sec  = time.Second
)

// maxCost is the most that Settle can be told.
const maxCost = 1 << 40

// charge returns a charge of 1 without jitter. The first letters of the name
// become the key, so that budgets of different names differ everywhere.
func charge(name string, l throttle.Limit) throttle.Charge {
	c := throttle.Charge{Budget: throttle.Budget{Policy: name, Group: "storetest"}, Limit: l, Cost: 1}
	copy(c.Budget.Key[:], name)
	return c
}

// costing returns the charge with another cost.
func costing(c throttle.Charge, cost int) throttle.Charge {
	c.Cost = cost
	return c
}

// late returns the charge with a jitter.
func late(c throttle.Charge, jitter time.Duration) throttle.Charge {
	c.Jitter = jitter
	return c
}

// leaving returns the charge as one that leaves so much of the limit free.
func leaving(c throttle.Charge, reserve int) throttle.Charge {
	c.Reserve = reserve
	return c
}

// shadow returns the charge as one that only counts.
func shadow(c throttle.Charge) throttle.Charge {
	c.Shadow = true
	return c
}

// describe prints a booking for failure messages.
func describe(k throttle.Booking) string {
	var parts []string
	for _, c := range k.Charges {
		part := fmt.Sprintf("%s: %d of %s", c.Budget.Policy, c.Cost, sentence(c))
		if c.Reserve > 0 {
			part += fmt.Sprintf(", leaving %d", c.Reserve)
		}
		if c.Shadow {
			part += ", shadow"
		}
		parts = append(parts, part)
	}
	text := "{" + strings.Join(parts, "; ") + "}"
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"MaxWait", k.MaxWait}, {"NotBefore", k.NotBefore}, {"Spread", k.Spread}} {
		if f.value != 0 {
			text += fmt.Sprintf(" %s %v", f.name, f.value)
		}
	}
	if k.Instead != (throttle.Handle{}) {
		text += fmt.Sprintf(" Instead %+v", k.Instead)
	}
	return text
}

// sentence prints a charge's limit without relying on its String method.
func sentence(c throttle.Charge) string {
	kind := map[throttle.Kind]string{
		throttle.KindSlidingWindow: "in any", throttle.KindFixedWindow: "in each window of",
		throttle.KindLeakyBucket: "paced over", throttle.KindTokenBucket: "tokens per",
	}[c.Limit.Kind()]
	per := c.Limit.Per().String()
	switch {
	case isOpen(c):
		return "without a number"
	case c.Limit.Kind() == throttle.KindConcurrency:
		return fmt.Sprintf("%d in flight", c.Limit.N())
	case c.Limit.Kind() == throttle.KindTokenBucket:
		per += fmt.Sprintf(" up to %d", c.Limit.Capacity())
	case c.Limit.Per() == 0:
		per = "the calendar"
	}
	return fmt.Sprintf("%d %s %s + %v", c.Limit.N(), kind, per, c.Jitter)
}

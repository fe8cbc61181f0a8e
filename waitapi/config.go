package waitapi

import (
	"errors"
	"time"

	"github.com/fleetthrottle/throttle"
)

// The defaults of a [Config].
const (
	DefaultMaxWait     = 5 * time.Second
	DefaultHeld        = 256
	DefaultPermits     = 16384
	DefaultLifetime    = time.Minute
	DefaultMaxLifetime = time.Hour
	DefaultMaxPenalty  = throttle.MaxRetryAfter
)

// Config is what [New] needs.
type Config struct {
	// Limiters have the budgets. Required.
	Limiters *throttle.Limiters

	// MaxWait is how long a caller is held at most. A caller asks for less. [throttle.NoWait]
	// holds nobody, [throttle.Forever] holds a caller for as long as it is there. Defaults to
	// [DefaultMaxWait].
	MaxWait time.Duration

	// Held is how many callers wait at once. Another one is refused with 503. Defaults to
	// [DefaultHeld].
	Held int

	// Permits is how many permits there are at once: those that were acquired, and neither
	// released nor expired. Another one is refused with 503. Defaults to [DefaultPermits].
	Permits int

	// Lifetime is how long a permit lasts whose caller does not say how long. Defaults to
	// [DefaultLifetime], or to MaxLifetime if that is less.
	Lifetime time.Duration

	// MaxLifetime is how long a permit may last. Defaults to [DefaultMaxLifetime], or to Lifetime
	// if that is more.
	MaxLifetime time.Duration

	// MaxPenalty is for how long a caller closes budgets at most by /v1/penalize, for the whole fleet. A
	// longer duration is cut. Negative: not at all, and the path answers 403. Defaults to
	// [DefaultMaxPenalty], which is as long as a Retry-After of the upstream closes a budget.
	MaxPenalty time.Duration
}

// setDefaults sets what is 0 to its default. It returns an error if a value makes no sense.
func (c *Config) setDefaults() error {
	if c.Limiters == nil {
		return errors.New("waitapi: Config needs Limiters")
	}
	if c.Held < 0 || c.Permits < 0 || c.Lifetime < 0 || c.MaxLifetime < 0 {
		return errors.New("waitapi: Held, Permits, Lifetime or MaxLifetime of Config is negative: use 1 or more, or 0 for the default")
	}
	setDefault(&c.MaxWait, DefaultMaxWait)
	setDefault(&c.Held, DefaultHeld)
	setDefault(&c.Permits, DefaultPermits)
	setDefault(&c.MaxPenalty, DefaultMaxPenalty)
	switch {
	case c.Lifetime == 0 && c.MaxLifetime == 0:
		c.Lifetime, c.MaxLifetime = DefaultLifetime, DefaultMaxLifetime
	case c.Lifetime == 0:
		c.Lifetime = min(DefaultLifetime, c.MaxLifetime)
	case c.MaxLifetime == 0:
		c.MaxLifetime = max(DefaultMaxLifetime, c.Lifetime)
	case c.Lifetime > c.MaxLifetime:
		return errors.New("waitapi: Config.Lifetime is more than MaxLifetime")
	}
	return nil
}

func setDefault[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

package waitapi

import (
	"errors"
	"fmt"
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
	DefaultMaxPenalty  = time.Hour // the most that a Retry-After closes a budget for
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

// check returns what is wrong with the configuration, all of it.
func (c *Config) check() error {
	var mistakes []error
	if c.Limiters == nil {
		mistakes = append(mistakes, errors.New("waitapi: Config.Limiters is missing: use throttle.NewLimiters"))
	}

	for _, f := range []struct {
		name     string
		negative bool
	}{{"Held", c.Held < 0}, {"Permits", c.Permits < 0}, {"Lifetime", c.Lifetime < 0}, {"MaxLifetime", c.MaxLifetime < 0}} {
		if f.negative {
			mistakes = append(mistakes, fmt.Errorf("waitapi: Config.%s is negative: use more than 0, or 0 for the default", f.name))
		}
	}

	if c.MaxPenalty > throttle.MaxPenalty {
		mistakes = append(mistakes, fmt.Errorf("waitapi: Config.MaxPenalty is %v: nothing is closed for longer than %v", c.MaxPenalty, throttle.MaxPenalty))
	}
	if c.MaxLifetime > 0 && c.Lifetime > c.MaxLifetime {
		mistakes = append(mistakes, fmt.Errorf("waitapi: Config.Lifetime is %v, which is more than MaxLifetime, %v", c.Lifetime, c.MaxLifetime))
	}

	return errors.Join(mistakes...)
}

// setDefaults sets what is 0 to its default, in a configuration without mistakes.
func (c *Config) setDefaults() {
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
	}
}

func setDefault[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

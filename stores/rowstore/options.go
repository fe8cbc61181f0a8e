package rowstore

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Options configure a [Store]. The zero value of each field is useful. All programs that share budgets give the same ones.
type Options struct {
	// Name is the first part of the names of rows. Programs with different names share nothing. One lock
	// guards all rows of a name, which is enough for most, because callers that come together
	// share a transaction. APIs that have nothing to do with each other can have a Store
	// with a Name each: then their transactions do not wait for each other. Defaults to "throttle".
	Name string

	// ManyClocks is for a database without a clock, whose Tx.Now is the clock of the program, and for a database whose
	// servers have a clock each. If Tx.Now is then earlier than the latest time that any node has seen, the Store takes
	// that latest time. A node whose clock is more than a minute behind gets a *ClockError, because nobody knows whose
	// clock is wrong. Defaults to false: all nodes read one clock.
	ManyClocks bool

	// Rows is about how many rows of budgets a transaction has at the most, for a database that bounds
	// transactions. Callers that come together, and have more budgets than that, take several transactions. A transaction for
	// requests with several budgets that wait in line may have some more rows. Defaults to 256.
	Rows int

	// Lease is for how long a program that says nothing is believed to live: after the lease its slots of Concurrency
	// budgets are free, and its callers have left their lines. With an Attender the slots of a killed program are free
	// within a second, and its callers have left their lines within two, if a program that waits has seen it alive. A
	// program says something ten times in a lease while it holds slots, and at least once a second while its callers wait
	// in line. Lease is at least a second. Defaults to 10 s.
	Lease time.Duration
}

const (
	defaultName  = "throttle"
	defaultLease = 10 * time.Second
	defaultRows  = 256
)

// minLease is the shortest Lease: a program says something ten times in that time.
const minLease = time.Second

// check returns a *[store.OptionError] for each mistake in the options, joined, or nil.
func (o *Options) check() error {
	var mistakes []error
	if o.Rows < 0 {
		mistakes = append(mistakes, &store.OptionError{
			Package: "rowstore", Option: "Options.Rows",
			Problem: fmt.Sprintf("%d is negative: use 1 or more, or 0 for %d", o.Rows, defaultRows),
		})
	}

	if o.Lease != 0 && o.Lease < minLease {
		mistakes = append(mistakes, &store.OptionError{
			Package: "rowstore", Option: "Options.Lease",
			Problem: fmt.Sprintf("%v is too short: use %v or more, or 0 for %v", o.Lease, minLease, defaultLease),
		})
	}

	return errors.Join(mistakes...)
}

// orDefaults returns the options with defaults in place of zeros.
func (o Options) orDefaults() Options {
	o.Name = cmp.Or(o.Name, defaultName)
	o.Rows = cmp.Or(o.Rows, defaultRows)
	o.Lease = cmp.Or(o.Lease, defaultLease)
	return o
}

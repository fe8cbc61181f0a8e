package benchmarks

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// straggling is how long calls that began in time may take after the load, unless the
// order says how long. Those that take longer do not count.
const straggling = time.Second

// rush lets all workers of a member take starts as fast as they can.
func (o order) rush(a ask) (done, error) {
	keys := []string{"key"}
	if o.Crowd {
		keys = crowd()
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.Load+cmp.Or(o.Patience, straggling))
	defer cancel()
	calls, errs := make([]int, o.Workers), make([]error, o.Workers)
	var times []time.Duration // of a worker that is alone
	begin := time.Now()
	var all sync.WaitGroup
	for w := range o.Workers {
		at := (o.Process*o.Workers + w) * apart
		all.Go(func() {
			for began := time.Since(begin); began < o.Load && errs[w] == nil; {
				err := a.take(ctx, keys[(at+calls[w])%len(keys)])
				ended := time.Since(begin)
				took := ended - began
				began = ended
				switch {
				case err == nil:
					calls[w]++
					if o.Workers == 1 {
						times = append(times, took)
					}
				case ctx.Err() == nil:
					errs[w] = err
				}
			}
		})
	}
	all.Wait()
	d := done{Took: time.Since(begin)}
	if len(times) > 0 {
		d.Median = median(times)
	}
	for _, n := range calls {
		d.Calls += n
	}
	return d, errors.Join(errs...)
}

// apart is how far from each other in the crowd two workers begin.
const apart = 251

package fleet

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
)

// Run runs a fleet and reports the results. The program must have called
// [Main]. All members have ended when Run returns.
func Run(ctx context.Context, c Config) (Report, error) {
	limit, err := c.check()
	if err != nil {
		return Report{}, err
	}

	o := orders{Config: c}
	var up *Upstream

	// Only an upstream that bans needs a server. Otherwise members answer their requests themselves.
	if c.Ban > 0 {
		up = NewUpstream(limit.N(), limit.Per(), c.Ban)
		server := Serve(up, c.Handshake)
		defer server.Close()
		o.URL = server.URL
		if cert := server.Certificate(); cert != nil {
			o.Root = cert.Raw
		}
	}

	begin, results, err := o.muster(ctx)
	if err != nil {
		return Report{}, err
	}

	r := report(c, limit, begin, results)
	if up != nil {
		r.saw(up, begin)
	}

	return r, nil
}

// muster starts all members, lets them begin together, and collects their results. It returns the time at which they
// began.
func (o orders) muster(ctx context.Context) (begin time.Time, results []result, err error) {
	members, err := crew.Muster(ctx, role, o.each())
	if err != nil {
		return begin, nil, err
	}

	defer members.Kill()
	begin = time.Now()
	if err := members.Tell("go"); err != nil {
		return begin, nil, err
	}

	results = make([]result, len(members))
	for i, m := range members {
		if err := m.Hear(&results[i]); err != nil {
			return begin, nil, err
		}
	}

	return begin, results, nil
}

// each returns the orders of each process.
func (o orders) each() (all []orders) {
	for o.Process = range o.Config.Processes {
		all = append(all, o)
	}
	return all
}

package main

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
)

// An account says whose limits count, and where.
type account struct {
	App     string           // the application's id: the app key. Not the token, which changes
	Egress  string           // a name for the address that the nodes share
	Edition dingtalk.Edition // what the company has bought
	Host    string           // in the patterns; "": the real DingTalk
	Ban     time.Duration    // of a fake; 0: the real five minutes
	Jitter  time.Duration    // how long a call may be on its way; 0: the library's default
}

// policies is DingTalk's table of limits for an account.
func policies(a account) []throttle.Policy {
	rows := dingtalk.Policies(dingtalk.Options{
		App: a.App, Address: a.Egress, Edition: a.Edition, Host: a.Host, Ban: a.Ban,
	})
	for i := range rows {
		rows[i].Jitter = a.Jitter
	}
	return rows
}

// A gauge tells for how long the address is closed.
type gauge struct {
	limiter *throttle.Limiter
	address string
}

// newGauge makes a gauge of the first row's budget.
func newGauge(store throttle.Store, a account) (*gauge, error) {
	l, err := throttle.NewLimiter(store, policies(a)[0])
	return &gauge{l, a.Egress}, err
}

// closed returns 0 if the address is open, or nobody knows.
func (g *gauge) closed(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, err := g.limiter.Status(ctx, g.address)
	if err != nil {
		return 0
	}
	return status.Paused
}

package throttle

import (
	"fmt"
	"net/http"
	"time"
)

// The functions of a policy, called so that their panics are errors.

// cost is what Cost returns.
func (p *compiledPolicy) cost(req *http.Request) (cost int, err error) {
	defer recoverAs(&err, p.Name, "Cost")
	if cost = p.Cost(req); cost < 0 {
		return 0, &ConfigError{p.Name, "Cost", fmt.Errorf("returned %d; 0 is the least", cost)}
	}
	return cost, nil
}

// key is what Key returns, hashed.
func (p *compiledPolicy) key(req *http.Request) (key [16]byte, err error) {
	defer recoverAs(&err, p.Name, "Key")
	return budgetKey(p.Name, p.Key(req)), nil
}

// penalty is what Penalty returns.
func (p *compiledPolicy) penalty(resp *http.Response) (d time.Duration, err error) {
	defer recoverAs(&err, p.Name, "Penalty")
	return p.Penalty(resp), nil
}

// acted is what Acted returns.
func (p *compiledPolicy) acted(resp *http.Response) (acted bool, err error) {
	defer recoverAs(&err, p.Name, "Acted")
	return p.Acted(resp), nil
}

// quota is what Quota returns.
func (p *compiledPolicy) quota(resp *http.Response) (q Quota, ok bool, err error) {
	defer recoverAs(&err, p.Name, "Quota")
	q, ok = p.Quota(resp)
	return q, ok, nil
}

// settle is what Settle returns.
func (p *compiledPolicy) settle(resp *http.Response) (cost int, err error) {
	defer recoverAs(&err, p.Name, "Settle")
	return p.Settle(resp), nil
}

package throttle

import (
	"fmt"
	"net/http"
	"time"
)

// The functions of a policy, called so that their panics are errors.

// cost is what Cost returns.
func (r *rule) cost(req *http.Request) (cost int, err error) {
	defer survive(&err, r.Name, "Cost")
	if cost = r.Cost(req); cost < 0 {
		return 0, &ConfigError{r.Name, "Cost", fmt.Errorf("returned %d; 0 is the least", cost)}
	}
	return cost, nil
}

// key is what Key returns, hashed.
func (r *rule) key(req *http.Request) (key [16]byte, err error) {
	defer survive(&err, r.Name, "Key")
	return budgetKey(r.Name, r.Key(req)), nil
}

// penalty is what Penalty returns.
func (r *rule) penalty(resp *http.Response) (d time.Duration, err error) {
	defer survive(&err, r.Name, "Penalty")
	return r.Penalty(resp), nil
}

// acted is what Acted returns.
func (r *rule) acted(resp *http.Response) (acted bool, err error) {
	defer survive(&err, r.Name, "Acted")
	return r.Acted(resp), nil
}

// quota is what Quota returns.
func (r *rule) quota(resp *http.Response) (q Quota, ok bool, err error) {
	defer survive(&err, r.Name, "Quota")
	q, ok = r.Quota(resp)
	return q, ok, nil
}

// settle is what Settle returns.
func (r *rule) settle(resp *http.Response) (cost int, err error) {
	defer survive(&err, r.Name, "Settle")
	return r.Settle(resp), nil
}

package waitapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"hash/maphash"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/problem"
	"github.com/fleetthrottle/throttle/internal/wishes"
)

// A digest stands for a caller's key, or for what a caller asks for.
type digest [sha256.Size]byte

// mostDemands is how many demands one permit has at most.
const mostDemands = 32

// An acquireRequest is what a caller wants to acquire.
type acquireRequest struct {
	demands  []throttle.Demand
	budgets  []budget
	wait     time.Duration // as for throttle.WithMaxWait
	priority throttle.Priority
	lifetime time.Duration
	aside    bool            // the caller wants a place in place of a long wait
	place    *throttle.Place // that it has; nil: none
	key      digest          // zero: the caller names none
	body     digest
}

// readAcquire returns what a request asks for.
func readAcquire(w http.ResponseWriter, r *http.Request, c *Config, all bodies) (*acquireRequest, *problem.Problem) {
	q := &acquireRequest{priority: wishes.Priority(r.Header), lifetime: c.Lifetime, wait: wishes.MaxWait(r.Header, c.MaxWait), aside: prefersAside(r.Header)}
	key, bad := keyOf(r.Header)
	if bad != nil {
		return nil, bad
	}

	body, bad := all.read(w, r)
	if bad != nil {
		return nil, bad
	}

	var d reader
	wait := time.Duration(-1)
	d.read(body, map[string]field{
		"demands":  d.list(mostDemands, func(raw json.RawMessage, at string) { q.demands = append(q.demands, readDemand(&d, raw, at, c)) }),
		"wait":     d.seconds(&wait, 0, throttle.MaxPenalty),
		"priority": d.priority(&q.priority),
		"place":    d.place(q),
		"lifetime": d.seconds(&q.lifetime, time.Millisecond, c.MaxLifetime),
	}, "demands")

	if bad := d.problem(); bad != nil {
		return nil, bad
	}

	switch {
	case wait == 0:
		q.wait = -1
	case wait > 0:
		q.wait = min(q.wait, wait)
	}

	if key != "" {
		same, _ := json.Marshal([]any{q.demands, q.lifetime}) // without the place: who lost an answer may have an older one. It never fails; a repeat may wait in another way
		q.key, q.body = sha256.Sum256([]byte(key)), sha256.Sum256(same)
	}

	for i := range q.demands {
		q.budgets = append(q.budgets, budgetOf(&q.demands[i], c.Limiters))
	}

	return q, nil
}

// readDemand reads one of the demands.
func readDemand(d *reader, raw json.RawMessage, at string, c *Config) throttle.Demand {
	var demand throttle.Demand
	var free bool
	d.object(raw, at, map[string]field{
		"policy": d.policy(&demand.Policy, c.Limiters),
		"key":    d.text(&demand.Key),
		"cost":   d.number(&demand.Cost, 1),
		"free":   d.truth(&free),
	}, "policy")

	switch {
	case free && demand.Cost > 0:
		d.mistake(at+"/cost", "is set for free work: leave one out")
	case free:
		demand.Cost = throttle.Free
	}

	return demand
}

// policy returns a field that names a policy of the limiters.
func (d *reader) policy(to *string, limiters *throttle.Limiters) field {
	return d.word(to, func(name string) bool {
		_, err := limiters.Limiter(name)
		return err == nil
	}, "is no policy here")
}

// priority returns a field that is a priority.
func (d *reader) priority(to *throttle.Priority) field {
	var name string
	return d.word(&name, func(name string) bool {
		for _, p := range []throttle.Priority{throttle.PriorityLow, throttle.PriorityNormal, throttle.PriorityHigh} {
			if name == p.String() {
				*to = p
				return true
			}
		}
		return false
	}, "is not low, normal or high")
}

// seed is that of the hashes of budgets in this process.
var seed = maphash.MakeSeed()

// A budget is what a permit keeps of one of its budgets.
type budget struct {
	hash uint64
	most int // the highest cost that a caller may tell: the whole limit; 0: the limit counts no starts
}

// budgetOf returns the budget of a demand.
func budgetOf(d *throttle.Demand, limiters *throttle.Limiters) budget {
	b := budget{hash: budgetHash(d.Policy, d.Key)}
	policies := limiters.Policies()
	i := slices.IndexFunc(policies, func(p throttle.Policy) bool { return p.Name == d.Policy })
	if i >= 0 && policies[i].Limit.Counts() {
		b.most = max(policies[i].Limit.N(), policies[i].Limit.Capacity())
	}
	return b
}

func budgetHash(policy, key string) uint64 {
	return maphash.Comparable(seed, [2]string{policy, key})
}

// mostKey is how long an Idempotency-Key is at most.
const mostKey = 255

// keyOf returns the Idempotency-Key of a request, as a string of RFC 8941 or without its quotes; "":
// there is none.
func keyOf(h http.Header) (string, *problem.Problem) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}

	key := values[0]
	if inner, ok := strings.CutPrefix(key, `"`); ok {
		key, ok = strings.CutSuffix(inner, `"`)
		if !ok {
			key = ""
		}
	}

	odd := func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }
	if len(values) > 1 || key == "" || len(key) > mostKey || strings.ContainsFunc(key, odd) {
		return "", problem.New(http.StatusBadRequest, `the Idempotency-Key is not one of 1 to 255 ASCII characters, without spaces, \ and "`)
	}

	return key, nil
}

// A placed is the answer to a caller that comes again later, and why its wait has ended.
type placed struct {
	Place      string  `json:"place"`
	RetryAfter float64 `json:"retryAfter"` // in seconds
}

// Error implements error.
func (p *placed) Error() string { return "waitapi: the caller has a place" }

// reserve returns the permit of a caller that has a place, or wants one; or a *placed.
func (q *acquireRequest) reserve(ctx context.Context, l *throttle.Limiters) (*throttle.Permit, error) {
	permit, place, err := l.Reserve(ctx, q.place, q.demands...)
	if place == nil {
		return permit, err
	}
	text, _ := place.MarshalText() // never fails
	return nil, &placed{string(text), place.RetryAfter().Seconds()}
}

// place returns a field that is a place, or "": the caller has none, and wants one.
func (d *reader) place(q *acquireRequest) field {
	return func(raw json.RawMessage, at string) {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			d.mistake(at, "is not a string")
			return
		}
		if q.aside = true; text != "" {
			if q.place = new(throttle.Place); q.place.UnmarshalText([]byte(text)) != nil {
				d.mistake(at, "is no place: send it as it was answered, or \"\" for a new one")
			}
		}
	}
}

// prefersAside reports whether a caller asks by "Prefer: respond-async" for a place in place of a long wait.
func prefersAside(h http.Header) bool {
	for _, value := range h.Values("Prefer") {
		for preference := range strings.FieldsFuncSeq(value, func(c rune) bool { return c == ',' || c == ';' }) {
			if strings.EqualFold(strings.TrimSpace(preference), "respond-async") {
				return true
			}
		}
	}
	return false
}

// writePlaced answers a caller that is to come again.
func writePlaced(w http.ResponseWriter, p *placed) {
	text, _ := json.Marshal(p) // never fails
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("Retry-After", strconv.Itoa(int(max(1, math.Ceil(p.RetryAfter)))))
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(text) // a caller that has gone comes without it, and gets another one
}

package dashboard

import (
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
)

// lately knows how long requests were held in the last minute. What happens is counted on the request's way, and
// readings compare the counts with those of a minute ago.
type lately struct {
	mu       sync.RWMutex
	policies map[string]*policyWaits
	steps    []step // of the last minute, the oldest first
}

// policyWaits are how long requests of a policy were held.
type policyWaits struct {
	held   histogram // by the policy that held them last
	shadow histogram // how much longer they would have been held
}

// A step is what was counted up to a moment.
type step struct {
	at       time.Time
	policies map[string]waitCounts
}

type waitCounts struct{ held, shadow [buckets]int64 }

const (
	window       = time.Minute
	mostPolicies = 256
)

// observe takes in an event.
func (l *lately) observe(e *throttle.Event) {
	if e.Policy == "" {
		return // no policy held the request
	}

	switch e.Kind {
	case throttle.EventStarted, throttle.EventRefused, throttle.EventGaveUp:
		if p := l.policy(e.Policy); p != nil {
			p.held.add(e.Duration)
		}

	case throttle.EventShadowed:
		if p := l.policy(e.Policy); p != nil {
			p.shadow.add(e.Duration)
		}
	}
}

// policy returns what is counted of a policy; nil: there is no room for another one.
func (l *lately) policy(name string) *policyWaits {
	l.mu.RLock()
	p := l.policies[name]
	l.mu.RUnlock()
	if p != nil {
		return p
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	if p = l.policies[name]; p != nil || len(l.policies) >= mostPolicies {
		return p
	}
	if l.policies == nil {
		l.policies = make(map[string]*policyWaits)
	}

	p = new(policyWaits)
	l.policies[name] = p
	return p
}

// step notes what is counted now. Readings call it before of.
func (l *lately) step(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := step{now, make(map[string]waitCounts)}
	for name, p := range l.policies {
		s.policies[name] = waitCounts{p.held.read(), p.shadow.read()}
	}
	l.steps = append(l.steps, s)
	for len(l.steps) > 1 && now.Sub(l.steps[0].at) > window {
		l.steps = l.steps[1:]
	}
}

// of returns how long requests of a policy were held since the first step of the last minute, and how much longer
// they would have been held if it is one that only counts.
func (l *lately) of(policy string, counts bool) (*waits, *shadow) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	first, last := l.steps[0].policies[policy], l.steps[len(l.steps)-1].policies[policy]
	if counts {
		most, n := quantile(&first.shadow, &last.shadow, 0.99)
		return nil, &shadow{n, most}
	}
	half, n := quantile(&first.held, &last.held, 0.5)
	most, _ := quantile(&first.held, &last.held, 0.99)
	return &waits{n, half, most}, nil
}

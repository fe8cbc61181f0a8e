package throttle

import (
	"slices"
	"sync"
	"time"
)

const (
	mostRecent = 16          // how many budgets of a policy are known
	inUse      = time.Minute // for how long one keeps its place after its last use
	recentFor  = time.Hour   // for how long one is known after its last use
)

// recents are the budgets that callers used last, some of each policy. They know hashes, and no
// keys.
type recents struct {
	mu       sync.Mutex
	askedAt  time.Duration // when somebody asked for them last
	byPolicy map[string][]recentBudget
}

// A recentBudget is one of them.
type recentBudget struct {
	key    [16]byte
	usedAt time.Duration
	heldAt time.Duration // when it held a caller last
}

// note takes in the budgets of a booking, unless another caller is about to do so for its own:
// nobody waits here. It returns false if nobody has asked for long.
func (r *recents) note(charges []Charge, g *Grant, at time.Duration) bool {
	if !r.mu.TryLock() {
		return true
	}
	defer r.mu.Unlock()
	for i := range charges {
		b := &charges[i].Budget
		r.byPolicy[b.Policy] = use(r.byPolicy[b.Policy], b.Key, g.Held == i && (!g.OK || g.Wait > 0), at)
	}
	return at-r.askedAt < recentFor
}

// use notes that a budget is used. Where all places are taken, it takes that of the one that was
// used the longest ago and is not in use. One that holds its caller takes that of one that holds
// nobody.
func use(all []recentBudget, key [16]byte, held bool, at time.Duration) []recentBudget {
	place := -1
	for i := range all {
		b := &all[i]
		if b.key == key {
			place = i
			break
		}
		free := at-b.usedAt > inUse || held && at-b.heldAt > inUse
		if free && (place < 0 || b.usedAt < all[place].usedAt) {
			place = i
		}
	}
	switch {
	case place >= 0 && all[place].key == key:
	case len(all) < mostRecent:
		place, all = len(all), append(all, recentBudget{key: key, heldAt: at - recentFor})
	case place < 0:
		return all
	default:
		all[place] = recentBudget{key: key, heldAt: at - recentFor}
	}
	if all[place].usedAt = at; held {
		all[place].heldAt = at
	}
	return all
}

// ask returns the budgets that are known of each policy in the table, and forgets the others.
func (r *recents) ask(has func(policy string) bool, at time.Duration) map[string][]recentBudget {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.askedAt = at
	all := make(map[string][]recentBudget)
	for policy, budgets := range r.byPolicy {
		budgets = slices.DeleteFunc(budgets, func(b recentBudget) bool { return at-b.usedAt > recentFor })
		if len(budgets) == 0 || !has(policy) {
			delete(r.byPolicy, policy)
			continue
		}
		r.byPolicy[policy] = budgets
		all[policy] = slices.Clone(budgets)
	}
	return all
}

package fleet

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/store"
)

// Causes of a closure, in [Budget.By].
const (
	ByAnswer   = "answer"   // the upstream refused a request
	ByProgram  = "program"  // a program called Pause of a limiter
	ByOperator = "operator" // an operator paused it: see [Budget.Note]
)

// A closing is a program's knowledge of a ban or pause. The zero closing belongs to an open budget. Moments
// are by the process' monotonic clock.
//
// A caller that waits during a ban books nothing more, and the program may end before the ban does. Redis
// therefore keeps an index of closings, and a closed budget is reported for as long as it is closed.
type closing struct {
	since  time.Time // when the program closed the budget, or met it closed
	until  time.Time // zero until the store was asked
	by     string    // ByAnswer or ByProgram, "" if the program met a closed budget
	lifted bool      // the program opened the budget, and the index does not have that yet
	stored bool      // the index has it
}

// holds reports whether the budget is closed at a moment, as far as the program knows.
func (c *closing) holds(now time.Time) bool {
	return !c.since.IsZero() && (c.until.IsZero() || c.until.After(now))
}

// begin notes that the program closed the budget or, if by is "", met it closed. A budget that is only met changes
// nothing as long as its closing holds. If the program closes such a budget again, the end is asked for again, and a
// closing that is stored begins anew.
func (c *closing) begin(now time.Time, by string) {
	switch {
	// The closing is new, or it is stored and the program closed the budget again. In the second case an operator may have opened the budget in between,
	// which removed the closing from the index: store it anew.
	case !c.holds(now), by != "" && c.stored:
		*c = closing{since: now, by: by}
	case by != "":
		c.until = time.Time{} // the end may have moved
		if c.by == "" {
			c.by = by
		}
	}
}

// A closedBudget is a budget whose closing needs work: ask the store for its end, or store it in the index.
type closedBudget struct {
	charge  store.Charge
	closing closing
}

// mostClosings bounds the closings in one report, mostClosingsRead those read
// at once.
const (
	mostClosings     = 128
	mostClosingsRead = 1000
)

// close notes that a budget was closed, or was met closed: see closing.begin.
func (u *uses) close(c *store.Charge, by string, now time.Time) {
	s := u.shard(c.Budget.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := u.keep(s, c, now); b != nil {
		b.closing.begin(now, by)
	}
}

// open notes that the program opened a budget.
func (u *uses) open(c *store.Charge) {
	s := u.shard(c.Budget.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.all[c.Budget.Key]; b != nil {
		// Keep the entry until the index has learnt of the opening: lifted makes the next report store it. The index knows no node's own budgets.
		b.closing = closing{lifted: !b.terms.node}
	}
}

// keep returns the count of a budget that must be reported, because it is closed or a caller waits for it.
// Unlike learn, keep makes room for the budget in a full shard. It returns nil if all other budgets must be
// reported, too. The shard is locked.
func (u *uses) keep(s *shard, c *store.Charge, now time.Time) *used {
	if b := s.all[c.Budget.Key]; b != nil {
		return b
	}

	// The budget counts as used now, so that it is reported for a while after it has opened.
	s.makeRoom(now)
	b := u.learn(s, c)
	if b != nil {
		b.last = now
	}
	return b
}

// makeRoom forgets a budget of a full shard: of the open budgets for which nobody waits, the least used. It notes
// that the shard was full. If there is no such budget, it forgets none.
func (s *shard) makeRoom(now time.Time) {
	if len(s.all) < mostInShard {
		return
	}

	var least [16]byte // the key of the least used
	found := false
	for key, b := range s.all {
		// Keep what an operator looks for, however rarely it is used.
		urgent := b.closing.holds(now) || b.waiters > 0
		if !urgent && (!found || b.weight < s.all[least].weight) {
			least, found = key, true
		}
	}

	if found {
		delete(s.all, least)
		s.full = true
	}
}

// closedBudgets returns the budgets for which isWanted returns true, at most most of them. isWanted runs under a lock.
func (u *uses) closedBudgets(most int, isWanted func(b *used) bool) (all []closedBudget) {
	for i := range u.shards {
		s := &u.shards[i]
		s.mu.Lock()
		for key, b := range s.all {
			// Copy under the lock: the store is asked later, without the lock.
			if len(all) < most && isWanted(b) {
				all = append(all, closedBudget{b.charge(key), b.closing})
			}
		}
		s.mu.Unlock()
	}
	return all
}

// change calls edit with the closing of a budget, unless the closing has changed since c was read.
func (u *uses) change(c *closedBudget, edit func(*closing)) {
	s := u.shard(c.charge.Budget.Key)
	s.mu.Lock()
	defer s.mu.Unlock()

	// A ban that began meanwhile has an end of its own, which this answer does not describe.
	if b := s.all[c.charge.Budget.Key]; b != nil && b.closing == c.closing {
		edit(&b.closing)
	}
}

// askEnds asks the store for unknown ends of closings, once for each ban or pause, and forgets closings that are over by
// the answer. It stops at a question that fails: the remaining ones are asked with the next report.
func (r *Reporter) askEnds(ctx context.Context, now time.Time) {
	// The report waits for the answers, and leave has 2*farewell for both: a slow store must not take the time of the report.
	ctx, stop := context.WithTimeout(ctx, farewell)
	defer stop()

	// Only the store knows the end: a refusal names a length, but a longer ban may be in force.
	unknown := r.uses.closedBudgets(mostClosings, func(b *used) bool { return !b.closing.since.IsZero() && b.closing.until.IsZero() })
	for i := range unknown {
		b := &unknown[i]
		st, err := r.Store.Status(ctx, b.charge)
		if err != nil {
			return
		}

		r.uses.change(b, func(c *closing) {
			c.until = now.Add(st.Paused)

			// The ban ended before the question, so no report needs to mention it.
			if st.Paused == 0 {
				*c = closing{}
			}
		})
	}
}

// A storedClosing is the JSON of a closing in the index. A key's value is the time of the closure in
// microseconds, a space, and the JSON.
type storedClosing struct {
	policyUse
	By  string `json:"by,omitempty"`
	Met string `json:"met,omitempty"` // the program that stored it
}

// unstored returns the closings that the index lacks, and those that are lifted, which it must not keep, together at most
// mostClosings. names and args are the keys and arguments by which beat.lua stores or removes them.
func (r *Reporter) unstored(now time.Time) (all []closedBudget, names []string, args []any) {
	all = r.uses.closedBudgets(mostClosings, func(b *used) bool {
		// A node's own budget is closed only in this process. The index is for shared budgets.
		if b.terms.node {
			return false
		}

		// Leave out bans whose end is unknown: an entry of the index expires with its ban.
		c := &b.closing
		return c.lifted || c.holds(now) && !c.until.IsZero() && !c.stored
	})
	for i := range all {
		b := &all[i]
		id := field(b.charge.Budget.Key)
		text, _ := json.Marshal(storedClosing{useOf(&b.charge), b.closing.by, r.program}) // always valid JSON
		names = append(names, r.keys.ban+id)

		// A program that met a closed budget knows neither cause nor start. With knows 0 the script keeps an
		// existing entry.
		knows := 0
		if b.closing.by != "" {
			knows = 1
		}

		// A lifted closing has no end, so its remaining time is 0: the script removes the entry.
		args = append(args, id, max(0, b.closing.until.Sub(now)).Microseconds(), now.Sub(b.closing.since).Microseconds(), knows, string(text))
	}

	return all, names, args
}

// markStored notes that the index has the closings of unstored.
func (r *Reporter) markStored(all []closedBudget) {
	for i := range all {
		r.uses.change(&all[i], func(c *closing) {
			c.stored = true

			// An opened budget has nothing more to tell once the entry is gone from the index.
			if c.lifted {
				*c = closing{}
			}
		})
	}
}

// A ban is a closing in the index. Its texts are safe to print.
type ban struct {
	charge store.Charge
	since  time.Time // by the server's clock
	by     string
	met    string
}

// readBan parses an entry of the index, which may have been edited by hand. ok is false for an entry that cannot be a
// closing, or is of a node's own budget.
func readBan(id, text string) (b ban, ok bool) {
	key, isField := readField(id)
	at, text, _ := strings.Cut(text, " ")
	since, isMoment := moment(at)
	var s storedClosing
	if !isField || !isMoment || json.Unmarshal([]byte(text), &s) != nil {
		return b, false
	}
	c, err := s.charge()

	// The text names only the policy and the limit. The id of the entry names the budget.
	c.Budget.Key = key
	return ban{c, since, Clean(s.By, longestName), Clean(s.Met, longestName)}, err == nil && !c.Node
}

// bans reads the index of closings in force at now, by hashed key of the budget, at most mostClosingsRead
// with the latest ends. illegible counts entries that could not be parsed.
func (f *Fleet) bans(ctx context.Context, now time.Time) (all map[[16]byte]ban, illegible int, err error) {
	// The latest ends come first, so that the cut drops only bans that end soonest.
	ids, err := f.client.ZRangeArgsWithScores(ctx, redis.ZRangeArgs{Key: f.keys.bans, Start: 0, Stop: mostClosingsRead - 1, Rev: true}).Result()
	if err != nil {
		return nil, 0, f.commandError(err)
	}

	all = make(map[[16]byte]ban)

	// Expired entries leave the sorted set only when a program stores a closing.
	ids = slices.DeleteFunc(ids, func(z redis.Z) bool { return int64(z.Score) <= now.UnixMicro() })

	// Read in batches, so that Redis serves other clients in between.
	for chunk := range slices.Chunk(ids, 100) {
		names := make([]string, len(chunk))
		for i, id := range chunk {
			names[i] = f.keys.ban + id.Member.(string)
		}

		texts, err := f.client.MGet(ctx, names...).Result()
		if err != nil {
			return nil, 0, f.commandError(err)
		}

		for i, text := range texts {
			text, ok := text.(string)
			if !ok {
				continue // the budget was opened
			}

			b, ok := readBan(chunk[i].Member.(string), text)
			if !ok {
				illegible++
				continue
			}

			all[b.charge.Budget.Key] = b
		}
	}

	return all, illegible, nil
}

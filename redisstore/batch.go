package redisstore

import (
	"errors"
	"fmt"

	"github.com/fleetthrottle/throttle"
)

// errAnswer means that something else than the script answered.
var errAnswer = errors.New("redisstore: an answer that cannot be understood")

// A batch is the arguments of one call of book.lua: keys and rules that several
// callers share stand in it once.
type batch struct {
	keys  []string
	rules []any
	count int // of rules
	asks  []any
}

// A ruleID tells rules apart. A zone that was loaded twice makes two rules of
// one, which does no harm.
type ruleID struct {
	key    [16]byte
	limit  throttle.Limit
	jitter int64
}

// callBook serves the callers with one call and returns each one's part of the
// answer.
func (s *Store) callBook(callers []*caller) ([][]int64, error) {
	v, err := s.call(scriptBook, func(e edges) ([]string, []any) {
		b := s.newBatch(callers, e)
		args := append(make([]any, 0, 2+len(b.rules)+len(b.asks)), s.now(), b.count)
		return b.keys, append(append(args, b.rules...), b.asks...)
	})
	if err != nil {
		return nil, err
	}
	parts := make([][]int64, len(callers))
	for i, c := range callers {
		n := answerHead
		if c.maxWait != giveBack {
			n += len(c.charges)
		}
		if len(v) < n {
			return nil, fmt.Errorf("%w: %d numbers are missing", errAnswer, n-len(v))
		}
		parts[i], v = v[:n], v[n:]
	}
	return parts, nil
}

// answerHead is how many numbers stand before those for each charge.
const answerHead = 5

func (s *Store) newBatch(callers []*caller, e edges) *batch {
	b := &batch{}
	keys := make(map[[16]byte]int)
	rules := make(map[ruleID]int)
	for _, c := range callers {
		b.asks = append(b.asks, c.instead, c.maxWait, micros(c.spread), len(c.charges))
		for i := range c.charges {
			ch := &c.charges[i]
			id := ruleID{ch.Budget.Key, ch.Limit, micros(ch.Jitter)}
			rule, ok := rules[id]
			if !ok {
				key, ok := keys[ch.Budget.Key]
				if !ok {
					b.keys = append(b.keys, s.key(&ch.Budget))
					key = len(b.keys)
					keys[ch.Budget.Key] = key
				}
				b.count++
				rule = b.count
				rules[id] = rule
				b.rules = e.appendRule(append(b.rules, key), ch)
			}
			b.asks = append(b.asks, rule, ch.Cost, flag(ch.Shadow))
		}
	}
	return b
}

// appendRule appends what the scripts need to know of a charge but its cost.
func (e edges) appendRule(args []any, c *throttle.Charge) []any {
	return append(args, kindNames[c.Limit.Kind()], c.Limit.N(), micros(c.Span()), micros(c.Jitter), micros(c.Pace), e.of(c.Limit))
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

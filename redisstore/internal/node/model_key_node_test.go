package node

import (
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// node writes what a node remembers, and what it does.
func (k *modelWriter) node(n *modelNode) {
	k.num(int64(n.next))
	for b := range k.limits {
		r, ok := n.memory[k.key(b)]
		if !ok {
			k.num(-2)
			continue
		}
		for _, g := range r.Generations {
			k.birth(g.ID)
			k.num(g.Count)
		}
		k.num(r.Older.Count, r.Older.Mark)
		k.num(int64(len(r.Starts)), r.Last.Number-n.calls)
		if k.clockMatters() {
			k.num(r.Last.ServerTime - k.w.clock)
			k.from(r.Last.Sent)
			k.from(r.Last.By)
		}
		for _, s := range r.Starts {
			k.from(s.By)
			k.num(s.Count)
		}
		if until, ok := n.closed[k.key(b)]; ok {
			k.from(until)
		}
	}
	for _, j := range n.jobs {
		k.num(int64(j.wish), int64(j.state))
		k.start(j.start)
	}
	k.set(n.known)
	if n.queue != nil {
		k.num(-3)
		k.callers(n, n.queue.ops)
		k.batch(n, n.queue.lost)
		k.batch(n, n.now)
	}
	if n.reply != nil && n.now != nil {
		k.from(n.reply.sent)
		k.set(n.reply.know)
		v := wire.Frame(n.reply.text)
		k.num(v.At(0), v.At(1)-k.w.clock, v.At(2)-k.w.clock, v.At(4))
		k.answer(v.From(5), n.now.merged)
	}
}

// clockMatters reports whether the clock was set, or may be.
func (k *modelWriter) clockMatters() bool { return k.w.backed > 0 || k.w.left.backs > 0 }

func (k *modelWriter) callers(n *modelNode, all []*op) {
	k.num(int64(len(all)))
	for _, c := range all {
		which := int64(-1)
		for i, j := range n.jobs {
			if j.c == c {
				which = int64(i)
			}
		}
		mark := c.Start - c.Arrival
		if mark > 0 {
			mark -= k.w.clock
		}
		flags := int64(0)
		if c.left {
			flags = 1
		}
		if c.noMerge {
			flags += 2
		}
		if c.Informed {
			flags += 4
		}
		k.num(which, mark, int64(c.Kind), c.MaxWait, flags)
		k.from(c.joined)
	}
}

func (k *modelWriter) batch(n *modelNode, b *batch) {
	if b == nil {
		k.num(-4)
		return
	}
	k.num(b.number - n.calls)
	k.from(b.sent)
	k.callers(n, b.ops)
	if b == n.now {
		k.from(b.copied)
	}
}

// plan writes what a late call is for.
func (k *modelWriter) plan(p modelPlan) {
	for i, n := range k.w.nodes {
		if n.name == p.name {
			k.num(int64(i), p.number-n.calls)
		}
	}
	for _, q := range p.asks {
		k.num(int64(q.job), int64(q.turn), q.mark-k.w.clock)
	}
	k.set(p.know)
}

// args writes what a late call tells: as it was when it was sent.
func (k *modelWriter) args(args []any) {
	count := args[2].(int)
	for _, a := range args[5+count:] {
		switch a := a.(type) {
		case string:
			k.text(a)
		case int64:
			k.num(a)
		}
	}
	blob := wire.Frame(args[4+count].([]byte))
	k.num(blob.At(3))
	rest := blob.From(5) // without its number and its seed
	for range count - 1 {
		for i := range 2 {
			k.birth(rest.At(4 + 2*i))
			k.num(rest.At(5 + 2*i))
		}
		k.num(rest.At(8), rest.At(9), rest.At(10))
		more := int(rest.At(10))
		for i := range more {
			k.birth(rest.At(11 + 2*i))
			k.num(rest.At(12 + 2*i))
		}
		rest = rest.From(11 + 2*more)
		size := int(rest.At(0))
		k.text(string(rest.From(1)[:16*size]))
		rest = rest.From(2 + 2*size)
	}
	k.num(int64(rest.Size()))
}

package rowstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/nodestore"
)

const (
	transactMost = 5 * time.Second // for how long a transaction may take
	again        = 3               // how often a step is made that was not saved
	boardKeep    = time.Hour
	recordKeep   = time.Hour
	doubtFirst   = 50 * time.Millisecond // how long after a lost reply it is looked up for the first time
	doubtLater   = time.Second
)

// The tries of a call in the record of a node.
const (
	tryStep  = 1
	tryFence = 2
)

// A step is the steps of a node in a group, one after another. Each has a number, which is saved with what it does in the
// record of the node. When it is not known whether a step was saved, the record says it. If it was not, the
// record is fenced: it gets the step's number, so that a transaction that is still on its way finds another record
// than it expects, and cannot be saved any more. Only then the step is made again, with another number.
type step struct {
	*group
	number int64

	// Of the step that goes on.
	decide func(nodestore.Rows) nodestore.Told
	asked  time.Time
	put    bool // a transaction got to its end, and has put something
}

// make makes a step. After an error it was not saved.
func (s *step) make(keys []ledger.Key, decide func(nodestore.Rows) nodestore.Told) error {
	s.decide = decide
	defer func() { s.decide = nil }()
	names := s.names(keys)
	for tries := 1; ; tries++ {
		s.number, s.put = s.number+1, false
		err := s.transact(names, s.do)
		if err == nil || !s.put {
			return err
		}
		saved, doubt := s.find()
		if saved {
			return nil
		}
		if doubt != nil || tries == again {
			return err
		}
	}
}

// names are the keys that a step reads first, each once.
func (s *step) names(keys []ledger.Key) []string {
	names := append(make([]string, 0, len(keys)+2), s.boardKey(), s.recordKey())
	known := make(map[ledger.Key]struct{}, len(keys))
	for _, k := range keys {
		if _, ok := known[k]; !ok {
			known[k] = struct{}{}
			names = append(names, s.rowKey(k))
		}
	}
	return names
}

// transact runs a transaction.
func (s *step) transact(names []string, do func(Tx, []string) error) error {
	ctx, stop := context.WithTimeout(context.Background(), transactMost)
	defer stop()
	s.asked = time.Now()
	return s.db.Transact(ctx, s.name, names, func(tx Tx) error {
		err := do(tx, names)
		s.asked = time.Now() // if it is called again, the clock is read again
		return err
	})
}

// do is a step in a transaction.
func (s *step) do(tx Tx, names []string) error {
	o, err := s.open(tx, names, 1, s.asked, true)
	if err != nil {
		return err
	}
	var record ledger.Record
	if b := o.others[0]; len(b) > 0 {
		if err := record.UnmarshalBinary(b); err != nil {
			return err
		}
	}
	if record.Begin(s.number, tryStep) != ledger.Do {
		return nil // it was saved before
	}
	told := s.decide(&o.table)
	changed, err := o.table.Changed()
	if err != nil {
		return err
	}
	if !told.Empty() {
		o.board.pin(o.now, s.node, &told)
		s.wake(tx, &told)
	}
	if s.with.ManyClocks {
		o.board.time = o.now
	} else if told.Empty() && len(changed) == 0 {
		return nil
	}
	for i := range changed {
		r := &changed[i]
		tx.Put(s.rowKey(r.Key), r.Bytes, max(0, time.Duration(r.Matters(o.now))*time.Microsecond))
	}
	if !told.Empty() || s.with.ManyClocks {
		tx.Put(s.boardKey(), o.board.bytes(), boardKeep)
	}
	s.putRecord(tx, &record)
	s.put = true
	return nil
}

func (s *step) putRecord(tx Tx, r *ledger.Record) {
	b, _ := r.MarshalBinary() // which never fails
	tx.Put(s.recordKey(), b, recordKeep)
}

// wake wakes the nodes that a step concerns.
func (s *step) wake(tx Tx, told *nodestore.Told) {
	w, ok := tx.(Waker)
	if !ok {
		return
	}
	if told.All {
		w.Wake()
		return
	}
	var nodes []string
	for _, n := range told.Nodes {
		nodes = append(nodes, nodeName(n))
	}
	if len(nodes) > 0 {
		w.Wake(nodes...)
	}
}

// find finds out whether the last step was saved, however long that takes, but no longer than the lease of the node: after
// that the rows have forgotten what the node holds and waits for, whether the step was saved or not.
func (s *step) find() (saved bool, doubt error) {
	end := time.Now().Add(s.with.Lease + time.Second)
	for wait := doubtFirst; ; wait = min(2*wait, doubtLater) {
		err := s.transact([]string{s.recordKey()}, func(tx Tx, names []string) error {
			var err error
			saved, err = s.fence(tx, names)
			return err
		})
		if err == nil {
			return saved, nil
		}
		if time.Now().After(end) {
			return false, err
		}
		time.Sleep(wait)
	}
}

// fence reports whether the last step was saved, and sees to it that it will not be if it was not.
func (s *step) fence(tx Tx, names []string) (saved bool, err error) {
	values, err := tx.Get(names...)
	if err != nil {
		return false, err
	}
	var record ledger.Record
	if b := values[0]; len(b) > 0 {
		if err := record.UnmarshalBinary(b); err != nil {
			return false, err
		}
	}
	if record.Begin(s.number, tryFence) != ledger.Do {
		return record.Tried() == tryStep, nil
	}
	s.putRecord(tx, &record)
	return false, nil
}

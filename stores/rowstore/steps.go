package rowstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/node"
)

const (
	maxTransact = 5 * time.Second // for how long a transaction may take
	maxTries    = 3               // how often a step is tried
	boardKeep   = time.Hour
	recordKeep  = time.Hour
	doubtFirst  = 50 * time.Millisecond  // the first pause between two tries of find, which doubles each time
	doubtLater  = 250 * time.Millisecond // the longest such pause
)

// What has put the number of a step into the record of a node.
const (
	tryStep  = 1 // the step, which is saved with its number
	tryFence = 2 // the fence, which keeps the step from being saved
)

// errTwice says that two programs are the same node: one of them is a copy.
var errTwice = errors.New("another program has made steps for this one: is it a copy of a running machine? Start it anew")

// steps makes the steps of a node in a group, one at a time. Each step has a number, which is saved with its changes in the
// record of the node. When it is not known whether a step was saved, the record tells. If the step was not saved, the record
// is fenced: it gets the step's number, so that a transaction that is still on its way finds a record that it does not
// expect, and cannot be saved any more. Only then the step is made again, with a new number.
//
// A database may be put back to an earlier time: a replica takes over that had not received all, or somebody restores a
// copy. Then rows list waiters of this node that have long had their turn, and lines would stand still behind them for as
// long as the node lives. So the node rests until its lease is over in all rows. It learns of the change by its record,
// which is older than the last step that was saved.
type steps struct {
	*group
	number int64
	saved  int64     // the number in the record, as the node knows
	rests  time.Time // until then the node makes no steps

	// The state of the present step.
	decide func(node.Rows) node.Told
	asked  time.Time  // when Transact was called, or when the last call of do before the present one ended
	ended  bool       // the last call of do got to its end
	put    bool       // a call of do has put something
	noted  bool       // the record has the step's number, if the transaction of do is saved
	back   bool       // the rows are of an earlier time
	taken  node.Heard // the news of other nodes that the step uses
}

// errBack is the error of all steps while a node rests. It is an [ErrAway], so callers wait.
var errBack = fmt.Errorf("%w as usual: its rows are as they were some time ago, and this program waits until what they say of it is over", ErrAway)

// rest has the node make no steps until its lease is over in all rows, and returns errBack.
func (s *steps) rest() error {
	s.rests = time.Now().Add(s.options.Lease + s.options.Lease/10)

	// The record stays older than the last step. From now on the node takes it as it is.
	s.saved, s.back = 0, false

	// Waiters that were called may be in the rows again.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard.Lost = true
	return errBack
}

// make makes a step, in up to maxTries tries. After an error the step was not saved, with the exception of a *doubtError,
// which says that nobody knows. If the rows are of an earlier time, the node rests, and the error is errBack.
func (s *steps) make(budgets []ledger.Key, decide func(node.Rows) node.Told) (failed error) {
	if time.Now().Before(s.rests) {
		return errBack
	}

	s.decide = decide
	defer func() {
		if failed != nil {
			s.putBack(s.taken)
		}
		s.decide, s.taken = nil, node.Heard{}
	}()

	keys := s.names.rows([]string{s.names.board(), s.names.record(s.node)}, budgets)
	for tries := 1; ; tries++ {
		// Each try has a number of its own, so that a try that was fenced can never be saved.
		s.number++
		s.ended, s.put = false, false
		err := s.transact(keys, s.do)
		if err == nil && s.noted {
			s.saved = s.number
		}
		if s.back {
			return s.rest()
		}

		// The step was saved, or certainly not saved: do itself failed, or the Database says so.
		doFailed := !s.ended && !s.put
		if err == nil || doFailed || errors.Is(err, ErrNotSaved) {
			return err
		}

		// Nobody knows whether the step was saved, so ask the record.
		if s.put {
			s.trouble.Store(&err)
			saved, doubt := s.find()
			s.trouble.Store(nil)

			// find has tried for longer than the lease, so the node has no places left in the rows, and need not rest.
			if doubt != nil {
				s.back = false
				return &doubtError{err}
			}
			if s.back {
				return s.rest()
			}

			// The record has the number now, by the step or by the fence.
			s.saved = s.number
			if saved {
				return nil
			}
		}

		// Nothing was saved: the step had put nothing, or is fenced. So make it again.
		if tries == maxTries {
			return err
		}
	}
}

// transact runs do in a transaction of the group, for at most maxTransact. A database that does not answer in that time is away.
// do reads the rows of keys first.
func (s *steps) transact(keys []string, do func(Tx, []string) error) error {
	ctx, stop := context.WithTimeout(context.Background(), maxTransact)
	defer stop()
	s.asked = time.Now()
	err := s.db.Transact(ctx, s.name(), keys, func(tx Tx) error {
		err := do(tx, keys)

		// If do is called again, the clock of the database is read again, and not before now.
		s.asked = time.Now()
		return err
	})

	return orAway(ctx, err)
}

// orAway returns err, the error of a call of the database whose time ctx bounded, or nil. After the end of ctx the error is an
// [ErrAway] in any case: a database that has not answered in time is away.
func orAway(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.Is(err, ErrAway) {
		return fmt.Errorf("%w: %w", ErrAway, err)
	}
	return err
}

// A doubtError says that it is not known whether a step was saved, so that it must not be made again.
type doubtError struct{ err error }

// Error implements error.
func (e *doubtError) Error() string { return node.ErrUnsure.Error() + ": " + e.err.Error() }

// Is implements the interface of [errors.Is]. A step that is in doubt is not made again, so its error is not [ErrAway].
func (e *doubtError) Is(target error) bool {
	return target == node.ErrUnsure || target != ErrAway && target != node.ErrAway && errors.Is(e.err, target)
}

// do makes the step in a transaction: it reads the rows, decides, and puts the changed rows, news and the record. If nothing has
// changed and there are no news, it puts nothing, except with many clocks. It also puts nothing if an earlier call of do was saved.
func (s *steps) do(tx Tx, keys []string) error {
	s.ended, s.noted, s.back = false, false, false
	o, err := s.open(tx, keys, s.asked, true)
	if err != nil {
		return err
	}

	// The record is older than the last step that was saved: the database was put back.
	s.back = o.record.IsBefore(s.saved)
	if s.back {
		return errBack
	}

	switch o.record.Begin(s.number, tryStep) {
	case ledger.Done:
		// An earlier call of do was saved. If none has put anything, another program has made a step with this number.
		if !s.put {
			return errTwice
		}
		s.noted = true
		return nil

	// Another program has made later steps.
	case ledger.Late:
		return errTwice
	}

	// A second call of do, after a refused transaction, uses the same news again.
	s.taken.Add(s.take())
	o.table.Hear(s.taken)
	told := s.decide(&o.table)
	s.setWaits(o.now, &told)
	changed, err := o.table.Changed()
	if err != nil {
		return err
	}

	if !told.Empty() {
		o.board.pin(o.now, s.node, &told)
		wake(tx, &told)
	}

	// With many clocks each step notes its time, so that time does not go back for the next node. With one clock a step that
	// changes nothing has nothing to save.
	if s.options.ManyClocks {
		o.board.time = o.now
	} else if told.Empty() && len(changed) == 0 {
		s.ended = true
		return nil
	}

	for i := range changed {
		r := &changed[i]
		tx.Put(s.names.row(r.Key), r.Bytes, max(0, time.Duration(r.Matters(o.now))*time.Microsecond))
	}

	if !told.Empty() || s.options.ManyClocks {
		tx.Put(s.names.board(), o.board.bytes(), boardKeep)
	}

	// The record is saved with the changes, and says afterwards whether they were saved.
	s.putRecord(tx, &o.record)
	s.ended, s.put, s.noted = true, true, true
	return nil
}

// putRecord saves the record of the node.
func (s *steps) putRecord(tx Tx, r *ledger.Record) {
	b, _ := r.MarshalBinary() // never fails
	tx.Put(s.names.record(s.node), b, recordKeep)
}

// wake wakes the nodes that a step concerns, if the database can wake nodes.
func wake(tx Tx, told *node.Told) {
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

	// Without nodes Wake would wake all.
	if len(nodes) > 0 {
		w.Wake(nodes...)
	}
}

// find finds out whether the last step was saved, and fences the step if not. doubt is the last error if find could not find
// out. find tries for a little longer than the lease of the node: by then the rows have forgotten the node's slots and places,
// whether the step was saved or not.
func (s *steps) find() (saved bool, doubt error) {
	end := time.Now().Add(s.options.Lease + time.Second)
	for wait := doubtFirst; ; wait = min(2*wait, doubtLater) {
		err := s.transact([]string{s.names.record(s.node)}, func(tx Tx, keys []string) error {
			var err error
			saved, err = s.fence(tx, keys)
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

// fence reports whether the last step was saved. If it was not, fence puts a record that keeps it from ever being saved. fence sets
// s.back if the record is of an earlier time.
func (s *steps) fence(tx Tx, keys []string) (saved bool, err error) {
	values, err := tx.Get(keys...)
	if err != nil {
		return false, err
	}

	record, err := parseRecord(values[0])
	if err != nil {
		return false, err
	}

	s.back = s.back || record.IsBefore(s.saved)

	switch record.Begin(s.number, tryFence) {
	// The record has this number already: the step, or an earlier fence, was first.
	case ledger.Done:
		return record.Tried() == tryStep, nil

	// Another program has made later steps, so the record says nothing of this one.
	case ledger.Late:
		return false, errTwice
	}

	// Neither has come yet. From now on the step finds a record that it does not expect.
	s.putRecord(tx, &record)
	return false, nil
}
